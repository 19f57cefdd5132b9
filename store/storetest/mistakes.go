package storetest

import (
	"math"
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

func mistakeScenarios() []scenario {
	return []scenario{
		{name: "a bucket twice", run: each(mistakeTwice)},
		{name: "negative amounts", run: each(mistakeNegative)},
		{name: "forced past the largest level", run: each(mistakeOverflow)},
		{name: "settled past the largest level", run: each(mistakeSettleOverflow)},
		{name: "amounts at the edge of int64", run: each(mistakeHuge)},
	}
}

func mistakeTwice(e *env) {
	a, b, l := bkt("alice", "api"), bkt("bob", "api"), still("rpm", 10)
	e.takeFails(store.ErrDuplicateBucket, debit(a, charge(l, 1)), debit(a, charge(l, 1)))
	e.takeFails(store.ErrDuplicateBucket, debit(a, charge(l, 1)), debit(b, charge(l, 1)), debit(a, charge(l, 1)))
	twice := []store.Debit{debit(a, charge(l, 1)), debit(b, charge(l, 1)), debit(a, charge(l, 1))}
	e.settleFails(store.ErrDuplicateBucket, store.Settle{Debits: twice})

	// The same with buckets that exist.
	for i := range twice {
		e.allow(twice[i])
	}
	e.takeFails(store.ErrDuplicateBucket, twice...)
	slices.Reverse(twice)
	e.takeFails(store.ErrDuplicateBucket, twice...)
	e.settleFails(store.ErrDuplicateBucket, store.Settle{Debits: twice})
	e.wantTokens(a, l, 8)
	e.wantTokens(b, l, 9)
}

func mistakeNegative(e *env) {
	a, b, l, m := bkt("alice", "api"), bkt("bob", "api"), still("rpm", 10), still("tpm", 10)
	for _, amount := range []int64{-1, -tok, math.MinInt64} {
		bad := store.Charge{Limit: l, Amount: amount}
		e.takeFails(store.ErrInvalid, debit(a, bad))
		bad.Force = true
		e.takeFails(store.ErrInvalid, debit(a, charge(m, 1), bad))
		e.takeFails(store.ErrInvalid, debit(b, charge(l, 1)), debit(a, bad))
	}
	e.wantTokens(a, l, 10)
	e.wantTokens(a, m, 10)
	e.wantTokens(b, l, 10)
}

func mistakeOverflow(e *env) {
	a, b, l, m := bkt("alice", "api"), bkt("bob", "api"), still("rpm", 10), still("tpm", 10)
	edge := store.Charge{Limit: l, Amount: clock.MaxLevel, Force: true}
	e.takeFails(store.ErrOverflow, debit(a, edge))
	e.takeFails(store.ErrOverflow, debit(a, charge(m, 1), edge))
	e.takeFails(store.ErrOverflow, debit(b, charge(l, 1)), debit(a, edge))
	e.takeFails(store.ErrOverflow, debit(b, edge), debit(a, charge(l, 1)))
	for _, b := range []store.Bucket{a, b} {
		e.wantTokens(b, l, 10)
		e.wantTokens(b, m, 10)
	}

	// Up to the edge it succeeds: the clock is a few millitokens above zero.
	edge.Amount -= 1000
	e.allow(debit(a, edge))
	e.wantRoom(a, l, l.Burst-edge.Amount)
	e.takeFails(store.ErrOverflow, debit(a, store.Charge{Limit: l, Amount: 1000, Force: true}))
	e.wantRoom(a, l, l.Burst-edge.Amount)
	e.refuse(debit(a, charge(l, 0)))
}

func mistakeSettleOverflow(e *env) {
	a, b, l := bkt("alice", "api"), bkt("bob", "api"), still("rpm", 10)
	edge := store.Charge{Limit: l, Amount: clock.MaxLevel}
	e.settleFails(store.ErrOverflow, store.Settle{Debits: []store.Debit{debit(a, edge)}})
	if e.h.Caps.AtomicTake {
		e.settleFails(store.ErrOverflow, store.Settle{Debits: []store.Debit{debit(b, charge(l, 1)), debit(a, edge)}})
	}
	e.wantTokens(a, l, 10)
	e.wantTokens(b, l, 10)
}

// mistakeHuge checks that no amount wraps around.
func mistakeHuge(e *env) {
	a, l := bkt("alice", "api"), still("rpm", 10)
	huge := store.Charge{Limit: l, Amount: math.MaxInt64}
	e.refuse(debit(a, huge))
	e.allow(debit(a, charge(l, 10)))
	e.refuse(debit(a, huge))
	huge.Force = true
	e.takeFails(store.ErrOverflow, debit(a, huge))
	huge.Force = false
	e.settleFails(store.ErrOverflow, store.Settle{Debits: []store.Debit{debit(a, huge)}})
	e.wantTokens(a, l, 0)
}
