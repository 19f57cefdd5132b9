package buckets

import (
	"math"
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

func mistakeScenarios() []Scenario {
	return []Scenario{
		{Name: "a bucket twice", Run: OnStore(mistakeTwice)},
		{Name: "negative amounts", Run: OnStore(mistakeNegative)},
		{Name: "forced past the largest level", Run: OnStore(mistakeOverflow)},
		{Name: "settled past the largest level", Run: OnStore(mistakeSettleOverflow)},
		{Name: "amounts at the edge of int64", Run: OnStore(mistakeHuge)},
	}
}

func mistakeTwice(e *Env) {
	a, b, l := Bucket("alice", "api"), Bucket("bob", "api"), Still("rpm", 10)
	e.TakeFails(store.ErrDuplicateBucket, Debit(a, Charge(l, 1)), Debit(a, Charge(l, 1)))
	e.TakeFails(store.ErrDuplicateBucket, Debit(a, Charge(l, 1)), Debit(b, Charge(l, 1)), Debit(a, Charge(l, 1)))
	twice := []store.Debit{Debit(a, Charge(l, 1)), Debit(b, Charge(l, 1)), Debit(a, Charge(l, 1))}
	e.SettleFails(store.ErrDuplicateBucket, store.Settle{Debits: twice})

	// The same with buckets that exist.
	for i := range twice {
		e.Allow(twice[i])
	}
	e.TakeFails(store.ErrDuplicateBucket, twice...)
	slices.Reverse(twice)
	e.TakeFails(store.ErrDuplicateBucket, twice...)
	e.SettleFails(store.ErrDuplicateBucket, store.Settle{Debits: twice})
	e.WantTokens(a, l, 8)
	e.WantTokens(b, l, 9)
}

func mistakeNegative(e *Env) {
	a, b, l, m := Bucket("alice", "api"), Bucket("bob", "api"), Still("rpm", 10), Still("tpm", 10)
	for _, amount := range []int64{-1, -Token, math.MinInt64} {
		bad := store.Charge{Limit: l, Amount: amount}
		e.TakeFails(store.ErrInvalid, Debit(a, bad))
		bad.Force = true
		e.TakeFails(store.ErrInvalid, Debit(a, Charge(m, 1), bad))
		e.TakeFails(store.ErrInvalid, Debit(b, Charge(l, 1)), Debit(a, bad))
	}
	e.WantTokens(a, l, 10)
	e.WantTokens(a, m, 10)
	e.WantTokens(b, l, 10)
}

func mistakeOverflow(e *Env) {
	a, b, l, m := Bucket("alice", "api"), Bucket("bob", "api"), Still("rpm", 10), Still("tpm", 10)
	edge := store.Charge{Limit: l, Amount: clock.MaxLevel, Force: true}
	e.TakeFails(store.ErrOverflow, Debit(a, edge))
	e.TakeFails(store.ErrOverflow, Debit(a, Charge(m, 1), edge))
	e.TakeFails(store.ErrOverflow, Debit(b, Charge(l, 1)), Debit(a, edge))
	e.TakeFails(store.ErrOverflow, Debit(b, edge), Debit(a, Charge(l, 1)))
	for _, b := range []store.Bucket{a, b} {
		e.WantTokens(b, l, 10)
		e.WantTokens(b, m, 10)
	}

	// Up to the edge it succeeds: the clock is a few millitokens above zero.
	edge.Amount -= 1000
	e.Allow(Debit(a, edge))
	e.WantRoom(a, l, l.Burst-edge.Amount)
	e.TakeFails(store.ErrOverflow, Debit(a, store.Charge{Limit: l, Amount: 1000, Force: true}))
	e.WantRoom(a, l, l.Burst-edge.Amount)
	e.Refuse(Debit(a, Charge(l, 0)))
}

func mistakeSettleOverflow(e *Env) {
	a, b, l := Bucket("alice", "api"), Bucket("bob", "api"), Still("rpm", 10)
	edge := store.Charge{Limit: l, Amount: clock.MaxLevel}
	e.SettleFails(store.ErrOverflow, store.Settle{Debits: []store.Debit{Debit(a, edge)}})
	if e.Harness.Caps.AtomicTake {
		e.SettleFails(store.ErrOverflow, store.Settle{Debits: []store.Debit{Debit(b, Charge(l, 1)), Debit(a, edge)}})
	}
	e.WantTokens(a, l, 10)
	e.WantTokens(b, l, 10)
}

// mistakeHuge checks that no amount wraps around.
func mistakeHuge(e *Env) {
	a, l := Bucket("alice", "api"), Still("rpm", 10)
	huge := store.Charge{Limit: l, Amount: math.MaxInt64}
	e.Refuse(Debit(a, huge))
	e.Allow(Debit(a, Charge(l, 10)))
	e.Refuse(Debit(a, huge))
	huge.Force = true
	e.TakeFails(store.ErrOverflow, Debit(a, huge))
	huge.Force = false
	e.SettleFails(store.ErrOverflow, store.Settle{Debits: []store.Debit{Debit(a, huge)}})
	e.WantTokens(a, l, 0)
}
