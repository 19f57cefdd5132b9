package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func concurrencyScenarios() []Scenario {
	return []Scenario{
		{Name: "a thousand on one bucket", Run: OnStore(func(e *Env) { thousand(e, e) })},
		{Name: "a thousand from two clients", Peer: true, Run: OnStore(func(e *Env) { thousand(e, e, e.Peer()) })},
		{Name: "a thousand while time passes", Need: Caps{HandClock: true}, Run: OnStore(thousandMoving)},
		{Name: "births", Run: OnStore(concurrentBirths)},
		{Name: "chains", Run: OnStore(concurrentChains)},
		{Name: "opposite orders", Run: OnStore(concurrentOrders)},
		{Name: "returns", Run: OnStore(concurrentReturns)},
		{Name: "forgetting", Run: OnStore(concurrentForget)},
		{Name: "a change of limits", Run: OnStore(concurrentChange)},
		{Name: "I5 abandoned calls", Run: OnStore(concurrentAbandoned)},
	}
}

// thousand drains one bucket from a thousand goroutines: exactly the available tokens are admitted.
func thousand(e *Env, clients ...*Env) {
	e.Helper()
	b, l := Bucket("alice", "api"), Still("rpm", 700)
	var admitted atomic.Int64
	e.Each(1000, func(i int) {
		d := Debit(b, Charge(l, 1))
		if clients[i%len(clients)].TakeQuietly(d).Allowed {
			admitted.Add(1)
		}
	})
	n := admitted.Load()
	if n > 700 || n < 700 && len(clients) == 1 {
		e.Fatalf("%d of 700 admitted", n)
	}
	e.WantTokens(b, l, 700-n)
}

// thousandMoving checks that every millitoken that the clock issues is admitted exactly once.
func thousandMoving(e *Env) {
	b, l := Bucket("alice", "api"), &store.Limit{Name: "rpm", Amount: 60_000, Period: time.Minute, Burst: 3000}
	first := e.Allow(Debit(b, store.Charge{Limit: l, Amount: 3000}))
	var admitted atomic.Int64
	e.Each(1000, func(i int) {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		for range e.Some(20) {
			e.Clock.Advance(time.Duration(r.Int64N(int64(500 * time.Microsecond))))
			a := 1 + r.Int64N(3)
			if e.TakeQuietly(Debit(b, store.Charge{Limit: l, Amount: a})).Allowed {
				admitted.Add(a)
			}
		}
	})
	rest := e.Available(b, l)
	last := e.Allow(Debit(b, store.Charge{Limit: l, Amount: rest}))
	e.Refuse(Debit(b, store.Charge{Limit: l, Amount: 1}))
	issued := reckon.Reading(l, last.At) - reckon.Reading(l, first.At)
	if got := admitted.Load() + rest; got != issued {
		e.Fatalf("%d millitokens admitted, %d issued", got, issued)
	}
}

// concurrentBirths checks that concurrent callers who create a bucket do not each get a burst.
func concurrentBirths(e *Env) {
	l := Still("rpm", 5)
	for round := range e.Some(50) {
		b := Bucket(fmt.Sprint("entity-", round), "api")
		var admitted atomic.Int64
		e.Each(16, func(int) {
			if e.TakeQuietly(Debit(b, Charge(l, 1))).Allowed {
				admitted.Add(1)
			}
		})
		if n := admitted.Load(); n != 5 {
			e.Fatalf("%d of 5 admitted", n)
		}
	}
}

// concurrentChains debits overlapping chains and checks that nothing deadlocks and that each bucket is charged only for
// its own chains.
func concurrentChains(e *Env) {
	l := Still("rpm", 100_000)
	names := []string{"a", "b", "c", "d", "e", "f"}
	spent := make([]atomic.Int64, len(names))
	e.Each(12, func(i int) {
		r := rand.New(rand.NewPCG(2, uint64(i)))
		for range e.Some(200) {
			chain := r.Perm(len(names))[:1+r.IntN(len(names))]
			var debits []store.Debit
			for _, k := range chain {
				debits = append(debits, Debit(Bucket(names[k], "api"), Charge(l, int64(1+k))))
			}
			if !e.TakeQuietly(debits...).Allowed {
				e.Errorf("refused with tokens to spare")
			}
			for _, k := range chain {
				spent[k].Add(int64(1 + k))
			}
		}
	})
	for k, name := range names {
		e.WantTokens(Bucket(name, "api"), l, 100_000-spent[k].Load())
	}
}

// concurrentOrders lets takes of two buckets compete, half of which name the buckets in reverse order.
func concurrentOrders(e *Env) {
	a, b, l := Bucket("alice", "api"), Bucket("bob", "api"), Still("rpm", 50)
	var admitted atomic.Int64
	e.Each(8, func(i int) {
		for range 25 {
			x, y := Debit(a, Charge(l, 1)), Debit(b, Charge(l, 1))
			if i%2 == 0 {
				x, y = y, x
			}
			if e.TakeQuietly(x, y).Allowed {
				admitted.Add(1)
			}
		}
	})
	n := admitted.Load()
	if n > 50 || n < 50 && e.Harness.Caps.AtomicTake {
		e.Fatalf("%d of 50 admitted", n)
	}
	e.WantTokens(a, l, 50-n)
	e.WantTokens(b, l, 50-n)
}

