package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func concurrencyScenarios() []scenario {
	return []scenario{
		{name: "a thousand on one bucket", run: each(func(e *env) { e.thousand(e) })},
		{name: "a thousand from two clients", peer: true, run: each(func(e *env) { e.thousand(e, e.peer()) })},
		{name: "a thousand while time passes", need: Caps{HandClock: true}, run: each(thousandMoving)},
		{name: "births", run: each(concurrentBirths)},
		{name: "chains", run: each(concurrentChains)},
		{name: "opposite orders", run: each(concurrentOrders)},
		{name: "returns", run: each(concurrentReturns)},
		{name: "forgetting", run: each(concurrentForget)},
		{name: "a change of limits", run: each(concurrentChange)},
		{name: "I5 abandoned calls", run: each(concurrentAbandoned)},
	}
}

// thousand drains one bucket from a thousand goroutines: exactly the available tokens are admitted.
func (e *env) thousand(clients ...*env) {
	e.Helper()
	b, l := bkt("alice", "api"), still("rpm", 700)
	var admitted atomic.Int64
	e.each(1000, func(i int) {
		d := debit(b, charge(l, 1))
		if clients[i%len(clients)].takeQuietly(d).Allowed {
			admitted.Add(1)
		}
	})
	n := admitted.Load()
	if n > 700 || n < 700 && len(clients) == 1 {
		e.Fatalf("%d of 700 admitted", n)
	}
	e.wantTokens(b, l, 700-n)
}

// thousandMoving checks that every millitoken that the clock issues is admitted exactly once.
func thousandMoving(e *env) {
	b, l := bkt("alice", "api"), &store.Limit{Name: "rpm", Amount: 60_000, Period: time.Minute, Burst: 3000}
	first := e.allow(debit(b, store.Charge{Limit: l, Amount: 3000}))
	var admitted atomic.Int64
	e.each(1000, func(i int) {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		for range e.some(20) {
			e.clock.Advance(time.Duration(r.Int64N(int64(500 * time.Microsecond))))
			a := 1 + r.Int64N(3)
			if e.takeQuietly(debit(b, store.Charge{Limit: l, Amount: a})).Allowed {
				admitted.Add(a)
			}
		}
	})
	rest := e.available(b, l)
	last := e.allow(debit(b, store.Charge{Limit: l, Amount: rest}))
	e.refuse(debit(b, store.Charge{Limit: l, Amount: 1}))
	issued := reckon.Reading(l, last.At) - reckon.Reading(l, first.At)
	if got := admitted.Load() + rest; got != issued {
		e.Fatalf("%d millitokens admitted, %d issued", got, issued)
	}
}

