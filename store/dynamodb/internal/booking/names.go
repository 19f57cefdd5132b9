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

// names are which limits windows name: those that many buckets share, and those of buckets that may have many limits.
// Requests can bring limits of ever new names, and a namespace may have any number of them. They must not make windows
// so large that what others have spent cannot be booked any more, with which the windows are written.
type names struct {
	mu sync.Mutex
	of map[ledger.Window]*named
}

// named is which limits a window names.
type named struct {
	limits map[string]bool
	size   int
	at     time.Time // when it was read
}

// add names a limit.
func (n *named) add(limit string) {
	if !n.limits[limit] {
		n.limits[limit] = true
		n.size += sizeOf(limit)
	}
}

// sizeOf returns how many bytes a limit may take in a window.
func sizeOf(limit string) int { return figuresNamed*len(limit) + figureSize }

// bound adds up what changes windows for limits for which they have no room. With all set, that concerns all windows;
// otherwise those that many buckets share, and those of buckets that may have many limits. Of the limits that it adds
// up, there is no peak: it would be that of their sum.
func (b *books) bound(ctx context.Context, entries []*Booking, sums ledger.Sums, all bool) error {
	many := make(map[store.Bucket]bool)
	for _, e := range entries {
		many[e.Bucket] = many[e.Bucket] || all || e.Account.seen.Many()
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
			if c.Limit != "" && !n.limits[c.Limit] && n.size+sizeOf(c.Limit) > maxNamed {
				c.Limit, c.Peak = ledger.Others, 0
			}
			n.add(c.Limit)
			bounded = store.MergeFigures(bounded, []store.LimitFigures{c})
		}
		sums[w] = bounded
	}
	b.names.forget()
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
		n := ns.of[w]
		bucket := store.Bucket{Namespace: w.Namespace, Entity: w.ID, Resource: w.Sub}
		switch {
		case w.Of == store.OfBucket && n == nil && !many[bucket]:
		case n.knows(counts, now):
			of[w] = n
		default:
			unknown = append(unknown, w)
		}
	}
	return of, unknown
}

// read adds what windows name, which it reads, to what is remembered, and that to of.
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
	for i, w := range windows {
		n := b.names.remember(w)
		n.at = now
		for attr := range found[keys[i]] {
			if len(attr) > 1 && attr[1] == '_' {
				n.add(attr[2:]) // even beyond maxNamed: it is there
			}
		}
		of[w] = n
	}
	return nil
}

// remember returns what is remembered of a window, which is bounded from now on.
func (ns *names) remember(w ledger.Window) *named {
	n := ns.of[w]
	if n == nil {
		n = &named{limits: make(map[string]bool), size: windowSize}
		ns.of[w] = n
	}
	return n
}

// large remembers windows of which some are large, so that they are read before they become larger.
func (ns *names) large(sums ledger.Sums) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for w := range sums {
		ns.remember(w)
	}
}

// forget forgets the names of some windows if there are too many.
func (ns *names) forget() {
	size := 0
	for w, n := range ns.of {
		if size+n.size > maxRemembered {
			delete(ns.of, w)
		} else {
			size += n.size
		}
	}
}

// knows reports whether the window need not be read to decide which of some limits it names.
func (n *named) knows(counts []store.LimitFigures, now time.Time) bool {
	return n != nil && (now.Sub(n.at) < namedFor ||
		!slices.ContainsFunc(counts, func(c store.LimitFigures) bool { return !n.limits[c.Limit] }))
}
