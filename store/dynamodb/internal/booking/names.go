package booking

import (
	"context"
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
	now := b.t.Clock()
	of, unknown := b.names.look(many, sums, now)
	if len(unknown) > 0 {
		if err := b.read(ctx, of, unknown, now); err != nil {
			return err
		}
	}
	b.names.mu.Lock()
	defer b.names.mu.Unlock()
	for w, n := range of {
		var bounded []store.LimitFigures
		for _, c := range sums[w] {
			if !n.add(c.Limit) {
				c.Limit = ledger.Others
			}
			bounded = store.MergeFigures(bounded, []store.LimitFigures{c})
		}
		sums[w] = bounded
	}
	return nil
}

// look returns the known names of the windows that must be bounded, and those windows that have to be read because they
// may name other limits.
func (ns *names) look(
	many map[store.Bucket]bool, sums ledger.Sums, now time.Time,
) (of map[ledger.Window]*named, unknown []ledger.Window) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	of = make(map[ledger.Window]*named)
	for w, counts := range sums {
		if w.Of == store.OfBucket && !many[store.Bucket{Namespace: w.Namespace, Entity: w.ID, Resource: w.Sub}] {
			continue
		}
		if n := ns.of[w]; n.knows(counts, now) {
			of[w] = n
		} else {
			unknown = append(unknown, w)
		}
	}
	return of, unknown
}

// read adds what windows name, which it reads, to of and to what is remembered.
func (b *books) read(ctx context.Context, of map[ledger.Window]*named, windows []ledger.Window, now time.Time) error {
	keys := make([]table.Key, len(windows))
	for i, w := range windows {
		keys[i] = b.key(w)
	}
	found, err := b.t.BatchGet(ctx, keys)
	if err != nil {
		return err
	}
	b.names.mu.Lock()
	defer b.names.mu.Unlock()
	if b.names.of == nil || b.names.size > maxRemembered {
		b.names.of, b.names.size = make(map[ledger.Window]*named), 0
	}
	for i, w := range windows {
		n := &named{limits: make(map[string]bool), size: windowSize, at: now}
		for attr := range found[keys[i]] {
			if len(attr) > 1 && attr[1] == '_' {
				n.add(attr[2:])
			}
		}
		of[w], b.names.of[w] = n, n
		b.names.size += n.size
	}
	return nil
}

// knows reports whether the window need not be read to decide which of some limits it names.
func (n *named) knows(counts []store.LimitFigures, now time.Time) bool {
	return n != nil && (now.Sub(n.at) < namedFor ||
		!slices.ContainsFunc(counts, func(c store.LimitFigures) bool { return !n.limits[c.Limit] }))
}
