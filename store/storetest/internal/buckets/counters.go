package buckets

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

func counterScenarios() []Scenario {
	return []Scenario{
		{Name: "by what was charged", Run: OnStore(counterExact)},
		{Name: "forced and given back", Run: OnStore(counterForced)},
		{Name: "not by what was refused", Run: OnStore(counterRefused)},
		{Name: "of an override", Run: OnStore(counterOverride)},
		{Name: "across a change of limits", Run: OnStore(counterChange)},
		{Name: "id of a birth", Run: OnStore(counterID)},
		{Name: "time of the last write", Need: Caps{HandClock: true}, Run: OnStore(counterAt)},
		{Name: "random", Run: counterRandom},
	}
}

func counterExact(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 100), Still("tpm", 1000)
	for i := int64(1); i <= 5; i++ {
		e.Allow(Debit(b, Charge(rpm, 1), store.Charge{Limit: tpm, Amount: 1234}))
		e.WantCounts(b, rpm, i*Token, 0)
		e.WantCounts(b, tpm, i*1234, 0)
	}
	e.Allow(Debit(b, Charge(rpm, 0), Charge(tpm, 0)))
	e.WantCounts(b, rpm, 5*Token, 0)
	e.WantCounts(b, tpm, 5*1234, 0)
}

func counterForced(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 100)
	e.Allow(Debit(b, Charge(l, 90)))
	e.Allow(Debit(b, Force(l, 30)))
	e.Settle(Debit(b, Charge(l, 5)))
	e.WantCounts(b, l, 125*Token, 0)
	e.Settle(Debit(b, Charge(l, -40)))
	e.Settle(Debit(b, Charge(l, -1)))
	e.WantCounts(b, l, 125*Token, 41*Token)
	e.Settle(Debit(b, Charge(l, 3), Charge(l, -2)))
	e.WantCounts(b, l, 128*Token, 43*Token)
	e.WantTokens(b, l, 15)
}

func counterRefused(e *Env) {
	a, b, rpm, tpm := Bucket("alice", "api"), Bucket("bob", "api"), Still("rpm", 10), Still("tpm", 10)
	e.Allow(Debit(a, Charge(rpm, 1), Charge(tpm, 1)), Debit(b, Charge(rpm, 1), Charge(tpm, 1)))
	e.Refuse(Debit(a, Charge(rpm, 1), Charge(tpm, 10)))
	e.Refuse(Debit(a, Force(rpm, 5), Charge(tpm, 10)))
	e.Refuse(Debit(a, Charge(rpm, 1), Charge(tpm, 1)), Debit(b, Charge(rpm, 10), Charge(tpm, 1)))
	for _, b := range []store.Bucket{a, b} {
		e.WantCounts(b, rpm, 1*Token, 0)
		e.WantCounts(b, tpm, 1*Token, 0)
	}
}

func counterOverride(e *Env) {
	b, own, over := Bucket("alice", "api"), Still("rpm", 10), Override(Still("rpm", 10))
	e.Allow(Debit(b, Charge(own, 2)))
	e.Allow(Loose(b, Charge(over, 3)))
	e.Settle(Loose(b, Charge(over, -1)))
	e.WantCounts(b, own, 2*Token, 0)
	e.WantCounts(b, over, 3*Token, 1*Token)
}

func counterChange(e *Env) {
	b, small, large := Bucket("alice", "api"), Still("rpm", 10), Still("rpm", 20)
	e.Allow(At(1, Debit(b, Charge(small, 10))))
	e.Allow(At(2, Debit(b, Charge(large, 5))))
	e.Settle(At(2, Debit(b, Charge(large, -5))))
	e.WantCounts(b, large, 15*Token, 5*Token)
}

// counterID checks that each life of a bucket has its own id, and that counters start with it.
func counterID(e *Env) {
	a, b, l := Bucket("alice", "api"), Bucket("bob", "api"), Still("rpm", 10)
	seen := map[uint64]bool{}
	for range 10 {
		for _, b := range []store.Bucket{a, b} {
			e.Allow(Debit(b, Charge(l, 1)))
			first, _ := e.State(b)
			e.Allow(Debit(b, Charge(l, 2)))
			e.Refuse(Debit(b, Charge(l, 9)))
			e.Settle(Debit(b, Charge(l, 1)))
			second, _ := e.State(b)
			if first.ID == 0 || first.ID != second.ID {
				e.Fatalf("%v has id %d, then %d", b, first.ID, second.ID)
			}
			if seen[first.ID] {
				e.Fatalf("%v has id %d again", b, first.ID)
			}
			seen[first.ID] = true
			e.WantCounts(b, l, 4*Token, 0)
		}
		e.Forget(a, b)
		for _, st := range e.Peek(a, b).States {
			if st.ID != 0 {
				e.Fatalf("%v was forgotten and has id %d", st.Bucket, st.ID)
			}
		}
	}
}

func counterAt(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	var written time.Time
	for i := range 5 {
		e.Clock.Advance(time.Second)
		written = e.Clock.Now()
		if i%2 == 0 {
			e.Allow(Debit(b, Charge(l, 1)))
		} else {
			e.Settle(Debit(b, Charge(l, -1)))
			e.Allow(Debit(b, Charge(l, 1)))
		}
		e.Clock.Advance(time.Second)
		if st, now := e.State(b); !st.At.Equal(written) || !now.Equal(e.Clock.Now()) {
			e.Fatalf("written at %v, want %v; seen at %v, want %v", st.At, written, now, e.Clock.Now())
		}
	}
}

// counterRandom checks counters over random histories in which the bucket never fills up.
func counterRandom(t testing.TB, h Harness) {
	e := Open(t, t, h, Noon)
	n, l := 0, Still("rpm", 1_000_000)
	Property(t, h, func(rt *rapid.T) {
		n++
		b := store.Bucket{Namespace: "n", Entity: "alice", Resource: time.Duration(n).String()}
		e := *e
		e.TB = rt
		e.Allow(Debit(b, Charge(l, 1)))
		debited, returned := int64(1*Token), int64(0)
		for _, a := range rapid.SliceOfN(rapid.Int64Range(-1e6, 1e6), 1, 12).Draw(rt, "amounts") {
			if a < 0 {
				a = max(a, returned-debited+1)
				e.Settle(Debit(b, store.Charge{Limit: l, Amount: a}))
				returned -= a
			} else if e.Take(Debit(b, store.Charge{Limit: l, Amount: a})).Allowed {
				debited += a
			}
			e.WantCounts(b, l, debited, returned)
			e.WantRoom(b, l, l.Burst-debited+returned)
		}
	})
}