// concurrentBirths checks that concurrent callers who create a bucket do not each get a burst.
func concurrentBirths(e *env) {
	l := still("rpm", 5)
	for round := range e.some(50) {
		b := bkt(fmt.Sprint("entity-", round), "api")
		var admitted atomic.Int64
		e.each(16, func(int) {
			if e.takeQuietly(debit(b, charge(l, 1))).Allowed {
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
func concurrentChains(e *env) {
	l := still("rpm", 100_000)
	names := []string{"a", "b", "c", "d", "e", "f"}
	spent := make([]atomic.Int64, len(names))
	e.each(12, func(i int) {
		r := rand.New(rand.NewPCG(2, uint64(i)))
		for range e.some(200) {
			chain := r.Perm(len(names))[:1+r.IntN(len(names))]
			var debits []store.Debit
			for _, k := range chain {
				debits = append(debits, debit(bkt(names[k], "api"), charge(l, int64(1+k))))
			}
			if !e.takeQuietly(debits...).Allowed {
				e.Errorf("refused with tokens to spare")
			}
			for _, k := range chain {
				spent[k].Add(int64(1 + k))
			}
		}
	})
	for k, name := range names {
		e.wantTokens(bkt(name, "api"), l, 100_000-spent[k].Load())
	}
}

// concurrentOrders lets takes of two buckets compete, half of which name the buckets in reverse order.
func concurrentOrders(e *env) {
	a, b, l := bkt("alice", "api"), bkt("bob", "api"), still("rpm", 50)
	var admitted atomic.Int64
	e.each(8, func(i int) {
		for range 25 {
			x, y := debit(a, charge(l, 1)), debit(b, charge(l, 1))
			if i%2 == 0 {
				x, y = y, x
			}
			if e.takeQuietly(x, y).Allowed {
				admitted.Add(1)
			}
		}
	})
	n := admitted.Load()
	if n > 50 || n < 50 && e.h.Caps.AtomicTake {
		e.Fatalf("%d of 50 admitted", n)
	}
	e.wantTokens(a, l, 50-n)
	e.wantTokens(b, l, 50-n)
}

// concurrentReturns returns everything that it takes, and checks the burst while doing so and the levels in the end. A
// store without atomic takes may keep what it debited for a refused take of both buckets.
func concurrentReturns(e *env) {
	a, b, l := bkt("alice", "api"), bkt("bob", "api"), still("rpm", 10)
	var held [2]atomic.Int64
	e.each(16, func(i int) {
		r := rand.New(rand.NewPCG(3, uint64(i)))
		for range e.some(100) {
			n := 1 + r.Int64N(4)
			debits := []store.Debit{debit(a, charge(l, n)), debit(b, charge(l, n))}[r.IntN(2):]
			if !e.takeQuietly(debits...).Allowed {
				continue
			}
			for _, d := range debits {
				if k := slotOf(d.Bucket == b); held[k].Add(n) > 10 {
					e.Errorf("more than the burst is held at once")
				}
			}
			for i := range debits {
				held[slotOf(debits[i].Bucket == b)].Add(-n)
				debits[i].Charges = []store.Charge{charge(l, -n)}
			}
			e.settleQuietly(debits...)
		}
	})
	for _, bucket := range []store.Bucket{a, b} {
		if got := e.available(bucket, l); got > l.Burst || got < l.Burst && e.h.Caps.AtomicTake {
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
func concurrentForget(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 1000)
	e.each(8, func(i int) {
		for range e.some(100) {
			d := debit(b, charge(l, 1))
			switch i {
			case 0:
				if err := e.store.Forget(e.Context(), b); err != nil {
					e.Errorf("forget: %v", err)
				}
			case 7:
				d.Charges[0].Amount *= -1
				e.settleQuietly(d)
			default:
				e.takeQuietly(d)
			}
		}
	})
	e.forget(b)
	for n := int64(1); n <= 3; n++ {
		d := debit(b, charge(l, 1))
		e.allow(d)
		e.wantTokens(b, l, 1000-n)
	}
}

// concurrentChange raises and lowers a limit under ever newer epochs, and checks that what was spent stays spent.
func concurrentChange(e *env) {
	b, small, large := bkt("alice", "api"), still("rpm", 1000), still("rpm", 2000)
	n := e.some(200)
	var admitted, changes atomic.Int64
	e.each(8, func(int) {
		for k := range n {
			l := small
			if k%2 == 1 {
				l = large
			}
			out, err := e.store.Take(e.Context(), store.Take{
				Debits: []store.Debit{at(uint64(k+1), debit(b, charge(l, 1)))},
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
	st, now := e.state(b)
	m := reckon.Find(st, small)
	got, want := reckon.Outstanding(m.Limit, m.Level, now), admitted.Load()*tok
	if got < want || got > want+changes.Load() {
		e.Fatalf("%d millitokens outstanding, want %d", got, want)
	}
}

// concurrentAbandoned checks that the tokens of an abandoned call may be lost but are never handed out twice, and that
// a return with an id can be repeated and counts once.
func concurrentAbandoned(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 1_000_000)
	rounds := int64(e.some(40))
	var sure, tried atomic.Int64
	e.each(8, func(i int) {
		r := rand.New(rand.NewPCG(4, uint64(i)))
		for k := range rounds {
			a := 2 + 2*r.Int64N(20)
			ctx, cancel := context.WithCancel(e.Context())
			if r.IntN(2) == 0 {
				go cancel()
			}
			tried.Add(a)
			out, err := e.store.Take(ctx, store.Take{Debits: []store.Debit{debit(b, charge(l, a))}})
			cancel()
			if err != nil || !out.Allowed {
				continue
			}
			sure.Add(a)
			s := store.Settle{
				Debits: []store.Debit{debit(b, charge(l, -a/2))}, ID: fmt.Sprint("lease-", i, "-", k),
				Expires: out.At.Add(time.Hour),
			}
			for range 3 { // the first is abandoned, the second waits for its answer
				ctx, cancel := context.WithCancel(e.Context())
				go cancel()
				_, _ = e.store.Settle(ctx, s)
				cancel()
				_, _ = e.store.Settle(e.Context(), s)
			}
			sure.Add(-a / 2)
			tried.Add(-a / 2)
		}
	})
	got := (l.Burst - e.available(b, l)) / tok
	if got < sure.Load() || got > tried.Load() {
		e.Fatalf("%d tokens outstanding, want between %d and %d", got, sure.Load(), tried.Load())
	}
}
