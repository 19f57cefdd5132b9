package storetest

import (
	"errors"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func limitScenarios() []scenario {
	hand := Caps{HandClock: true}
	return []scenario{
		{name: "raised", run: each(limitRaised)},
		{name: "lowered", run: each(limitLowered)},
		{name: "lowered by a take that it refuses", need: hand, run: each(limitLoweredRefused)},
		{name: "other rate", need: hand, run: each(limitRate)},
		{name: "added", run: each(limitAdded)},
		{name: "removed", run: each(limitRemoved)},
		{name: "removed and added again", run: each(limitReadded)},
		{name: "removed and added again otherwise", need: hand, run: each(limitReaddedOther)},
		{name: "reordered", run: each(limitReordered)},
		{name: "stale", run: each(limitStale)},
		{name: "stale beside others", run: each(limitStaleOthers)},
		{name: "older but the same", run: each(limitOlderSame)},
		{name: "two of one epoch", run: each(limitOneEpoch)},
		{name: "by other clients", peer: true, run: each(limitPeers)},
	}
}

// wantDebt checks what is outstanding of a limit after a change, which may cost a millitoken but never grants one.
func (e *env) wantDebt(b store.Bucket, l *store.Limit, want int64) {
	e.Helper()
	st, now := e.state(b)
	m := reckon.Find(st, l)
	if m == nil {
		e.Fatalf("%v has no limit %s", b, l.Name)
	}
	if *m.Limit != *l {
		e.Fatalf("%v follows %+v, want %+v", b, *m.Limit, *l)
	}
	if got := reckon.Outstanding(m.Limit, m.Level, now); got < want || got > want+1 {
		e.Fatalf("%v %s: %d millitokens outstanding, want %d", b, l.Name, got, want)
	}
}

func limitRaised(e *env) {
	b, small, large := bkt("alice", "api"), still("rpm", 100), still("rpm", 250)
	e.allow(at(1, debit(b, charge(small, 100))))
	e.refuse(at(1, debit(b, charge(small, 1))))
	out := e.allow(at(2, debit(b, charge(large, 149)))) // at once; 150 may be a millitoken too much
	if l := out.Levels[0].Limit; *l != *large {
		e.Fatalf("the level is of %+v, want %+v", *l, *large)
	}
	e.wantDebt(b, large, 249*tok)
	e.refuse(at(2, debit(b, charge(large, 2))))
	if st, _ := e.state(b); st.Epoch != 2 {
		e.Fatalf("epoch %d, want 2", st.Epoch)
	}
}

func limitLowered(e *env) {
	b, large, small := bkt("alice", "api"), still("rpm", 200), still("rpm", 100)
	e.allow(at(1, debit(b, charge(large, 150))))
	out := e.refuse(at(2, debit(b, charge(small, 0)))) // never forgiven
	if l := out.Levels[0]; *l.Limit != *small || !l.Refused || reckon.Room(l.Limit, l.Level, out.At) > -50*tok {
		e.Fatalf("150 of 100 are spent: %s", show(out))
	}
	e.settle(at(2, debit(b, charge(small, -60))))
	e.wantDebt(b, small, 90*tok)
	e.allow(at(2, debit(b, charge(small, 9))))
	e.refuse(at(2, debit(b, charge(small, 2))))
}

// limitLoweredRefused checks that a bucket adopts newer limits even if they refuse the take, and drains at their rate.
func limitLoweredRefused(e *env) {
	b, large, small := bkt("alice", "api"), perMinute("rpm", 6000), perMinute("rpm", 60)
	e.allow(at(1, debit(b, charge(large, 6000))))
	e.refuse(at(2, debit(b, charge(small, 1))))
	e.clock.Advance(time.Minute) // at the old rate it would be full again
	e.refuse(at(2, debit(b, charge(small, 1))))
	e.wantDebt(b, small, 5940*tok)
	e.takeFails(store.ErrStaleLimits, at(1, debit(b, charge(large, 1))))
}

func limitRate(e *env) {
	b, slow := bkt("alice", "api"), perMinute("rpm", 60)
	fast := &store.Limit{Name: "rpm", Amount: 120 * tok, Period: 7 * time.Second, Burst: 60 * tok}
	e.allow(at(1, debit(b, charge(slow, 60))))
	e.clock.Advance(10 * time.Second)
	e.allow(at(2, debit(b, charge(fast, 9))))
	e.wantDebt(b, fast, 59*tok)
	e.clock.Advance(7 * time.Second / 120 * 30)
	e.wantDebt(b, fast, 29*tok)
	e.allow(at(3, debit(b, charge(slow, 30))))
	e.wantDebt(b, slow, 59*tok)
	e.clock.Advance(10 * time.Second)
	e.wantDebt(b, slow, 49*tok)
}

func limitAdded(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	e.allow(at(1, debit(b, charge(rpm, 6))))
	e.refuse(at(2, debit(b, charge(rpm, 5), charge(tpm, 10))))
	e.refuse(at(2, debit(b, charge(rpm, 1), charge(tpm, 1001))))
	e.allow(at(2, debit(b, charge(rpm, 1), charge(tpm, 1000))))
	e.wantTokens(b, rpm, 3)
	e.wantTokens(b, tpm, 0)
	e.takeFails(store.ErrStaleLimits, at(1, debit(b, charge(rpm, 1))))
}

func limitRemoved(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	e.allow(at(1, debit(b, charge(rpm, 1), force(tpm, 1500))))
	e.refuse(at(1, debit(b, charge(rpm, 1), charge(tpm, 0))))
	out := e.allow(at(2, debit(b, charge(rpm, 1)))) // tpm no longer applies
	e.wantLevels(out, wantLevel{rpm, 8 * tok, false})
	e.takeFails(store.ErrStaleLimits, at(1, debit(b, charge(rpm, 1), charge(tpm, 0))))
	e.wantTokens(b, rpm, 8)
}

// limitReadded checks that what was outstanding when a limit was removed still is when the limit comes back.
func limitReadded(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	e.allow(at(1, debit(b, charge(rpm, 1), force(tpm, 1500))))
	for i := range uint64(3) {
		e.allow(at(2+2*i, debit(b, charge(rpm, 1))))
		out := e.refuse(at(3+2*i, debit(b, charge(rpm, 1), charge(tpm, 0))))
		e.wantLevels(out, wantLevel{rpm, int64(8-i) * tok, false}, wantLevel{tpm, -500 * tok, true})
	}
	e.settle(at(7, debit(b, charge(tpm, -600))))
	e.allow(at(7, debit(b, charge(rpm, 1), charge(tpm, 100))))
}

// limitReaddedOther checks that a removed limit drains at its old rate in the meantime.
func limitReaddedOther(e *env) {
	b, rpm, slow, fast := bkt("alice", "api"), still("rpm", 10), perMinute("tpm", 600), perMinute("tpm", 6000)
	e.allow(at(1, debit(b, charge(rpm, 1), charge(slow, 600))))
	e.allow(at(2, debit(b, charge(rpm, 1))))
	e.clock.Advance(30 * time.Second)
	e.allow(at(3, debit(b, charge(rpm, 1), charge(fast, 5000))))
	e.wantDebt(b, fast, 5300*tok)
}

// limitReordered checks that limits are identified by name, not by position.
func limitReordered(e *env) {
	b, x, y, z := bkt("alice", "api"), still("x", 10), still("y", 20), still("z", 30)
	e.allow(at(1, debit(b, charge(x, 1), charge(y, 2))))
	e.allow(at(2, debit(b, charge(z, 3), charge(y, 2), charge(x, 1))))
	e.allow(at(3, debit(b, charge(y, 2), charge(z, 3))))
	e.allow(at(4, debit(b, charge(y, 2), charge(x, 1), charge(z, 3))))
	e.wantTokens(b, x, 7)
	e.wantTokens(b, y, 12)
	e.wantTokens(b, z, 21)
}

func limitStale(e *env) {
	b, l := bkt("alice", "api"), [3]*store.Limit{still("rpm", 100), still("rpm", 50), still("rpm", 200)}
	e.allow(at(7, debit(b, charge(l[0], 10))))
	e.takeFails(store.ErrStaleLimits, at(6, debit(b, charge(l[1], 1))))
	e.takeFails(store.ErrStaleLimits, at(0, debit(b, charge(l[1], 1))))
	e.takeFails(store.ErrStaleLimits, at(6, debit(b, force(l[2], 1))))
	e.wantDebt(b, l[0], 10*tok)
	e.allow(at(9, debit(b, charge(l[2], 0))))
	e.takeFails(store.ErrStaleLimits, at(8, debit(b, charge(l[0], 1))))
	e.wantDebt(b, l[2], 10*tok)
	if st, _ := e.state(b); st.Epoch != 9 {
		e.Fatalf("epoch %d, want 9", st.Epoch)
	}
}

// limitStaleOthers checks that one stale debit fails the take, and that nothing is debited anywhere.
func limitStaleOthers(e *env) {
	small, large := still("rpm", 10), still("rpm", 20)
	a, b, c := bkt("alice", "api"), bkt("bob", "api"), bkt("carol", "api")
	e.allow(at(2, debit(b, charge(large, 1))))
	e.takeFails(store.ErrStaleLimits,
		at(1, debit(a, charge(small, 1))), at(1, debit(b, charge(small, 1))), at(1, debit(c, force(small, 1))))
	e.wantTokens(a, small, 10)
	e.wantDebt(b, large, 1*tok)
	e.wantTokens(c, small, 10)
}

func limitOlderSame(e *env) {
	b := bkt("alice", "api")
	e.allow(at(9, debit(b, charge(still("rpm", 10), 3), charge(still("tpm", 10), 3))))
	e.allow(at(3, debit(b, charge(still("rpm", 10), 3), charge(still("tpm", 10), 3))))
	e.allow(at(3, debit(b, charge(still("tpm", 10), 1), charge(still("rpm", 10), 1))))
	e.wantTokens(b, still("rpm", 10), 3)
	if st, _ := e.state(b); st.Epoch != 9 {
		e.Fatalf("epoch %d, want 9", st.Epoch)
	}
}

// limitOneEpoch covers two sets of limits under one epoch, which can occur if limits are combined from two sources. A
// driver may use either; however they alternate, it admits no more than the larger allows, and the next epoch ends it.
func limitOneEpoch(e *env) {
	b, large, small, next := bkt("alice", "api"), still("rpm", 100), still("rpm", 40), still("rpm", 200)
	admitted := 0
	for i := range 40 {
		l := []*store.Limit{large, small, small}[i%3]
		switch out, err := e.store.Take(e.Context(), store.Take{
			Debits: []store.Debit{at(6, debit(b, charge(l, 7)))},
		}); {
		case err == nil && out.Allowed:
			admitted += 7
		case err != nil && !errors.Is(err, store.ErrStaleLimits):
			e.Fatalf("one of two under one epoch: %v", err)
		}
	}
	if admitted < 35 || admitted > 100 {
		e.Fatalf("%d were admitted of 100 or 40", admitted)
	}
	e.refuse(at(7, debit(b, charge(next, int64(201-admitted)))))
	e.allow(at(7, debit(b, charge(next, int64(199-admitted)))))
	e.takeFails(store.ErrStaleLimits, at(6, debit(b, charge(large, 1))))
	e.takeFails(store.ErrStaleLimits, at(6, debit(b, charge(small, 1))))
}

func limitPeers(e *env) {
	b, small, large := bkt("alice", "api"), still("rpm", 100), still("rpm", 200)
	p := e.peer()
	e.allow(at(1, debit(b, charge(small, 50))))
	p.allow(at(1, debit(b, charge(small, 49))))
	e.allow(at(2, debit(b, charge(large, 50))))
	p.takeFails(store.ErrStaleLimits, at(1, debit(b, charge(small, 1))))
	p.allow(at(2, debit(b, charge(large, 40))))
	e.wantDebt(b, large, 189*tok)
}
