package booking

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
	"github.com/weirlimits/weir/store/internal/ledger"
)

const (
	// maxNamed is how large the figures that are named may make a window, in bytes.
	maxNamed = 32 << 10
	// figureSize is how many bytes all figures of a limit may take beside its name, and figuresNamed how often they
	// have it.
	figureSize, figuresNamed = 100, 9
	// windowSize is about how many bytes anything else in it takes.
	windowSize = 1 << 10
	// namedFor is how long it is known which limits a window names: other ledgers add to it, too.
	namedFor = 10 * time.Second
	// maxRemembered is how many bytes of the names of windows are remembered.
	maxRemembered = 4 << 20
)

// names are which limits windows name: those that many buckets share, and those of buckets with many limits. Requests
// can bring limits of ever new names, and a namespace may have any number of them. They must not make windows so large
// that what others have spent cannot be booked any more, with which the windows are written.
type names struct {
	mu   sync.Mutex
	of   map[ledger.Window]*named
	size int
}

// named is which limits a window names.
type named struct {
	limits map[string]bool
	size   int
	at     time.Time // when it was read
}

// add reports whether a window names a limit, or has room to.
func (n *named) add(limit string) bool {
	size := figuresNamed*len(limit) + figureSize
	if !n.limits[limit] && n.size+size <= maxNamed {
		n.limits[limit] = true
		n.size += size
	}
	return limit == "" || n.limits[limit]
}

// bound adds up what changes windows for limits for which they have no room.
func (b *books) bound(ctx context.Context, entries []*Booking, sums ledger.Sums) error {
	many := make(map[store.Bucket]bool)
	for _, e := range entries {
		many[e.Bucket] = many[e.Bucket] || e.Account.seen.Many()
	}
	b.names.mu.Lock()
	defer b.names.mu.Unlock()
	if err := b.look(ctx, many, sums); err != nil {
		return err
	}
	for w, counts := range sums {
		n := b.names.of[w]
		if n == nil {
			continue // of a bucket
		}
		var bounded []store.LimitFigures
		for _, c := range counts {
			if !n.add(c.Limit) {
				c.Limit = ledger.Others
			}
			bounded = store.MergeFigures(bounded, []store.LimitFigures{c})
		}
		sums[w] = bounded
	}
	return nil
}

// look reads the windows that may name other limits than is known.
func (b *books) look(ctx context.Context, many map[store.Bucket]bool, sums ledger.Sums) error {
	if b.names.of == nil || b.names.size > maxRemembered {
		b.names.of, b.names.size = make(map[ledger.Window]*named), 0
	}
	now := b.t.Clock()
	windows := make(map[table.Key]ledger.Window)
	for w, counts := range sums {
		few := w.Of == store.OfBucket && !many[store.Bucket{Namespace: w.Namespace, Entity: w.ID, Resource: w.Sub}]
		if !few && !b.names.of[w].knows(counts, now) {
			windows[b.key(w)] = w
		}
	}
	if len(windows) == 0 {
		return nil
	}
	found, err := b.t.BatchGet(ctx, slices.Collect(maps.Keys(windows)))
	if err != nil {
		return err
	}
	for key, w := range windows {
		n := &named{limits: make(map[string]bool), size: windowSize, at: now}
		for attr := range found[key] {
			if len(attr) > 1 && attr[1] == '_' {
				n.add(attr[2:])
			}
		}
		b.names.of[w] = n
		b.names.size += n.size
	}
	return nil
}

// knows reports whether the window need not be read to decide which of some limits it names.
func (n *named) knows(counts []store.LimitFigures, now time.Time) bool {
	return n != nil && (now.Sub(n.at) < namedFor ||
		!slices.ContainsFunc(counts, func(c store.LimitFigures) bool { return !n.limits[c.Limit] }))
}
