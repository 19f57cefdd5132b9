// Package held computes with what decisions debit and leases hold: sums of several requests, changes, and levels.
package held

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Change returns debits of what a lease holds, with other amounts, apart from those of 0.
func Change(held []store.Debit, amount func(entity string, c *store.Charge) int64) (debits []store.Debit) {
	for i := range held {
		var changed []store.Charge
		for j := range held[i].Charges {
			if n := amount(held[i].Bucket.Entity, &held[i].Charges[j]); n != 0 {
				c := held[i].Charges[j]
				c.Amount, c.Shadow = n, false
				changed = append(changed, c)
			}
		}
		if changed != nil {
			debits = append(debits, store.Debit{Bucket: held[i].Bucket, Epoch: held[i].Epoch, Charges: changed})
		}
	}
	return debits
}

// Apply records in what a lease holds what a settle changed: additions only if they are known to be counted, returns
// always.
func Apply(held, debits []store.Debit, counted bool) {
	for _, d := range debits {
		for i := range held {
			if held[i].Bucket != d.Bucket {
				continue
			}
			for _, c := range d.Charges {
				for j := range held[i].Charges {
					if has := &held[i].Charges[j]; has.Limit == c.Limit && (counted || c.Amount < 0) {
						has.Amount += c.Amount
					}
				}
			}
		}
	}
}

// Over is what a lease has used, but settles have left out, by limit and in millitokens.
type Over map[LimitOf]int64

// LimitOf is a limit of an entity of a lease.
type LimitOf struct {
	Entity string
	Limit  *store.Limit
}

// Reduce reduces the amounts of debits by what a settle left out of them, which it keeps, and reports whether that is
// any.
func (o *Over) Reduce(debits []store.Debit, levels []store.Level) (some bool) {
	for i := range debits {
		for j := range debits[i].Charges[:min(len(levels), len(debits[i].Charges))] {
			c := &debits[i].Charges[j]
			c.Amount -= levels[0].Left
			o.Add(debits[i].Bucket.Entity, c.Limit, levels[0].Left)
			some, levels = some || levels[0].Left > 0, levels[1:]
		}
	}
	return some
}

// Add adds an amount.
func (o *Over) Add(entity string, l *store.Limit, amount int64) {
	if *o == nil && amount != 0 {
		*o = make(Over)
	}
	if amount != 0 {
		(*o)[LimitOf{entity, l}] += amount
	}
}

// Correct returns the debits that correct what a lease has used by delta, in tokens of each limit. What is returned is
// first taken from what was not debited. If the lease ends, its slots are returned.
func (o Over) Correct(held []store.Debit, delta map[string]int64, ends bool) ([]store.Debit, error) {
	var bad error
	debits := Change(held, func(entity string, c *store.Charge) int64 {
		n, used := delta[c.Limit.Name]*1000, c.Amount+o[LimitOf{entity, c.Limit}]
		switch {
		case c.Shadow || bad != nil: // left out; see LeaveOut
			return 0
		case c.Limit.IsSlots() && n > 0:
			bad = record.Invalid("tokens."+c.Limit.Name, "is a limit of slots, of which a lease takes no more")
		case c.Limit.IsSlots() && ends:
			return -Returnable(c)
		case c.Limit.IsSlots() && c.Hold == nil:
			return 0
		case used+n < 0:
			bad = record.Invalid("tokens."+c.Limit.Name, "cannot give back %d, the lease holds %d", -n/1000, used/1000)
		case n > 0 && used > clock.MaxLevel-n:
			bad = record.Invalid("tokens."+c.Limit.Name, "would put the amount of the lease out of range")
		}
		return n
	})
	if bad != nil || len(o) == 0 {
		return debits, bad
	}
	return Change(debits, func(entity string, c *store.Charge) int64 {
		had := max(0, min(o[LimitOf{entity, c.Limit}], -c.Amount))
		o.Add(entity, c.Limit, -had)
		return c.Amount + had
	}), nil
}

// Returnable returns how much a lease can give back of a charge: no slots that it has lost.
func Returnable(c *store.Charge) int64 {
	if c.Limit.IsSlots() && c.Hold == nil {
		return 0
	}
	return c.Amount
}

// Taken returns the amount of a charge on slots that a lease has taken after a decision without the store; otherwise 0.
func Taken(_ string, c *store.Charge) int64 {
	if c.Hold == nil {
		return 0
	}
	return c.Amount
}

// ErrSlotLost is [weir.ErrSlotLost].
var ErrSlotLost = errors.New("a slot of the lease was lost, because it could not be renewed in time")

// Renewed records in what a lease holds what a settle renewed, and returns until when all of it counts.
func Renewed(held, renewed []store.Debit, levels []store.Level) (until time.Time, err error) {
	for _, d := range renewed {
		for _, c := range d.Charges {
			if len(levels) == 0 || levels[0].Hold == nil {
				return until, ErrSlotLost
			}
			for i := range held {
				for j := range held[i].Charges {
					if has := &held[i].Charges[j]; held[i].Bucket == d.Bucket && has.Limit == c.Limit {
						has.Hold = levels[0].Hold
					}
				}
			}
			if end := levels[0].Hold.End; until.IsZero() || end.Before(until) {
				until = end
			}
			levels = levels[1:]
		}
	}
	return until, nil
}

