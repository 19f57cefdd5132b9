package storetest

import (
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func overrideScenarios() []scenario {
	return []scenario{
		{name: "state of its own", run: each(overrideOwn)},
		{name: "known by name and parameters", run: each(overrideIdentity)},
		{name: "no change of the bucket's limits", run: each(overrideBeside)},
		{name: "several in one debit", run: each(overrideSeveral)},
		{name: "settled", run: each(overrideSettled)},
		{name: "too many", run: each(overrideMany)},
		{name: "a full one makes room", need: Caps{HandClock: true}, run: each(overrideRoom)},
	}
}

func override(l *store.Limit) *store.Limit {
	c := *l
	c.Override = true
	return &c
}

// loose returns a debit of a request with its own limits, which reads no catalog.
func loose(b store.Bucket, charges ...store.Charge) store.Debit { return at(0, debit(b, charges...)) }

func overrideOwn(e *env) {
	b, own, over := bkt("alice", "api"), still("rpm", 10), override(still("rpm", 3))
	e.allow(at(5, debit(b, charge(own, 10))))
	e.allow(loose(b, charge(over, 2)))
	out := e.refuse(loose(b, charge(over, 2)))
	e.wantLevels(out, wantLevel{over, 1 * tok, true})
	e.wantTokens(b, own, 0)
	e.wantTokens(b, over, 1)
	e.refuse(at(5, debit(b, charge(own, 1))))
	e.forget(b)
	e.allow(loose(b, charge(over, 3))) // the bucket's first limit
	e.refuse(loose(b, charge(over, 1)))
	e.allow(at(5, debit(b, charge(own, 10))))
}

func overrideIdentity(e *env) {
	b, base := bkt("alice", "api"), override(still("rpm", 10))
	name, burst, amount, period := *base, *base, *base, *base
	name.Name, burst.Burst, amount.Amount, period.Period = "tpm", 11*tok, 2, 365*24*time.Hour
	kinds := []*store.Limit{base, &name, &burst, &amount, &period}
	for round := int64(1); round <= 2; round++ {
		for i, l := range kinds {
			again := *l // another pointer to an equal limit
			e.allow(loose(b, charge(&again, int64(i%3+1))))
		}
	}
	for i, l := range kinds {
		e.wantRoom(b, l, l.Burst-2*int64(i%3+1)*tok)
	}
}

// overrideBeside checks that an override, at whatever epoch, does not count as a change of limits, and that a change of
// limits does not affect an override.
func overrideBeside(e *env) {
	b, own, raised, over := bkt("alice", "api"), still("rpm", 10), still("rpm", 20), override(still("rpm", 100))
	e.allow(at(5, debit(b, charge(own, 4))))
	e.allow(at(0, debit(b, charge(over, 30))))
	e.allow(at(5, debit(b, charge(over, 10))))
	e.allow(at(5, debit(b, charge(own, 4))))
	if st, _ := e.state(b); st.Epoch != 5 {
		e.Fatalf("epoch %d, want 5", st.Epoch)
	}
	e.allow(at(6, debit(b, charge(raised, 4))))
	e.takeFails(store.ErrStaleLimits, at(5, debit(b, charge(own, 1))))
	e.allow(at(0, debit(b, charge(over, 30))))
	e.wantDebt(b, raised, 12*tok)
	e.wantTokens(b, over, 30)
}

// overrideSeveral uses several overrides in one debit, even of the same name.
func overrideSeveral(e *env) {
	b, x, y := bkt("alice", "api"), override(still("rpm", 10)), override(still("rpm", 20))
	out := e.allow(loose(b, charge(x, 4), charge(y, 5)))
	e.wantLevels(out, wantLevel{x, 6 * tok, false}, wantLevel{y, 15 * tok, false})
	out = e.refuse(loose(b, charge(y, 5), charge(x, 7)))
	e.wantLevels(out, wantLevel{y, 15 * tok, false}, wantLevel{x, 6 * tok, true})
}

func overrideSettled(e *env) {
	b, own, over, other := bkt("alice", "api"), still("rpm", 10), override(still("rpm", 10)), override(still("rpm", 11))
	e.allow(at(1, debit(b, charge(own, 5))))
	e.allow(loose(b, charge(over, 5)))
	e.settle(loose(b, charge(over, -3)))
	e.settle(loose(b, charge(other, -3))) // never seen: nothing to return to
	e.wantTokens(b, own, 5)
	e.wantTokens(b, over, 8)
	e.settle(loose(b, charge(over, 9)))
	e.wantTokens(b, over, -1)
	e.refuse(loose(b, charge(over, 0)))
	e.allow(at(1, debit(b, charge(own, 5))))
}

// fill charges as many different overrides as a bucket may hold, one token each.
func (e *env) fill(b store.Bucket) []*store.Limit {
	e.Helper()
	limits := make([]*store.Limit, store.MaxOverrides)
	for i := range limits {
		limits[i] = override(per("rpm", int64(10+i), time.Hour))
		e.allow(loose(b, charge(limits[i], 1)))
	}
	return limits
}

func overrideMany(e *env) {
	b, own := bkt("alice", "api"), still("rpm", 10)
	e.allow(at(1, debit(b, charge(own, 1))))
	held := e.fill(b)
	extra := override(still("rpm", 99))
	e.takeFails(store.ErrTooManyOverrides, loose(b, charge(extra, 1)))
	e.takeFails(store.ErrTooManyOverrides, loose(b, charge(held[0], 1), charge(extra, 1)))
	e.takeFails(store.ErrTooManyOverrides, loose(bkt("bob", "api"), charge(extra, 1)), loose(b, charge(extra, 1)))
	for _, l := range held { // overrides that it holds still work
		e.allow(loose(b, charge(l, 1)))
		if got := reckon.Outstanding(l, e.meter(b, l).Level, e.now()); got > 2*tok {
			e.Fatalf("a take that failed was charged: %d outstanding of %d", got, 2*tok)
		}
	}
	e.allow(at(1, debit(b, charge(own, 1))))
	e.wantTokens(bkt("bob", "api"), extra, 99)
}

func overrideRoom(e *env) {
	b, brief := bkt("alice", "api"), override(per("rpm", 10, time.Second))
	e.clock.Set(noon.Truncate(time.Hour).Add(time.Hour)) // where every clock of this test changes
	e.fill(b)
	e.clock.Advance(time.Hour) // all of them are full again
	held := e.fill(b)
	e.takeFails(store.ErrTooManyOverrides, loose(b, charge(brief, 1)))
	e.forget(b)

	e.allow(loose(b, charge(brief, 10)))
	for _, l := range held[1:] {
		e.allow(loose(b, charge(l, 1)))
	}
	e.takeFails(store.ErrTooManyOverrides, loose(b, charge(held[0], 1)))
	e.clock.Advance(time.Second - time.Nanosecond)
	e.takeFails(store.ErrTooManyOverrides, loose(b, charge(held[0], 1)))
	e.clock.Advance(time.Nanosecond)
	e.allow(loose(b, charge(held[0], 1)))
	e.takeFails(store.ErrTooManyOverrides, loose(b, charge(brief, 1)))
	for _, l := range held[1:] {
		if reckon.Outstanding(l, e.meter(b, l).Level, e.now()) == 0 {
			e.Fatalf("an override that was not full was forgotten: %+v", *l)
		}
	}
}
