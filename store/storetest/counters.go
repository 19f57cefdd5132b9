package storetest

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
)

func counterScenarios() []scenario {
	return []scenario{
		{name: "by what was charged", run: each(counterExact)},
		{name: "forced and given back", run: each(counterForced)},
		{name: "not by what was refused", run: each(counterRefused)},
		{name: "of an override", run: each(counterOverride)},
		{name: "across a change of limits", run: each(counterChange)},
		{name: "id of a birth", run: each(counterID)},
		{name: "time of the last write", need: Caps{HandClock: true}, run: each(counterAt)},
		{name: "random", run: counterRandom},
	}
}

// wantCounts checks a limit's counters. If a store takes several buckets in several steps, what a refused take debited
// and returned may count on both sides.
func (e *env) wantCounts(b store.Bucket, l *store.Limit, debited, returned int64) {
	e.Helper()
	m := e.meter(b, l)
	if m == nil {
		e.Fatalf("%v has no limit %s", b, l.Name)
	}
	d, r := m.Debited, m.Returned
	if !e.h.Caps.AtomicTake && d-debited == r-returned && d >= debited {
		return
	}
	if d != debited || r != returned {
		e.Fatalf("%v %s: debited %d returned %d, want %d and %d", b, l.Name, d, r, debited, returned)
	}
}

func counterExact(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 100), still("tpm", 1000)
	for i := int64(1); i <= 5; i++ {
		e.allow(debit(b, charge(rpm, 1), store.Charge{Limit: tpm, Amount: 1234}))
		e.wantCounts(b, rpm, i*tok, 0)
		e.wantCounts(b, tpm, i*1234, 0)
	}
	e.allow(debit(b, charge(rpm, 0), charge(tpm, 0)))
	e.wantCounts(b, rpm, 5*tok, 0)
	e.wantCounts(b, tpm, 5*1234, 0)
}

func counterForced(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 100)
	e.allow(debit(b, charge(l, 90)))
	e.allow(debit(b, force(l, 30)))
	e.settle(debit(b, charge(l, 5)))
	e.wantCounts(b, l, 125*tok, 0)
	e.settle(debit(b, charge(l, -40)))
	e.settle(debit(b, charge(l, -1)))
	e.wantCounts(b, l, 125*tok, 41*tok)
	e.settle(debit(b, charge(l, 3), charge(l, -2)))
	e.wantCounts(b, l, 128*tok, 43*tok)
	e.wantTokens(b, l, 15)
}

func counterRefused(e *env) {
	a, b, rpm, tpm := bkt("alice", "api"), bkt("bob", "api"), still("rpm", 10), still("tpm", 10)
	e.allow(debit(a, charge(rpm, 1), charge(tpm, 1)), debit(b, charge(rpm, 1), charge(tpm, 1)))
	e.refuse(debit(a, charge(rpm, 1), charge(tpm, 10)))
	e.refuse(debit(a, force(rpm, 5), charge(tpm, 10)))
	e.refuse(debit(a, charge(rpm, 1), charge(tpm, 1)), debit(b, charge(rpm, 10), charge(tpm, 1)))
	for _, b := range []store.Bucket{a, b} {
		e.wantCounts(b, rpm, 1*tok, 0)
		e.wantCounts(b, tpm, 1*tok, 0)
	}
}

func counterOverride(e *env) {
	b, own, over := bkt("alice", "api"), still("rpm", 10), override(still("rpm", 10))
	e.allow(debit(b, charge(own, 2)))
	e.allow(loose(b, charge(over, 3)))
	e.settle(loose(b, charge(over, -1)))
	e.wantCounts(b, own, 2*tok, 0)
	e.wantCounts(b, over, 3*tok, 1*tok)
}

func counterChange(e *env) {
	b, small, large := bkt("alice", "api"), still("rpm", 10), still("rpm", 20)
	e.allow(at(1, debit(b, charge(small, 10))))
	e.allow(at(2, debit(b, charge(large, 5))))
	e.settle(at(2, debit(b, charge(large, -5))))
	e.wantCounts(b, large, 15*tok, 5*tok)
}

// counterID checks that each life of a bucket has its own id, and that counters start with it.
func counterID(e *env) {
	a, b, l := bkt("alice", "api"), bkt("bob", "api"), still("rpm", 10)
	seen := map[uint64]bool{}
	for range 10 {
		for _, b := range []store.Bucket{a, b} {
			e.allow(debit(b, charge(l, 1)))
			first, _ := e.state(b)
			e.allow(debit(b, charge(l, 2)))
			e.refuse(debit(b, charge(l, 9)))
			e.settle(debit(b, charge(l, 1)))
			second, _ := e.state(b)
			if first.ID == 0 || first.ID != second.ID {
				e.Fatalf("%v has id %d, then %d", b, first.ID, second.ID)
			}
			if seen[first.ID] {
				e.Fatalf("%v has id %d again", b, first.ID)
			}
			seen[first.ID] = true
			e.wantCounts(b, l, 4*tok, 0)
		}
		e.forget(a, b)
		for _, st := range e.peek(a, b).States {
			if st.ID != 0 {
				e.Fatalf("%v was forgotten and has id %d", st.Bucket, st.ID)
			}
		}
	}
}

func counterAt(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	var written time.Time
	for i := range 5 {
		e.clock.Advance(time.Second)
		written = e.clock.Now()
		if i%2 == 0 {
			e.allow(debit(b, charge(l, 1)))
		} else {
			e.settle(debit(b, charge(l, -1)))
			e.allow(debit(b, charge(l, 1)))
		}
		e.clock.Advance(time.Second)
		if st, now := e.state(b); !st.At.Equal(written) || !now.Equal(e.clock.Now()) {
			e.Fatalf("written at %v, want %v; seen at %v, want %v", st.At, written, now, e.clock.Now())
		}
	}
}

// counterRandom checks counters over random histories in which the bucket never fills up.
func counterRandom(t testing.TB, h Harness) {
	e := open(t, t, h, noon)
	n, l := 0, still("rpm", 1_000_000)
	check(t, h, func(rt *rapid.T) {
		n++
		b := store.Bucket{Namespace: "n", Entity: "alice", Resource: time.Duration(n).String()}
		e := *e
		e.tb = rt
		e.allow(debit(b, charge(l, 1)))
		debited, returned := int64(1*tok), int64(0)
		for _, a := range rapid.SliceOfN(rapid.Int64Range(-1e6, 1e6), 1, 12).Draw(rt, "amounts") {
			if a < 0 {
				a = max(a, returned-debited+1)
				e.settle(debit(b, store.Charge{Limit: l, Amount: a}))
				returned -= a
			} else if e.take(debit(b, store.Charge{Limit: l, Amount: a})).Allowed {
				debited += a
			}
			e.wantCounts(b, l, debited, returned)
			e.wantRoom(b, l, l.Burst-debited+returned)
		}
	})
}
