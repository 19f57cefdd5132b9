package buckets

import (
	"errors"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

func limitScenarios() []Scenario {
	hand := Caps{HandClock: true}
	return []Scenario{
		{Name: "raised", Run: OnStore(limitRaised)},
		{Name: "lowered", Run: OnStore(limitLowered)},
		{Name: "lowered by a take that it refuses", Need: hand, Run: OnStore(limitLoweredRefused)},
		{Name: "changed beside a refusal", Need: hand, Run: OnStore(limitBesideRefusal)},
		{Name: "other rate", Need: hand, Run: OnStore(limitRate)},
		{Name: "added", Run: OnStore(limitAdded)},
		{Name: "removed", Run: OnStore(limitRemoved)},
		{Name: "removed and added again", Run: OnStore(limitReadded)},
		{Name: "removed and added again otherwise", Need: hand, Run: OnStore(limitReaddedOther)},
		{Name: "reordered", Run: OnStore(limitReordered)},
		{Name: "stale", Run: OnStore(limitStale)},
		{Name: "stale beside others", Run: OnStore(limitStaleOthers)},
		{Name: "older but the same", Run: OnStore(limitOlderSame)},
		{Name: "two of one epoch", Run: OnStore(limitOneEpoch)},
		{Name: "by other clients", Peer: true, Run: OnStore(limitPeers)},
		{Name: "sealed", Run: OnStore(func(e *Env) { limitSealed(e, e) })},
		{Name: "sealed by another client", Peer: true, Run: OnStore(func(e *Env) { limitSealed(e, e.Peer()) })},
	}
}

// limitSealed checks that a sealed bucket admits nothing, whatever a client remembers of it, and keeps what it owes.
func limitSealed(e, by *Env) {
	b, other, rpm := Bucket("alice", "api"), Bucket("bob", "api"), Still("rpm", 10)
	e.Allow(At(1, Debit(b, Charge(rpm, 7))))
	if _, err := by.Store.Take(e.Context(), store.Seal(b)); err != nil {
		e.Fatalf("seal: %v", err)
	}
	for _, of := range []*Env{e, by, e} {
		of.TakeFails(store.ErrStaleLimits, At(1, Debit(b, Charge(rpm, 1))))
		of.TakeFails(store.ErrStaleLimits, At(1<<31, Debit(b, Charge(rpm, 0))))
		of.TakeFails(store.ErrStaleLimits, At(1, Debit(other, Charge(rpm, 1))), At(1, Debit(b, Charge(rpm, 1))))
	}
	e.WantTokens(other, rpm, 10)
	st, _ := e.State(b)
	if !st.Sealed() {
		e.Fatalf("%+v is not sealed", st)
	}
	e.WantDebt(b, rpm, 7*Token)
	if _, err := by.Store.Take(e.Context(), store.Seal(b)); err != nil {
		e.Fatalf("seal again: %v", err)
	}
	e.Settle(At(1, Debit(b, Charge(rpm, -2))))
	e.WantDebt(b, rpm, 5*Token)
	e.Forget(b)
	e.Allow(At(1, Debit(b, Charge(rpm, 10))))
}

func limitRaised(e *Env) {
	b, small, large := Bucket("alice", "api"), Still("rpm", 100), Still("rpm", 250)
	e.Allow(At(1, Debit(b, Charge(small, 100))))
	e.Refuse(At(1, Debit(b, Charge(small, 1))))
	out := e.Allow(At(2, Debit(b, Charge(large, 149)))) // at once; 150 may be a millitoken too much
	if l := out.Levels[0].Limit; *l != *large {
		e.Fatalf("the level is of %+v, want %+v", *l, *large)
	}
	e.WantDebt(b, large, 249*Token)
	e.Refuse(At(2, Debit(b, Charge(large, 2))))
	if st, _ := e.State(b); st.Epoch != 2 {
		e.Fatalf("epoch %d, want 2", st.Epoch)
	}
}

func limitLowered(e *Env) {
	b, large, small := Bucket("alice", "api"), Still("rpm", 200), Still("rpm", 100)
	e.Allow(At(1, Debit(b, Charge(large, 150))))
	out := e.Refuse(At(2, Debit(b, Charge(small, 0)))) // never forgiven
	if l := out.Levels[0]; *l.Limit != *small || !l.Refused || reckon.Room(l.Limit, l.Level, out.At) > -50*Token {
		e.Fatalf("150 of 100 are spent: %s", Show(out))
	}
	e.Settle(At(2, Debit(b, Charge(small, -60))))
	e.WantDebt(b, small, 90*Token)
	e.Allow(At(2, Debit(b, Charge(small, 9))))
	e.Refuse(At(2, Debit(b, Charge(small, 2))))
}

// limitLoweredRefused checks that a bucket adopts newer limits even if they refuse the take, and drains at their rate.
func limitLoweredRefused(e *Env) {
	b, large, small := Bucket("alice", "api"), PerMinute("rpm", 6000), PerMinute("rpm", 60)
	e.Allow(At(1, Debit(b, Charge(large, 6000))))
	e.Refuse(At(2, Debit(b, Charge(small, 1))))
	e.Clock.Advance(time.Minute) // at the old rate it would be full again
	e.Refuse(At(2, Debit(b, Charge(small, 1))))
	e.WantDebt(b, small, 5940*Token)
	e.TakeFails(store.ErrStaleLimits, At(1, Debit(b, Charge(large, 1))))
}

// limitBesideRefusal checks that a take which another bucket refuses shows a bucket whose limits have changed by the
// new ones, whether the store asks that bucket or not.
func limitBesideRefusal(e *Env) {
	child, parent, full := Bucket("alice", "api"), Bucket("team", "api"), Still("rpm", 10)
	for i, l := range []*store.Limit{PerMinute("rpm", 6000), PerMinute("rpm", 60), PerMinute("rpm", 600_000)} {
		next, epoch := PerMinute("rpm", 1000+int64(i)), uint64(2*i+1)
		e.Allow(At(epoch, Debit(child, Charge(l, 10))))
		e.Forget(parent)
		e.Allow(At(epoch, Debit(parent, Charge(full, 10))))
		out := e.Refuse(At(epoch+1, Debit(child, Charge(next, 20))), At(epoch+1, Debit(parent, Charge(full, 1))))
		owed := reckon.Outstanding(next, out.Levels[0].Level, out.At)
		want := int64(i+1) * 10 * Token
		if owed < want || owed > want+int64(2*i+1) || out.Levels[0].Refused {
			e.Fatalf("%d millitokens outstanding, want %d: %s", owed, want, Show(out))
		}
		e.WantLevels(out, Level(next, next.Burst-owed, false), Level(full, 0, true))
	}
}

func limitRate(e *Env) {
	b, slow := Bucket("alice", "api"), PerMinute("rpm", 60)
	fast := &store.Limit{Name: "rpm", Amount: 120 * Token, Period: 7 * time.Second, Burst: 60 * Token}
	e.Allow(At(1, Debit(b, Charge(slow, 60))))
	e.Clock.Advance(10 * time.Second)
	e.Allow(At(2, Debit(b, Charge(fast, 9))))
	e.WantDebt(b, fast, 59*Token)
	e.Clock.Advance(7 * time.Second / 120 * 30)
	e.WantDebt(b, fast, 29*Token)
	e.Allow(At(3, Debit(b, Charge(slow, 30))))
	e.WantDebt(b, slow, 59*Token)
	e.Clock.Advance(10 * time.Second)
	e.WantDebt(b, slow, 49*Token)
}

func limitAdded(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	e.Allow(At(1, Debit(b, Charge(rpm, 6))))
	e.Refuse(At(2, Debit(b, Charge(rpm, 5), Charge(tpm, 10))))
	e.Refuse(At(2, Debit(b, Charge(rpm, 1), Charge(tpm, 1001))))
	e.Allow(At(2, Debit(b, Charge(rpm, 1), Charge(tpm, 1000))))
	e.WantTokens(b, rpm, 3)
	e.WantTokens(b, tpm, 0)
	e.TakeFails(store.ErrStaleLimits, At(1, Debit(b, Charge(rpm, 1))))
}

func limitRemoved(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	e.Allow(At(1, Debit(b, Charge(rpm, 1), Force(tpm, 1500))))
	e.Refuse(At(1, Debit(b, Charge(rpm, 1), Charge(tpm, 0))))
	out := e.Allow(At(2, Debit(b, Charge(rpm, 1)))) // tpm no longer applies
	e.WantLevels(out, Level(rpm, 8*Token, false))
	e.TakeFails(store.ErrStaleLimits, At(1, Debit(b, Charge(rpm, 1), Charge(tpm, 0))))
	e.WantTokens(b, rpm, 8)
}

// limitReadded checks that what was outstanding when a limit was removed still is when the limit comes back.
func limitReadded(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	e.Allow(At(1, Debit(b, Charge(rpm, 1), Force(tpm, 1500))))
	for i := range uint64(3) {
		e.Allow(At(2+2*i, Debit(b, Charge(rpm, 1))))
		out := e.Refuse(At(3+2*i, Debit(b, Charge(rpm, 1), Charge(tpm, 0))))
		e.WantLevels(out, Level(rpm, int64(8-i)*Token, false), Level(tpm, -500*Token, true))
	}
	e.Settle(At(7, Debit(b, Charge(tpm, -600))))
	e.Allow(At(7, Debit(b, Charge(rpm, 1), Charge(tpm, 100))))
}

// limitReaddedOther checks that a removed limit drains at its old rate in the meantime.
func limitReaddedOther(e *Env) {
	b, rpm, slow, fast := Bucket("alice", "api"), Still("rpm", 10), PerMinute("tpm", 600), PerMinute("tpm", 6000)
	e.Allow(At(1, Debit(b, Charge(rpm, 1), Charge(slow, 600))))
	e.Allow(At(2, Debit(b, Charge(rpm, 1))))
	e.Clock.Advance(30 * time.Second)
	e.Allow(At(3, Debit(b, Charge(rpm, 1), Charge(fast, 5000))))
	e.WantDebt(b, fast, 5300*Token)
}

// limitReordered checks that limits are identified by name, not by position.
func limitReordered(e *Env) {
	b, x, y, z := Bucket("alice", "api"), Still("x", 10), Still("y", 20), Still("z", 30)
	e.Allow(At(1, Debit(b, Charge(x, 1), Charge(y, 2))))
	e.Allow(At(2, Debit(b, Charge(z, 3), Charge(y, 2), Charge(x, 1))))
	e.Allow(At(3, Debit(b, Charge(y, 2), Charge(z, 3))))
	e.Allow(At(4, Debit(b, Charge(y, 2), Charge(x, 1), Charge(z, 3))))
	e.WantTokens(b, x, 7)
	e.WantTokens(b, y, 12)
	e.WantTokens(b, z, 21)
}

func limitStale(e *Env) {
	b, l := Bucket("alice", "api"), [3]*store.Limit{Still("rpm", 100), Still("rpm", 50), Still("rpm", 200)}
	e.Allow(At(7, Debit(b, Charge(l[0], 10))))
	e.TakeFails(store.ErrStaleLimits, At(6, Debit(b, Charge(l[1], 1))))
	e.TakeFails(store.ErrStaleLimits, At(0, Debit(b, Charge(l[1], 1))))
	e.TakeFails(store.ErrStaleLimits, At(6, Debit(b, Force(l[2], 1))))
	e.WantDebt(b, l[0], 10*Token)
	e.Allow(At(9, Debit(b, Charge(l[2], 0))))
	e.TakeFails(store.ErrStaleLimits, At(8, Debit(b, Charge(l[0], 1))))
	e.WantDebt(b, l[2], 10*Token)
	if st, _ := e.State(b); st.Epoch != 9 {
		e.Fatalf("epoch %d, want 9", st.Epoch)
	}
}

// limitStaleOthers checks that one stale debit fails the take, and that nothing is debited anywhere.
func limitStaleOthers(e *Env) {
	small, large := Still("rpm", 10), Still("rpm", 20)
	a, b, c := Bucket("alice", "api"), Bucket("bob", "api"), Bucket("carol", "api")
	e.Allow(At(2, Debit(b, Charge(large, 1))))
	e.TakeFails(store.ErrStaleLimits,
		At(1, Debit(a, Charge(small, 1))), At(1, Debit(b, Charge(small, 1))), At(1, Debit(c, Force(small, 1))))
	e.WantTokens(a, small, 10)
	e.WantDebt(b, large, 1*Token)
	e.WantTokens(c, small, 10)
}

func limitOlderSame(e *Env) {
	b := Bucket("alice", "api")
	e.Allow(At(9, Debit(b, Charge(Still("rpm", 10), 3), Charge(Still("tpm", 10), 3))))
	e.Allow(At(3, Debit(b, Charge(Still("rpm", 10), 3), Charge(Still("tpm", 10), 3))))
	e.Allow(At(3, Debit(b, Charge(Still("tpm", 10), 1), Charge(Still("rpm", 10), 1))))
	e.WantTokens(b, Still("rpm", 10), 3)
	if st, _ := e.State(b); st.Epoch != 9 {
		e.Fatalf("epoch %d, want 9", st.Epoch)
	}
}

// limitOneEpoch covers two sets of limits under one epoch, which can occur if limits are combined from two sources. A
// driver may use either; however they alternate, it admits no more than the larger allows, and the next epoch ends it.
func limitOneEpoch(e *Env) {
	b, large, small, next := Bucket("alice", "api"), Still("rpm", 100), Still("rpm", 40), Still("rpm", 200)
	admitted := 0
	for i := range 40 {
		l := []*store.Limit{large, small, small}[i%3]
		switch out, err := e.Store.Take(e.Context(), store.Take{
			Debits: []store.Debit{At(6, Debit(b, Charge(l, 7)))},
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
	e.Refuse(At(7, Debit(b, Charge(next, int64(201-admitted)))))
	e.Allow(At(7, Debit(b, Charge(next, int64(199-admitted)))))
	e.TakeFails(store.ErrStaleLimits, At(6, Debit(b, Charge(large, 1))))
	e.TakeFails(store.ErrStaleLimits, At(6, Debit(b, Charge(small, 1))))
}

func limitPeers(e *Env) {
	b, small, large := Bucket("alice", "api"), Still("rpm", 100), Still("rpm", 200)
	p := e.Peer()
	e.Allow(At(1, Debit(b, Charge(small, 50))))
	p.Allow(At(1, Debit(b, Charge(small, 49))))
	e.Allow(At(2, Debit(b, Charge(large, 50))))
	p.TakeFails(store.ErrStaleLimits, At(1, Debit(b, Charge(small, 1))))
	p.Allow(At(2, Debit(b, Charge(large, 40))))
	e.WantDebt(b, large, 189*Token)
}
