package history

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/interleave"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func protocolScenarios() []Scenario {
	return []Scenario{
		{Name: "two takers and a returner", Run: exploreReturns},
		{Name: "takers of two buckets", Run: exploreBuckets},
		{Name: "a settle sent three times", Run: exploreOnce},
		{Name: "limits changed while others debit", Run: exploreChange},
		{Name: "forgotten while others debit", Run: exploreForget},
		{Name: "records changed by two", Aside: true, Run: exploreCatalog},
	}
}

// world is a namespace for one interleaving, with what the scripts saw.
type world struct {
	*Env

	b, c store.Bucket
	n    [4]int64
	errs []error
}

// worlds returns a function that creates fresh worlds in one store.
func worlds(e *Env) func(func()) *world {
	i := 0
	return func(func()) *world {
		i++
		ns := fmt.Sprint("world-", i)
		return &world{
			Env: e, b: store.Bucket{Namespace: ns, Entity: "bob", Resource: "api"},
			c: store.Bucket{Namespace: ns, Entity: "carol", Resource: "api"},
		}
	}
}

// takes debits and counts what was admitted.
func takes(k int, charges ...store.Charge) func(*world) {
	return func(w *world) {
		if w.TakeQuietly(Debit(w.b, charges...)).Allowed {
			for _, c := range charges {
				w.n[k] += c.Amount
			}
		}
	}
}

func exploreReturns(t testing.TB, h Harness) {
	e, l := Open(t, t, h, Noon), Still("rpm", 10)
	taker := interleave.Steps(takes(0, Charge(l, 4)), takes(0, Charge(l, 3)), takes(0, Charge(l, 2)))
	returner := interleave.Steps(
		takes(1, Charge(l, 5)),
		func(w *world) { w.SettleQuietly(Debit(w.b, store.Charge{Limit: l, Amount: -w.n[1]})) },
	)
	interleave.Explore(t, worlds(e), []interleave.Script[*world]{taker, taker, returner}, func(w *world) error {
		if got := l.Burst - w.Available(w.b, l); got != w.n[0] || got > l.Burst {
			return fmt.Errorf("%d millitokens outstanding, %d admitted and kept", got, w.n[0])
		}
		return nil
	})
}

func exploreBuckets(t testing.TB, h Harness) {
	e, l := Open(t, t, h, Noon), Still("rpm", 10)
	both := func(w *world) {
		if w.TakeQuietly(Debit(w.c, Charge(l, 4)), Debit(w.b, Charge(l, 4))).Allowed {
			w.n[1] += 4 * Token
		}
	}
	interleave.Explore(t, worlds(e), []interleave.Script[*world]{
		interleave.Steps(both, both),
		interleave.Steps(both, takes(0, Charge(l, 3))),
		interleave.Steps(takes(0, Charge(l, 6)), both),
	}, func(w *world) error {
		b, c := l.Burst-w.Available(w.b, l), l.Burst-w.Available(w.c, l)
		if b != w.n[0]+w.n[1] || c != w.n[1] || b > l.Burst {
			return fmt.Errorf("%d and %d millitokens outstanding, want %d and %d", b, c, w.n[0]+w.n[1], w.n[1])
		}
		return nil
	})
}

func exploreOnce(t testing.TB, h Harness) {
	e, l := Open(t, t, h, Noon), Still("rpm", 10)
	send := func(w *world) {
		s := w.Once("lease-"+w.b.Namespace, Debit(w.b, Charge(l, -3)))
		switch _, err := w.Store.Settle(w.Context(), s); {
		case err == nil:
			w.n[1]++
		case !errors.Is(err, store.ErrSettled):
			w.errs = append(w.errs, err)
		}
	}
	interleave.Explore(t, worlds(e), []interleave.Script[*world]{
		interleave.Steps(takes(0, Charge(l, 10)), send, takes(0, Charge(l, 2))), interleave.Steps(send, send),
	}, func(w *world) error {
		if w.n[1] != 1 || len(w.errs) > 0 {
			return fmt.Errorf("applied %d times, errors %v", w.n[1], w.errs)
		}
		// The settle came either before there was a debt, and then returned nothing, or after.
		got, owed := l.Burst-w.Available(w.b, l), w.n[0]
		if got != owed && got != owed-3*Token {
			return fmt.Errorf("%d millitokens outstanding, %d admitted", got, owed)
		}
		return nil
	})
}

