package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// shelf is a back end whose accounts other processes change, and some of which can never be booked.
type shelf struct {
	*rapid.T

	accounts, items int
	stored          map[string]kept
	windows         map[ledger.Window]int64
	rivals          int // how many times others change an account before it is applied
	damaged         map[string]bool
	down            error // of Apply
}

type kept struct {
	version int
	seen    ledger.Source
}

// drawer is an account of a shelf.
type drawer struct {
	kept

	changed bool
}

func (s *shelf) Room() (accounts, items int) { return s.accounts, s.items }

func (s *shelf) Read(_ context.Context, entries []*ledger.Entry[drawer]) error {
	if len(entries) > s.accounts {
		s.Fatalf("%d accounts are read at once, want at most %d", len(entries), s.accounts)
	}
	for _, e := range entries {
		had := s.stored[e.Bucket.Entity]
		e.Account = drawer{kept: kept{version: had.version}}
		if had.version > 0 {
			e.Err = e.Account.seen.Decode(had.seen.Append(nil))
		}
	}
	return nil
}

func (s *shelf) See(e *ledger.Entry[drawer], readings []ledger.Reading) ([]ledger.Delta, bool) {
	deltas := e.Account.seen.See(readings, ledger.Late)
	e.Account.changed = len(deltas) > 0
	return deltas, e.Account.changed
}

func (s *shelf) Parents(_ context.Context, entities []store.Key) ([]string, error) {
	out := make([]string, len(entities))
	for i, k := range entities {
		out[i] = family(k)
	}
	return out, nil
}

func (s *shelf) Apply(_ context.Context, entries []*ledger.Entry[drawer], sums ledger.Sums) error {
	n := len(sums)
	for _, e := range entries {
		if e.Account.changed {
			n++
		}
		if s.damaged[e.Bucket.Entity] {
			return fmt.Errorf("entity %s: %w", e.Bucket.Entity, ledger.ErrDamaged)
		}
	}
	switch {
	case n > s.items:
		s.Fatalf("%d items are applied at once, want at most %d", n, s.items)
	case s.down != nil:
		return s.down
	case s.rivals > 0:
		s.rivals--
		had := s.stored[entries[0].Bucket.Entity]
		s.stored[entries[0].Bucket.Entity] = kept{had.version + 1, had.seen}
	}
	for _, e := range entries {
		if s.stored[e.Bucket.Entity].version != e.Account.version {
			return ledger.ErrChanged
		}
	}
	for _, e := range entries {
		if e.Account.changed {
			s.stored[e.Bucket.Entity] = kept{e.Account.version + 1, e.Account.seen}
		}
	}
	for w, counts := range sums {
		for _, c := range counts {
			s.windows[w] += c.Debited
		}
	}
	return nil
}

// TestBook books readings of many hours through a back end with little room, while others change its accounts: each
// amount is in all windows that it belongs to, once, apart from those of accounts that can never be booked.
func TestBook(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &shelf{
			T: t, accounts: rapid.IntRange(1, 5).Draw(t, "accounts"), items: rapid.IntRange(24, 100).Draw(t, "items"),
			stored: make(map[string]kept), windows: make(map[ledger.Window]int64),
			rivals: rapid.IntRange(0, 3).Draw(t, "rivals"), damaged: make(map[string]bool),
		}
		want := make(map[ledger.Window]int64)
		from := ledger.MinuteOf(beginnings[0])
		var entries []*ledger.Entry[drawer]
		for _, id := range ids[:rapid.IntRange(1, 6).Draw(t, "entities")] {
			b := store.Bucket{Namespace: "n", Entity: id, Resource: "r"}
			e := &ledger.Entry[drawer]{Bucket: b}
			s.damaged[id] = rapid.IntRange(0, 5).Draw(t, "damaged") == 0
			minute, debited := from, int64(0)
			for range rapid.IntRange(1, 6).Draw(t, "readings") {
				minute += rapid.Int64Range(1, 90).Draw(t, "minutes")
				debited += 5
				e.Readings = append(e.Readings, reading(1, minute, debited))
				if s.damaged[id] {
					continue
				}
				for _, w := range store.Windows {
					k := ledger.Window{
						Of: store.OfBucket, Namespace: "n", ID: id, Sub: "r", Type: w, Start: w.Start(time.Unix(minute*60, 0)).Unix(),
					}
					want[k] += 5
					k.Of, k.ID, k.Sub = store.OfResource, "r", ""
					want[k] += 5
					k.Of, k.ID = store.OfNamespace, ""
					want[k] += 5
					k.Of, k.Namespace = store.OfStore, store.Registry
					want[k] += 5
					for up := familyOf[id]; up != ""; up = familyOf[up] {
						k.Of, k.Namespace, k.ID, k.Sub = store.OfChildren, "n", up, "r"
						want[k] += 5
					}
				}
			}
			entries = append(entries, e)
		}
		if err := ledger.Book(t.Context(), s, entries); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if bad := s.damaged[e.Bucket.Entity]; bad != errors.Is(e.Err, ledger.ErrDamaged) || !bad && e.Err != nil {
				t.Fatalf("entity %s: error %v, damaged: %t", e.Bucket.Entity, e.Err, bad)
			}
		}
		if !maps.Equal(s.windows, want) {
			t.Fatalf("windows %v, want %v", s.windows, want)
		}
	})
}

// What cannot be booked has the reason, and a rival that never rests ends the booking.
func TestBookFails(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for name, tt := range map[string]struct {
		rivals int
		down   error
		want   error
	}{
		"contended": {rivals: 100, want: ledger.ErrContended},
		"down":      {down: away, want: away},
	} {
		rapid.Check(t, func(t *rapid.T) {
			s := &shelf{T: t, accounts: 2, items: 100, stored: make(map[string]kept), rivals: tt.rivals, down: tt.down}
			e := &ledger.Entry[drawer]{Bucket: store.Bucket{Namespace: "n", Entity: "a", Resource: "r"}}
			e.Readings = []ledger.Reading{reading(1, 30_000_000, 5)}
			if err := ledger.Book(t.Context(), s, []*ledger.Entry[drawer]{e}); err != nil || !errors.Is(e.Err, tt.want) {
				t.Fatalf("%s: error %v, of the entry %v, want %v", name, err, e.Err, tt.want)
			}
		})
	}
}
