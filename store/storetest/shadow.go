package storetest

import (
	"math"
	"sync/atomic"

	"github.com/weirlimits/weir/store"
)

func shadowScenarios() []scenario {
	hand := Caps{HandClock: true}
	all := tells{legs: historyBuckets, force: true, back: true, shadow: true}
	return []scenario{
		{name: "fits", run: each(shadowFits)},
		{name: "does not fit", run: each(shadowLeftOut)},
		{name: "never in debt", run: each(shadowNoDebt)},
		{name: "nothing of a limit in debt", run: each(shadowDebt)},
		{name: "larger than the burst", run: each(shadowHuge)},
		{name: "beside a refusal", run: each(shadowRefused)},
		{name: "several of a bucket", run: each(shadowSeveral)},
		{name: "several buckets", run: each(shadowBuckets)},
		{name: "counters", run: each(shadowCounters)},
		{name: "overrides", run: each(shadowOverrides)},
		{name: "then enforced", run: each(shadowEnforced)},
		{name: "at once", run: each(shadowAtOnce)},
		{name: "mistakes", run: each(shadowMistakes)},
		{name: "as the model says", need: hand, run: property(all, playI2)},
	}
}

func shadow(l *store.Limit, tokens int64) store.Charge {
	return store.Charge{Limit: l, Amount: tokens * tok, Shadow: true}
}

func shadowFits(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	out := e.allow(debit(b, charge(rpm, 1), shadow(tpm, 400)))
	e.wantLevels(out, wantLevel{rpm, 9 * tok, false}, wantLevel{tpm, 600 * tok, false})
	out = e.allow(debit(b, charge(rpm, 1), shadow(tpm, 600)))
	e.wantLevels(out, wantLevel{rpm, 8 * tok, false}, wantLevel{tpm, 0, false})
	e.allow(debit(b, charge(rpm, 1), shadow(tpm, 0)))
	e.wantTokens(b, rpm, 7)
	e.wantTokens(b, tpm, 0)
}

func shadowLeftOut(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	e.allow(debit(b, charge(rpm, 1), shadow(tpm, 999)))
	for i := int64(2); i <= 3; i++ {
		out := e.allow(debit(b, charge(rpm, 1), shadow(tpm, 2)))
		e.wantLevels(out, wantLevel{rpm, (10 - i) * tok, false}, wantLevel{tpm, tok, true})
	}
	out := e.allow(debit(b, charge(rpm, 1), shadow(tpm, 1))) // charges left out have not used it up
	e.wantLevels(out, wantLevel{rpm, 6 * tok, false}, wantLevel{tpm, 0, false})
	out = e.allow(debit(b, shadow(tpm, 1), charge(rpm, 1)))
	e.wantLevels(out, wantLevel{tpm, 0, true}, wantLevel{rpm, 5 * tok, false})
}

// shadowNoDebt checks that the limit owes nothing, however much is left out.
func shadowNoDebt(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	for i := range 20 {
		out := e.allow(debit(b, shadow(l, 3)))
		e.wantLevels(out, wantLevel{l, max(1, 10-3*int64(i+1)) * tok, i >= 3})
	}
	e.wantTokens(b, l, 1)
}

// shadowDebt covers a limit that is in debt for other reasons, and would then refuse 0.
func shadowDebt(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	e.settle(debit(b, store.Charge{Limit: tpm, Amount: 1000*tok + 1}))
	out := e.allow(debit(b, charge(rpm, 1), shadow(tpm, 0)))
	e.wantLevels(out, wantLevel{rpm, 9 * tok, false}, wantLevel{tpm, -1, true})
	e.wantRoom(b, tpm, -1)
}

func shadowHuge(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	for _, amount := range []int64{1000*tok + 1, math.MaxInt64} {
		out := e.allow(debit(b, charge(rpm, 1), store.Charge{Limit: tpm, Amount: amount, Shadow: true}))
		if !out.Levels[1].Refused {
			e.Fatalf("%d millitokens of a burst of 1000 tokens fit: %s", amount, show(out))
		}
	}
	e.wantTokens(b, rpm, 8)
	e.wantTokens(b, tpm, 1000)
}

// shadowRefused checks that a take refused by other charges debits nothing, and that each charge says whether it would
// have fitted.
func shadowRefused(e *env) {
	b, rpm, tpm := bkt("alice", "api"), still("rpm", 10), still("tpm", 1000)
	out := e.refuse(debit(b, charge(rpm, 11), shadow(tpm, 400)))
	e.wantLevels(out, wantLevel{rpm, 10 * tok, true}, wantLevel{tpm, 1000 * tok, false})
	out = e.refuse(debit(b, charge(rpm, 11), shadow(tpm, 1001)))
	e.wantLevels(out, wantLevel{rpm, 10 * tok, true}, wantLevel{tpm, 1000 * tok, true})
	e.wantTokens(b, rpm, 10)
	e.wantTokens(b, tpm, 1000)
}