// Slots returns how many slots a lease holds, by limit name; nil if it holds none.
func Slots(held []store.Debit) (slots map[string]int64) {
	for i := range held {
		for _, c := range held[i].Charges {
			if !c.Limit.IsSlots() || c.Amount == 0 {
				continue
			}
			if slots == nil {
				slots = make(map[string]int64)
			}
			slots[c.Limit.Name] = max(slots[c.Limit.Name], c.Amount/1000)
		}
	}
	return slots
}

// Requested returns the amounts of debits that were just prepared, in tokens by limit name.
func Requested(debits []store.Debit) map[string]int64 {
	requested := make(map[string]int64)
	for i := range debits {
		for _, c := range debits[i].Charges {
			if c.Amount > 0 {
				requested[c.Limit.Name] = c.Amount / 1000
			}
		}
	}
	return requested
}

// Overrides reports whether the request of a lease brought its own limits.
func Overrides(held []store.Debit) bool {
	return slices.ContainsFunc(held, func(d store.Debit) bool {
		return slices.ContainsFunc(d.Charges, func(c store.Charge) bool { return c.Limit.Override })
	})
}

// LeaveOut removes from what a lease holds what the store left out, according to the levels. What was never taken is
// never given back, and nothing is forced on a limit that would have refused the request: if it were enforced, there
// would be no lease. From here on, a charge in shadow is one that was left out.
func LeaveOut(held []store.Debit, levels []store.Level) {
	for i := range held {
		for j := range held[i].Charges {
			c := &held[i].Charges[j]
			if c.Shadow = c.Shadow && levels[0].Refused; c.Shadow {
				c.Amount = 0
			}
			levels = levels[1:]
		}
	}
}

// ErrMaxDebt is [weir.ErrMaxDebt].
var ErrMaxDebt = errors.New("more debt than the limit takes")

// DebtError is [weir.DebtError].
type DebtError struct {
	Entity, Resource, Limit string
	MaxDebt, Left           int64
}

// Error names the limit, and what was not debited.
func (e *DebtError) Error() string {
	return fmt.Sprintf("%s of %s on %s may be at most %d in debt: %d were not debited",
		e.Limit, e.Entity, store.ResourceText(e.Resource), e.MaxDebt, e.Left)
}

// Is reports whether target is [ErrMaxDebt].
func (e *DebtError) Is(target error) bool { return target == ErrMaxDebt }

// Left returns the error of a settle that left something out: about the charge of which it was most.
func Left(debits []store.Debit, levels []store.Level) error {
	var of DebtError
	most := int64(0)
	for i := range debits {
		for _, c := range debits[i].Charges[:min(len(levels), len(debits[i].Charges))] {
			if left := levels[0].Left; left > most {
				b := &debits[i].Bucket
				of = DebtError{b.Entity, b.Resource, c.Limit.Name, c.MaxDebt / 1000, (left + 999) / 1000}
				most = left
			}
			levels = levels[1:]
		}
	}
	return &of
}

// Peek reads the buckets of debits, and returns the levels of their charges as the next debit will find them, and after
// how long the next slots that are held come back unless they are renewed; 0 if none is held, and for other limits.
func Peek(ctx context.Context, st store.Store, debits []store.Debit) (
	snap store.Snapshot, levels []store.Level, ends []time.Duration, err error,
) {
	buckets := make([]store.Bucket, len(debits))
	for i := range buckets {
		buckets[i] = debits[i].Bucket
	}
	if snap, err = st.Peek(ctx, buckets...); err != nil {
		return store.Snapshot{}, nil, nil, err
	}
	for i := range debits {
		for _, c := range debits[i].Charges {
			levels = append(levels, levelNow(c, &snap.States[i], clock.Nanos(snap.At)))
			ends = append(ends, untilEnd(c.Limit, &snap.States[i], snap.At))
		}
	}
	return snap, levels, ends, nil
}

func untilEnd(l *store.Limit, s *store.State, at time.Time) time.Duration {
	for i := range s.Limits {
		if has := &s.Limits[i]; !has.NextEnd.IsZero() && l.IsSlots() && has.Limit.Name == l.Name {
			return has.NextEnd.Sub(at)
		}
	}
	return 0
}

// levelNow returns a limit's level as the next debit will find it, and whether it would refuse the charge.
func levelNow(c store.Charge, s *store.State, now int64) store.Level {
	p, level := c.Limit.Params(), Level(c.Limit, s, now)
	return store.Level{Limit: c.Limit, Level: level, Refused: !p.Fits(level, p.Clock(now), c.Amount)}
}

// Spent yields each limit's name once, with the tokens that the first bucket that has it was debited.
func Spent(from *[]store.Debit, yield func(string, int64) bool) {
	if from == nil {
		return
	}
	debits := *from
	for i := range debits {
		for _, c := range debits[i].Charges {
			if c.Amount != 0 && !c.Shadow && !charges(debits[:i], c.Limit.Name) && !yield(c.Limit.Name, c.Amount/1000) {
				return
			}
		}
	}
}

// charges reports whether a debit charges a limit of that name.
func charges(debits []store.Debit, limit string) bool {
	for i := range debits {
		for _, c := range debits[i].Charges {
			if c.Limit.Name == limit && c.Amount != 0 {
				return true
			}
		}
	}
	return false
}