// concurrentReturns returns everything that it takes, and checks the burst while doing so and the levels in the end. A
// store without atomic takes may keep what it debited for a refused take of both buckets.
func concurrentReturns(e *Env) {
	a, b, l := Bucket("alice", "api"), Bucket("bob", "api"), Still("rpm", 10)
	var held [2]atomic.Int64
	e.Each(16, func(i int) {
		r := rand.New(rand.NewPCG(3, uint64(i)))
		for range e.Some(100) {
			n := 1 + r.Int64N(4)
			debits := []store.Debit{Debit(a, Charge(l, n)), Debit(b, Charge(l, n))}[r.IntN(2):]
			if !e.TakeQuietly(debits...).Allowed {
				continue
			}
			for _, d := range debits {
				if k := slotOf(d.Bucket == b); held[k].Add(n) > 10 {
					e.Errorf("more than the burst is held at once")
				}
			}
			for i := range debits {
				held[slotOf(debits[i].Bucket == b)].Add(-n)
				debits[i].Charges = []store.Charge{Charge(l, -n)}
			}
			e.SettleQuietly(debits...)
		}
	})
	for _, bucket := range []store.Bucket{a, b} {
		if got := e.Available(bucket, l); got > l.Burst || got < l.Burst && e.Harness.Caps.AtomicTake {
			e.Errorf("%v: available %d millitokens, want %d", bucket, got, l.Burst)
		}
	}
}

func slotOf(second bool) int {
	if second {
		return 1
	}
	return 0
}

// concurrentForget forgets a bucket while it is used, and checks that no caller continues with the dead one.
func concurrentForget(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 1000)
	e.Each(8, func(i int) {
		for range e.Some(100) {
			d := Debit(b, Charge(l, 1))
			switch i {
			case 0:
				if err := e.Store.Forget(e.Context(), b); err != nil {
					e.Errorf("forget: %v", err)
				}
			case 7:
				d.Charges[0].Amount *= -1
				e.SettleQuietly(d)
			default:
				e.TakeQuietly(d)
			}
		}
	})
	e.Forget(b)
	for n := int64(1); n <= 3; n++ {
		d := Debit(b, Charge(l, 1))
		e.Allow(d)
		e.WantTokens(b, l, 1000-n)
	}
}

// concurrentChange raises and lowers a limit under ever newer epochs, and checks that what was spent stays spent.
func concurrentChange(e *Env) {
	b, small, large := Bucket("alice", "api"), Still("rpm", 1000), Still("rpm", 2000)
	n := e.Some(200)
	var admitted, changes atomic.Int64
	e.Each(8, func(int) {
		for k := range n {
			l := small
			if k%2 == 1 {
				l = large
			}
			out, err := e.Store.Take(e.Context(), store.Take{
				Debits: []store.Debit{At(uint64(k+1), Debit(b, Charge(l, 1)))},
			})
			changes.Add(1)
			switch {
			case err == nil && out.Allowed:
				admitted.Add(1)
			case err != nil && !errors.Is(err, store.ErrStaleLimits):
				e.Errorf("take: %v", err)
			case err == nil && *out.Levels[0].Limit != *l:
				e.Errorf("refused by %+v, asked with %+v", *out.Levels[0].Limit, *l)
			}
		}
	})
	st, now := e.State(b)
	m := reckon.Find(st, small)
	got, want := reckon.Outstanding(m.Limit, m.Level, now), admitted.Load()*Token
	if got < want || got > want+changes.Load() {
		e.Fatalf("%d millitokens outstanding, want %d", got, want)
	}
}

// concurrentAbandoned checks that the tokens of an abandoned call may be lost but are never handed out twice, and that
// a return with an id can be repeated and counts once.
func concurrentAbandoned(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 1_000_000)
	rounds := int64(e.Some(40))
	var sure, tried atomic.Int64
	e.Each(8, func(i int) {
		r := rand.New(rand.NewPCG(4, uint64(i)))
		for k := range rounds {
			a := 2 + 2*r.Int64N(20)
			ctx, cancel := context.WithCancel(e.Context())
			if r.IntN(2) == 0 {
				go cancel()
			}
			tried.Add(a)
			out, err := e.Store.Take(ctx, store.Take{Debits: []store.Debit{Debit(b, Charge(l, a))}})
			cancel()
			if err != nil || !out.Allowed {
				continue
			}
			sure.Add(a)
			s := store.Settle{
				Debits: []store.Debit{Debit(b, Charge(l, -a/2))}, ID: fmt.Sprint("lease-", i, "-", k),
				Expires: out.At.Add(time.Hour),
			}
			for range 3 { // the first is abandoned, the second waits for its answer
				ctx, cancel := context.WithCancel(e.Context())
				go cancel()
				_, _ = e.Store.Settle(ctx, s)
				cancel()
				_, _ = e.Store.Settle(e.Context(), s)
			}
			sure.Add(-a / 2)
			tried.Add(-a / 2)
		}
	})
	got := (l.Burst - e.Available(b, l)) / Token
	if got < sure.Load() || got > tried.Load() {
		e.Fatalf("%d tokens outstanding, want between %d and %d", got, sure.Load(), tried.Load())
	}
}