// shadowSeveral checks that each shadow charge is judged on its own.
func shadowSeveral(e *env) {
	b, x, y, z := bkt("alice", "api"), still("x", 10), still("y", 20), still("z", 30)
	out := e.allow(debit(b, shadow(x, 11), shadow(y, 20), charge(z, 1)))
	e.wantLevels(out, wantLevel{x, 10 * tok, true}, wantLevel{y, 0, false}, wantLevel{z, 29 * tok, false})
	out = e.allow(debit(b, charge(z, 1), shadow(y, 1), shadow(x, 10))) // in another order
	e.wantLevels(out, wantLevel{z, 28 * tok, false}, wantLevel{y, 0, true}, wantLevel{x, 0, false})
	out = e.allow(debit(b, shadow(x, 1), shadow(y, 1), force(z, 40)))
	e.wantLevels(out, wantLevel{x, 0, true}, wantLevel{y, 0, true}, wantLevel{z, -12 * tok, false})
}

func shadowBuckets(e *env) {
	a, b, l := bkt("alice", "api"), bkt("bob", "api"), still("rpm", 10)
	out := e.allow(debit(b, shadow(l, 11)), debit(a, charge(l, 4)))
	e.wantLevels(out, wantLevel{l, 10 * tok, true}, wantLevel{l, 6 * tok, false})
	out = e.allow(debit(b, shadow(l, 8)), debit(a, shadow(l, 7)))
	e.wantLevels(out, wantLevel{l, 2 * tok, false}, wantLevel{l, 6 * tok, true})
	e.refuse(debit(a, charge(l, 7)), debit(b, shadow(l, 1)))
	e.refuse(debit(b, shadow(l, 3)), debit(a, charge(l, 7)))
	e.wantTokens(a, l, 6)
	e.wantTokens(b, l, 2)
	e.allow(debit(a, charge(l, 6)), debit(b, shadow(l, 3)))
	e.wantTokens(a, l, 0)
	e.wantTokens(b, l, 2)
}

// shadowCounters checks that only what was debited counts.
func shadowCounters(e *env) {
	b, c, rpm, tpm := bkt("alice", "api"), bkt("bob", "api"), still("rpm", 10), still("tpm", 100)
	e.allow(debit(b, charge(rpm, 1), shadow(tpm, 60)))
	e.allow(debit(b, charge(rpm, 1), shadow(tpm, 60)))
	e.refuse(debit(b, charge(rpm, 9), shadow(tpm, 1)))
	e.wantCounts(b, rpm, 2*tok, 0)
	e.wantCounts(b, tpm, 60*tok, 0)
	e.allow(debit(c, charge(rpm, 1)), debit(b, charge(rpm, 1), shadow(tpm, 60)))
	e.wantCounts(b, rpm, 3*tok, 0)
	e.wantCounts(b, tpm, 60*tok, 0)
}

func shadowOverrides(e *env) {
	b, own, over := bkt("alice", "api"), still("rpm", 10), override(still("rpm", 3))
	e.allow(at(5, debit(b, charge(own, 10))))
	e.allow(loose(b, shadow(over, 2)))
	out := e.allow(loose(b, shadow(over, 2)))
	e.wantLevels(out, wantLevel{over, 1 * tok, true})
	e.refuse(loose(b, charge(over, 2)))
	e.wantTokens(b, over, 1)
	e.wantTokens(b, own, 0)
}

// shadowEnforced checks that shadow and enforced charges share one state, that of an enforced limit.
func shadowEnforced(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	for range 5 {
		e.allow(debit(b, shadow(l, 4)))
	}
	e.refuse(debit(b, charge(l, 3)))
	e.allow(debit(b, charge(l, 2)))
	out := e.allow(debit(b, shadow(l, 1)))
	e.wantLevels(out, wantLevel{l, 0, true})
}

// shadowAtOnce checks that, of many callers, exactly those without tokens left are left out.
func shadowAtOnce(e *env) {
	const callers, tokens = 50, 17
	b, rpm, tpm := bkt("alice", "api"), still("rpm", callers), still("tpm", tokens)
	var left atomic.Int64
	e.each(callers, func(int) {
		out := e.takeQuietly(debit(b, charge(rpm, 1), shadow(tpm, 1)))
		if !out.Allowed || len(out.Levels) != 2 {
			e.Errorf("a shadow refused: %s", show(out))
		} else if out.Levels[1].Refused {
			left.Add(1)
		}
	})
	if n := left.Load(); n != callers-tokens {
		e.Errorf("%d were told that it did not fit, want %d", n, callers-tokens)
	}
	e.wantTokens(b, rpm, 0)
	e.wantTokens(b, tpm, 0)
	e.wantCounts(b, tpm, tokens*tok, 0)
}

func shadowMistakes(e *env) {
	b, l := bkt("alice", "api"), still("rpm", 10)
	both := shadow(l, 1)
	both.Force = true
	e.takeFails(store.ErrInvalid, debit(b, both))
	e.takeFails(store.ErrInvalid, debit(b, store.Charge{Limit: l, Amount: -1, Shadow: true}))
	for _, amount := range []int64{tok, -tok} {
		e.settleFails(store.ErrInvalid, store.Settle{
			Debits: []store.Debit{debit(b, store.Charge{Limit: l, Amount: amount, Shadow: true})},
		})
	}
	e.wantTokens(b, l, 10)
}
