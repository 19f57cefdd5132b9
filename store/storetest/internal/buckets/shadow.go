package buckets

import (
	"math"
	"sync/atomic"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

func shadowScenarios() []Scenario {
	return []Scenario{
		{Name: "fits", Run: OnStore(shadowFits)},
		{Name: "does not fit", Run: OnStore(shadowLeftOut)},
		{Name: "never in debt", Run: OnStore(shadowNoDebt)},
		{Name: "nothing of a limit in debt", Run: OnStore(shadowDebt)},
		{Name: "larger than the burst", Run: OnStore(shadowHuge)},
		{Name: "beside a refusal", Run: OnStore(shadowRefused)},
		{Name: "several of a bucket", Run: OnStore(shadowSeveral)},
		{Name: "several buckets", Run: OnStore(shadowBuckets)},
		{Name: "counters", Run: OnStore(shadowCounters)},
		{Name: "overrides", Run: OnStore(shadowOverrides)},
		{Name: "then enforced", Run: OnStore(shadowEnforced)},
		{Name: "at once", Run: OnStore(shadowAtOnce)},
		{Name: "mistakes", Run: OnStore(shadowMistakes)},
	}
}

func shadowFits(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	out := e.Allow(Debit(b, Charge(rpm, 1), Shadow(tpm, 400)))
	e.WantLevels(out, Level(rpm, 9*Token, false), Level(tpm, 600*Token, false))
	out = e.Allow(Debit(b, Charge(rpm, 1), Shadow(tpm, 600)))
	e.WantLevels(out, Level(rpm, 8*Token, false), Level(tpm, 0, false))
	e.Allow(Debit(b, Charge(rpm, 1), Shadow(tpm, 0)))
	e.WantTokens(b, rpm, 7)
	e.WantTokens(b, tpm, 0)
}

func shadowLeftOut(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	e.Allow(Debit(b, Charge(rpm, 1), Shadow(tpm, 999)))
	for i := int64(2); i <= 3; i++ {
		out := e.Allow(Debit(b, Charge(rpm, 1), Shadow(tpm, 2)))
		e.WantLevels(out, Level(rpm, (10-i)*Token, false), Level(tpm, Token, true))
	}
	out := e.Allow(Debit(b, Charge(rpm, 1), Shadow(tpm, 1))) // charges left out have not used it up
	e.WantLevels(out, Level(rpm, 6*Token, false), Level(tpm, 0, false))
	out = e.Allow(Debit(b, Shadow(tpm, 1), Charge(rpm, 1)))
	e.WantLevels(out, Level(tpm, 0, true), Level(rpm, 5*Token, false))
}

// shadowNoDebt checks that the limit owes nothing, however much is left out.
func shadowNoDebt(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	for i := range 20 {
		out := e.Allow(Debit(b, Shadow(l, 3)))
		e.WantLevels(out, Level(l, max(1, 10-3*int64(i+1))*Token, i >= 3))
	}
	e.WantTokens(b, l, 1)
}

// shadowDebt covers a limit that is in debt for other reasons, and would then refuse 0.
func shadowDebt(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	e.Settle(Debit(b, store.Charge{Limit: tpm, Amount: 1000*Token + 1}))
	out := e.Allow(Debit(b, Charge(rpm, 1), Shadow(tpm, 0)))
	e.WantLevels(out, Level(rpm, 9*Token, false), Level(tpm, -1, true))
	e.WantRoom(b, tpm, -1)
}

func shadowHuge(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	for _, amount := range []int64{1000*Token + 1, math.MaxInt64} {
		out := e.Allow(Debit(b, Charge(rpm, 1), store.Charge{Limit: tpm, Amount: amount, Shadow: true}))
		if !out.Levels[1].Refused {
			e.Fatalf("%d millitokens of a burst of 1000 tokens fit: %s", amount, Show(out))
		}
	}
	e.WantTokens(b, rpm, 8)
	e.WantTokens(b, tpm, 1000)
}

// shadowRefused checks that a take refused by other charges debits nothing, and that each charge reports whether it
// would have fitted.
func shadowRefused(e *Env) {
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", 10), Still("tpm", 1000)
	out := e.Refuse(Debit(b, Charge(rpm, 11), Shadow(tpm, 400)))
	e.WantLevels(out, Level(rpm, 10*Token, true), Level(tpm, 1000*Token, false))
	out = e.Refuse(Debit(b, Charge(rpm, 11), Shadow(tpm, 1001)))
	e.WantLevels(out, Level(rpm, 10*Token, true), Level(tpm, 1000*Token, true))
	e.WantTokens(b, rpm, 10)
	e.WantTokens(b, tpm, 1000)
}

// shadowSeveral checks that each shadow charge is judged on its own.
func shadowSeveral(e *Env) {
	b, x, y, z := Bucket("alice", "api"), Still("x", 10), Still("y", 20), Still("z", 30)
	out := e.Allow(Debit(b, Shadow(x, 11), Shadow(y, 20), Charge(z, 1)))
	e.WantLevels(out, Level(x, 10*Token, true), Level(y, 0, false), Level(z, 29*Token, false))
	out = e.Allow(Debit(b, Charge(z, 1), Shadow(y, 1), Shadow(x, 10))) // in another order
	e.WantLevels(out, Level(z, 28*Token, false), Level(y, 0, true), Level(x, 0, false))
	out = e.Allow(Debit(b, Shadow(x, 1), Shadow(y, 1), Force(z, 40)))
	e.WantLevels(out, Level(x, 0, true), Level(y, 0, true), Level(z, -12*Token, false))
}

func shadowBuckets(e *Env) {
	a, b, l := Bucket("alice", "api"), Bucket("bob", "api"), Still("rpm", 10)
	out := e.Allow(Debit(b, Shadow(l, 11)), Debit(a, Charge(l, 4)))
	e.WantLevels(out, Level(l, 10*Token, true), Level(l, 6*Token, false))
	out = e.Allow(Debit(b, Shadow(l, 8)), Debit(a, Shadow(l, 7)))
	e.WantLevels(out, Level(l, 2*Token, false), Level(l, 6*Token, true))
	e.Refuse(Debit(a, Charge(l, 7)), Debit(b, Shadow(l, 1)))
	e.Refuse(Debit(b, Shadow(l, 3)), Debit(a, Charge(l, 7)))
	e.WantTokens(a, l, 6)
	e.WantTokens(b, l, 2)
	e.Allow(Debit(a, Charge(l, 6)), Debit(b, Shadow(l, 3)))
	e.WantTokens(a, l, 0)
	e.WantTokens(b, l, 2)
}

// shadowCounters checks that only what was debited counts.
func shadowCounters(e *Env) {
	b, c, rpm, tpm := Bucket("alice", "api"), Bucket("bob", "api"), Still("rpm", 10), Still("tpm", 100)
	e.Allow(Debit(b, Charge(rpm, 1), Shadow(tpm, 60)))
	e.Allow(Debit(b, Charge(rpm, 1), Shadow(tpm, 60)))
	e.Refuse(Debit(b, Charge(rpm, 9), Shadow(tpm, 1)))
	e.WantCounts(b, rpm, 2*Token, 0)
	e.WantCounts(b, tpm, 60*Token, 0)
	e.Allow(Debit(c, Charge(rpm, 1)), Debit(b, Charge(rpm, 1), Shadow(tpm, 60)))
	e.WantCounts(b, rpm, 3*Token, 0)
	e.WantCounts(b, tpm, 60*Token, 0)
}

func shadowOverrides(e *Env) {
	b, own, over := Bucket("alice", "api"), Still("rpm", 10), Override(Still("rpm", 3))
	e.Allow(At(5, Debit(b, Charge(own, 10))))
	e.Allow(Loose(b, Shadow(over, 2)))
	out := e.Allow(Loose(b, Shadow(over, 2)))
	e.WantLevels(out, Level(over, 1*Token, true))
	e.Refuse(Loose(b, Charge(over, 2)))
	e.WantTokens(b, over, 1)
	e.WantTokens(b, own, 0)
}

// shadowEnforced checks that shadow and enforced charges share one state, that of an enforced limit.
func shadowEnforced(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	for range 5 {
		e.Allow(Debit(b, Shadow(l, 4)))
	}
	e.Refuse(Debit(b, Charge(l, 3)))
	e.Allow(Debit(b, Charge(l, 2)))
	out := e.Allow(Debit(b, Shadow(l, 1)))
	e.WantLevels(out, Level(l, 0, true))
}

// shadowAtOnce checks that, of many callers, exactly those without tokens left are left out.
func shadowAtOnce(e *Env) {
	const callers, tokens = 50, 17
	b, rpm, tpm := Bucket("alice", "api"), Still("rpm", callers), Still("tpm", tokens)
	var left atomic.Int64
	e.Each(callers, func(int) {
		out := e.TakeQuietly(Debit(b, Charge(rpm, 1), Shadow(tpm, 1)))
		if !out.Allowed || len(out.Levels) != 2 {
			e.Errorf("a shadow refused: %s", Show(out))
		} else if out.Levels[1].Refused {
			left.Add(1)
		}
	})
	if n := left.Load(); n != callers-tokens {
		e.Errorf("%d were told that it did not fit, want %d", n, callers-tokens)
	}
	e.WantTokens(b, rpm, 0)
	e.WantTokens(b, tpm, 0)
	e.WantCounts(b, tpm, tokens*Token, 0)
}

func shadowMistakes(e *Env) {
	b, l := Bucket("alice", "api"), Still("rpm", 10)
	both := Shadow(l, 1)
	both.Force = true
	e.TakeFails(store.ErrInvalid, Debit(b, both))
	e.TakeFails(store.ErrInvalid, Debit(b, store.Charge{Limit: l, Amount: -1, Shadow: true}))
	for _, amount := range []int64{Token, -Token} {
		e.SettleFails(store.ErrInvalid, store.Settle{
			Debits: []store.Debit{Debit(b, store.Charge{Limit: l, Amount: amount, Shadow: true})},
		})
	}
	e.WantTokens(b, l, 10)
}
