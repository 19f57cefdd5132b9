package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// Credit is a top-up of a balance.
type Credit struct {
	Bucket Bucket
	Limit  string // the name of the balance
	Amount int64  // millitokens; positive
	// ID is what the credit is known by, such as the number of an invoice: at most [MaxID] bytes. It is scoped to the
	// bucket and the limit, belongs to this amount, and never expires.
	ID string
}

// Credited is a balance after a credit.
type Credited struct {
	At     time.Time
	Level  int64 // of the balance: as many millitokens as it is below 0 can be debited
	Before bool  // the credit was applied before; this call changed nothing
}

// Balance returns a limit that is a balance: what can be debited was credited before.
func Balance(name string) *Limit { return &Limit{Name: name, Burst: clock.Balance.Burst} }

// IsBalance reports whether a limit is a balance.
func (l *Limit) IsBalance() bool { return l.Params().Kind() == clock.Credits }

// ErrNotBalance matches every [*KindError].
var ErrNotBalance = errors.New("not a balance")

// KindError reports that a limit and a balance have the same name in one bucket. Nothing was changed. It matches
// [ErrNotBalance] and [ErrInvalid].
type KindError struct {
	Bucket Bucket
	Limit  string
	// Held is set if the bucket holds a balance that is not 0, which a take would make another kind of limit. Otherwise
	// the bucket still has another kind of limit, which a credit does not change: a take whose limits are newer does.
	Held bool
}

// Error names the bucket, the limit, and what to do.
func (e *KindError) Error() string {
	if e.Held {
		return fmt.Sprintf("%s: %q is a balance that is not 0, and cannot become another kind of limit: "+
			"give the limit another name", e.Bucket, e.Limit)
	}
	return fmt.Sprintf("%s: %q is not a balance", e.Bucket, e.Limit)
}

// Is reports whether target is [ErrNotBalance] or [ErrInvalid].
func (e *KindError) Is(target error) bool { return target == ErrNotBalance || target == ErrInvalid }

// CreditError reports that the ID of a credit belongs to another amount. Nothing was changed. It matches [ErrInvalid].
type CreditError struct {
	ID         string
	Have, Want int64 // millitokens: what was credited with the ID, and what was to be
}

// Error names the ID and the amounts.
func (e *CreditError) Error() string {
	return fmt.Sprintf("credit %q was made with %s tokens, not %s: use another id for another credit",
		e.ID, tokens(e.Have), tokens(e.Want))
}

// Is reports whether target is [ErrInvalid].
func (e *CreditError) Is(target error) bool { return target == ErrInvalid }

func tokens(milli int64) string {
	if milli%1000 == 0 {
		return fmt.Sprint(milli / 1000)
	}
	return fmt.Sprintf("%d.%03d", milli/1000, milli%1000)
}

// Check reports mistakes in a credit that no store may act on, for drivers. Errors: [ErrInvalid], [*BoundError].
func (c *Credit) Check() error {
	switch b := c.Bucket; {
	case b.Namespace == "" || b.Entity == "" || b.Resource == "":
		return invalid("bucket %s has an empty part", b)
	case c.Limit == "" || c.ID == "":
		return invalid("a credit on %s without a limit or an ID", b)
	case c.Amount <= 0 || c.Amount > clock.MaxBurst:
		return invalid("a credit on %s of %d millitokens: must be positive, and at most 1e15 tokens", b, c.Amount)
	}
	if err := within("bytes in the ID of a credit", len(c.ID), MaxID); err != nil {
		return err
	}
	return checkSize([]Debit{{Bucket: c.Bucket, Charges: []Charge{{Limit: &Limit{Name: c.Limit}}}}})
}

// Apply returns the level of a balance after a credit, for drivers, or [ErrOverflow] if more than 1e15 tokens could
// then be debited.
func (c *Credit) Apply(level int64) (int64, error) {
	if level = clock.Credit(level, c.Amount); level < -clock.MaxBurst {
		return 0, ErrOverflow
	}
	return level, nil
}
