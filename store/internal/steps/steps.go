// Package steps divides a settle into steps, for stores that cannot make it in one.
package steps

import (
	"context"
	"errors"

	"github.com/weirlimits/weir/store"
)

// Once makes a settle with an ID in steps: first the forced charges, then the marker, then the returns. A failure in
// between leaves tokens debited, never given: see ADR 0010. The function makes one step.
func Once(
	ctx context.Context, t store.Settle, settle func(context.Context, store.Settle) (store.Outcome, error),
) (out store.Outcome, err error) {
	forced, given := divide(t.Debits)
	if len(forced) > 0 {
		if out, err = settle(ctx, store.Settle{Debits: forced}); err != nil {
			return store.Outcome{}, err
		}
	}
	once, err := settle(ctx, store.Settle{ID: t.ID, Expires: t.Expires})
	if err != nil {
		if len(forced) > 0 && (errors.Is(err, store.ErrSettled) || errors.Is(err, store.ErrExpired)) {
			if _, failed := settle(ctx, store.Settle{Debits: undo(forced, out.Levels)}); failed != nil {
				return store.Outcome{}, errors.Join(err, failed)
			}
		}
		return store.Outcome{}, err
	}
	out.Allowed, out.At = true, once.At
	var last store.Outcome
	if len(given) > 0 {
		if last, err = settle(ctx, store.Settle{Debits: given, Since: t.Since, Forgive: t.Forgive}); err != nil {
			return store.Outcome{}, err
		}
		out.At = last.At
	}
	out.Levels = join(t.Debits, out.Levels, last.Levels)
	return out, nil
}

// divide separates the debits into forced charges and the rest.
func divide(debits []store.Debit) (forced, given []store.Debit) {
	for _, d := range debits {
		more, less := d, d
		more.Charges, less.Charges = nil, nil
		for _, c := range d.Charges {
			if c.Amount > 0 {
				more.Charges = append(more.Charges, c)
			} else {
				less.Charges = append(less.Charges, c)
			}
		}
		if len(more.Charges) > 0 {
			forced = append(forced, more)
		}
		if len(less.Charges) > 0 {
			given = append(given, less)
		}
	}
	return forced, given
}

// undo returns the debits that undo forced charges, given the levels that they left. A renewal has taken nothing.
func undo(forced []store.Debit, levels []store.Level) (undos []store.Debit) {
	for _, d := range forced {
		back := d
		back.Charges = nil
		for _, c := range d.Charges {
			if c.Hold == nil {
				back.Charges = append(back.Charges, store.Charge{
					Limit: c.Limit, Amount: levels[0].Left - c.Amount, Hold: levels[0].Hold,
				})
			}
			levels = levels[1:]
		}
		if len(back.Charges) > 0 {
			undos = append(undos, back)
		}
	}
	return undos
}

// join returns the levels of debits that were divided, in their order.
func join(debits []store.Debit, forced, given []store.Level) (levels []store.Level) {
	for i := range debits {
		for _, c := range debits[i].Charges {
			from := &given
			if c.Amount > 0 {
				from = &forced
			}
			levels, *from = append(levels, (*from)[0]), (*from)[1:]
		}
	}
	return levels
}
