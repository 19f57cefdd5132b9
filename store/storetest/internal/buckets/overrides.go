package buckets

import (
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func overrideScenarios() []Scenario {
	return []Scenario{
		{Name: "state of its own", Run: OnStore(overrideOwn)},
		{Name: "known by name and parameters", Run: OnStore(overrideIdentity)},
		{Name: "no change of the bucket's limits", Run: OnStore(overrideBeside)},
		{Name: "several in one debit", Run: OnStore(overrideSeveral)},
		{Name: "settled", Run: OnStore(overrideSettled)},
		{Name: "too many", Run: OnStore(overrideMany)},
		{Name: "a full one makes room", Need: Caps{HandClock: true}, Run: OnStore(overrideRoom)},
	}
}

func overrideOwn(e *Env) {
	b, own, over := Bucket("alice", "api"), Still("rpm", 10), Override(Still("rpm", 3))
	e.Allow(At(5, Debit(b, Charge(own, 10))))
	e.Allow(Loose(b, Charge(over, 2)))
	out := e.Refuse(Loose(b, Charge(over, 2)))
	e.WantLevels(out, Level(over, 1*Token, true))
	e.WantTokens(b, own, 0)
	e.WantTokens(b, over, 1)
	e.Refuse(At(5, Debit(b, Charge(own, 1))))
	e.Forget(b)
	e.Allow(Loose(b, Charge(over, 3))) // the bucket's first limit
	e.Refuse(Loose(b, Charge(over, 1)))
	e.Allow(At(5, Debit(b, Charge(own, 10))))
}

func overrideIdentity(e *Env) {
	b, base := Bucket("alice", "api"), Override(Still("rpm", 10))
	name, burst, amount, period := *base, *base, *base, *base
	name.Name, burst.Burst, amount.Amount, period.Period = "tpm", 11*Token, 2, 365*24*time.Hour
	kinds := []*store.Limit{base, &name, &burst, &amount, &period}
	for round := int64(1); round <= 2; round++ {
		for i, l := range kinds {
			again := *l // another pointer to an equal limit
			e.Allow(Loose(b, Charge(&again, int64(i%3+1))))
		}
	}
	for i, l := range kinds {
		e.WantRoom(b, l, l.Burst-2*int64(i%3+1)*Token)
	}
}

// overrideBeside checks that an override, at whatever epoch, does not count as a change of limits, and that a change of
// limits does not affect an override.
func overrideBeside(e *Env) {
	b, own, raised, over := Bucket("alice", "api"), Still("rpm", 10), Still("rpm", 20), Override(Still("rpm", 100))
	e.Allow(At(5, Debit(b, Charge(own, 4))))
	e.Allow(At(0, Debit(b, Charge(over, 30))))
	e.Allow(At(5, Debit(b, Charge(over, 10))))
	e.Allow(At(5, Debit(b, Charge(own, 4))))
	if st, _ := e.State(b); st.Epoch != 5 {
		e.Fatalf("epoch %d, want 5", st.Epoch)
	}
	e.Allow(At(6, Debit(b, Charge(raised, 4))))
	e.TakeFails(store.ErrStaleLimits, At(5, Debit(b, Charge(own, 1))))
	e.Allow(At(0, Debit(b, Charge(over, 30))))
	e.WantDebt(b, raised, 12*Token)
	e.WantTokens(b, over, 30)
}

// overrideSeveral uses several overrides in one debit, even of the same name.
func overrideSeveral(e *Env) {
	b, x, y := Bucket("alice", "api"), Override(Still("rpm", 10)), Override(Still("rpm", 20))
	out := e.Allow(Loose(b, Charge(x, 4), Charge(y, 5)))
	e.WantLevels(out, Level(x, 6*Token, false), Level(y, 15*Token, false))
	out = e.Refuse(Loose(b, Charge(y, 5), Charge(x, 7)))
	e.WantLevels(out, Level(y, 15*Token, false), Level(x, 6*Token, true))
}

func overrideSettled(e *Env) {
	b, own := Bucket("alice", "api"), Still("rpm", 10)
	over, other := Override(Still("rpm", 10)), Override(Still("rpm", 11))
	e.Allow(At(1, Debit(b, Charge(own, 5))))
	e.Allow(Loose(b, Charge(over, 5)))
	e.Settle(Loose(b, Charge(over, -3)))
	e.Settle(Loose(b, Charge(other, -3))) // never seen: nothing to return to
	e.WantTokens(b, own, 5)
	e.WantTokens(b, over, 8)
	e.Settle(Loose(b, Charge(over, 9)))
	e.WantTokens(b, over, -1)
	e.Refuse(Loose(b, Charge(over, 0)))
	e.Allow(At(1, Debit(b, Charge(own, 5))))
}

// fill charges as many different overrides as a bucket may hold, one token each.
func fill(e *Env, b store.Bucket) []*store.Limit {
	e.Helper()
	limits := make([]*store.Limit, store.MaxOverrides)
	for i := range limits {
		limits[i] = Override(Per("rpm", int64(10+i), time.Hour))
		e.Allow(Loose(b, Charge(limits[i], 1)))
	}
	return limits
}

func overrideMany(e *Env) {
	b, own := Bucket("alice", "api"), Still("rpm", 10)
	e.Allow(At(1, Debit(b, Charge(own, 1))))
	held := fill(e, b)
	extra := Override(Still("rpm", 99))
	e.TakeFails(store.ErrTooManyOverrides, Loose(b, Charge(extra, 1)))
	e.TakeFails(store.ErrTooManyOverrides, Loose(b, Charge(held[0], 1), Charge(extra, 1)))
	e.TakeFails(store.ErrTooManyOverrides, Loose(Bucket("bob", "api"), Charge(extra, 1)), Loose(b, Charge(extra, 1)))
	for _, l := range held { // overrides that it holds still work
		e.Allow(Loose(b, Charge(l, 1)))
		if got := reckon.Outstanding(l, e.Meter(b, l).Level, e.Now()); got > 2*Token {
			e.Fatalf("a take that failed was charged: %d outstanding of %d", got, 2*Token)
		}
	}
	e.Allow(At(1, Debit(b, Charge(own, 1))))
	e.WantTokens(Bucket("bob", "api"), extra, 99)
}

func overrideRoom(e *Env) {
	b, brief := Bucket("alice", "api"), Override(Per("rpm", 10, time.Second))
	e.Clock.Set(Noon.Truncate(time.Hour).Add(time.Hour)) // where every clock of this test changes
	fill(e, b)
	e.Clock.Advance(time.Hour) // all of them are full again
	held := fill(e, b)
	e.TakeFails(store.ErrTooManyOverrides, Loose(b, Charge(brief, 1)))
	e.Forget(b)

	e.Allow(Loose(b, Charge(brief, 10)))
	for _, l := range held[1:] {
		e.Allow(Loose(b, Charge(l, 1)))
	}
	e.TakeFails(store.ErrTooManyOverrides, Loose(b, Charge(held[0], 1)))
	e.Clock.Advance(time.Second - time.Nanosecond)
	e.TakeFails(store.ErrTooManyOverrides, Loose(b, Charge(held[0], 1)))
	e.Clock.Advance(time.Nanosecond)
	e.Allow(Loose(b, Charge(held[0], 1)))
	e.TakeFails(store.ErrTooManyOverrides, Loose(b, Charge(brief, 1)))
	for _, l := range held[1:] {
		if reckon.Outstanding(l, e.Meter(b, l).Level, e.Now()) == 0 {
			e.Fatalf("an override that was not full was forgotten: %+v", *l)
		}
	}
}