func exploreChange(t testing.TB, h Harness) {
	e, limits := Open(t, t, h, Noon), []*store.Limit{Still("rpm", 10), Still("rpm", 4), Still("rpm", 16)}
	takesAt := func(version int, tokens int64) func(*world) {
		return func(w *world) {
			l := limits[version]
			d := At(uint64(version+1), Debit(w.b, Charge(l, tokens)))
			out, err := w.Store.Take(w.Context(), store.Take{Debits: []store.Debit{d}})
			switch newest := w.n[2]; {
			case errors.Is(err, store.ErrStaleLimits) && int64(version) < newest:
			case err != nil || int64(version) < newest:
				w.errs = append(w.errs, fmt.Errorf("version %d after %d: %w", version, newest, err))
			case out.Allowed:
				w.n[0] += tokens * Token
				w.n[2] = int64(version)
			default:
				w.n[2] = int64(version)
			}
		}
	}
	interleave.Explore(t, worlds(e), []interleave.Script[*world]{
		interleave.Steps(takesAt(0, 6), takesAt(0, 3), takesAt(1, 1)),
		interleave.Steps(takesAt(1, 1), takesAt(2, 0), takesAt(2, 8)),
		interleave.Steps(takesAt(0, 2)),
	}, func(w *world) error {
		got := int64(0)
		if m := w.Meter(w.b, limits[0]); m != nil {
			got = reckon.Outstanding(m.Limit, m.Level, w.Now())
		}
		if len(w.errs) > 0 || got < w.n[0] || got > w.n[0]+2 {
			return fmt.Errorf("%d millitokens outstanding, %d admitted, errors %v", got, w.n[0], w.errs)
		}
		return nil
	})
}

func exploreForget(t testing.TB, h Harness) {
	e, l := Open(t, t, h, Noon), Still("rpm", 10)
	debits := func(w *world) {
		if w.TakeQuietly(Debit(w.b, Charge(l, 3))).Allowed {
			w.n[0] += 3 * Token
		}
	}
	forget := func(w *world) {
		if err := w.Store.Forget(w.Context(), w.b); err != nil {
			w.errs = append(w.errs, err)
		}
		w.n[0] = 0
	}
	interleave.Explore(t, worlds(e), []interleave.Script[*world]{
		interleave.Steps(debits, debits, debits), interleave.Steps(debits, forget, debits),
	}, func(w *world) error {
		if got := l.Burst - w.Available(w.b, l); got != w.n[0] || len(w.errs) > 0 {
			return fmt.Errorf("%d millitokens outstanding, %d admitted since, errors %v", got, w.n[0], w.errs)
		}
		return nil
	})
}

// exploreCatalog lets two scripts read a record, write back one more than they read, and retry on a conflict.
func exploreCatalog(t testing.TB, h Harness) {
	e := Open(t, t, h, Noon)
	add := func(w *world, yield func()) {
		k := store.Key{Namespace: w.b.Namespace, Kind: store.KindEntity, ID: "counter"}
		for range 3 {
			r := w.Record(k)
			yield()
			err := w.Store.Commit(w.Context(), store.Write{
				Record: store.Record{
					Key: k, Version: r.Version, Value: append(r.Value[:len(r.Value):len(r.Value)], 'x'),
				},
			})
			if err == nil {
				w.n[0]++
				return
			}
			if !errors.Is(err, store.ErrConflict) {
				w.errs = append(w.errs, err)
			}
			yield()
		}
	}
	interleave.Explore(t, worlds(e), []interleave.Script[*world]{add, add, add}, func(w *world) error {
		r := w.Record(store.Key{Namespace: w.b.Namespace, Kind: store.KindEntity, ID: "counter"})
		if int64(len(r.Value)) != w.n[0] || int64(r.Version) != w.n[0] || w.n[0] < 3 || len(w.errs) > 0 {
			return fmt.Errorf("version %d of %q after %d commits, errors %v", r.Version, r.Value, w.n[0], w.errs)
		}
		return nil
	})
}
