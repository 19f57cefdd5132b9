package store

import "fmt"

// Bounds of one call. Every store takes a call up to them, however it writes; a larger one is an error before anything
// is written.
const (
	// MaxLimits is the maximum number of limits of its own that a bucket has.
	MaxLimits = 64
	// MaxOverrides is the maximum number of overriding limits that are not full in a bucket at a time.
	MaxOverrides = 16
	// MaxFormer is the maximum number of limits that a bucket holds although they are no longer in force. If there are
	// more, those that are full are forgotten, and all counters of the bucket start again under another ID. If more
	// than these still owe, the bucket's limits cannot change, which is a [*BoundError]. A bucket can always be sealed.
	MaxFormer = 64
	// MaxCharges is the maximum number of charges in one take or settle.
	MaxCharges = 4096
	// MaxID is the maximum length in bytes of a part of a bucket, of a limit's name, and of a settle's ID.
	MaxID = 256

	// MaxWrites is the maximum number of writes in one Commit: those of one DynamoDB transaction, less the epochs.
	MaxWrites = 96
	// MaxValue is the maximum size of a record's value in bytes.
	MaxValue = 256 << 10
	// MaxCommit is the maximum size in bytes of the values of one Commit together: DynamoDB's 4 MB, less the keys.
	MaxCommit = 3 << 20
)

// BoundError reports a call that is larger than a store takes. Nothing was written, and the same call never succeeds.
// It matches [ErrInvalid].
type BoundError struct {
	Bound     string // what is bounded, such as "writes in one commit"
	Max, Have int
}

// Error names the bound, its value and the call's.
func (e *BoundError) Error() string {
	return fmt.Sprintf("%d %s, at most %d are allowed", e.Have, e.Bound, e.Max)
}

// Is reports whether target is [ErrInvalid].
func (e *BoundError) Is(target error) bool { return target == ErrInvalid }

// TooManyFormer returns the error for a bucket whose limits cannot change, for drivers.
func TooManyFormer(have int) error {
	return &BoundError{Bound: "limits that are no longer in force and still owe", Max: MaxFormer, Have: have}
}

// within returns a BoundError if there is more of something than allowed.
func within(bound string, have, most int) error {
	if have > most {
		return &BoundError{Bound: bound, Max: most, Have: have}
	}
	return nil
}

// CheckSize returns an error if the take exceeds the bounds. Errors: [*BoundError], [ErrTooManyOverrides].
func (t *Take) CheckSize() error {
	for i := range t.Debits {
		overrides := 0
		for j := range t.Debits[i].Charges {
			if l := t.Debits[i].Charges[j].Limit; l != nil && l.Override {
				overrides++
			}
		}
		if overrides > MaxOverrides {
			return ErrTooManyOverrides
		}
		if err := within("limits of one bucket", len(t.Debits[i].Charges)-overrides, MaxLimits); err != nil {
			return err
		}
	}
	return checkSize(t.Debits)
}

// CheckSize returns a [*BoundError] if the settle exceeds the bounds.
func (t *Settle) CheckSize() error {
	if err := within("bytes in the ID of a settle", len(t.ID), MaxID); err != nil {
		return err
	}
	return checkSize(t.Debits)
}

func checkSize(debits []Debit) error {
	charges := 0
	for i := range debits {
		d := &debits[i]
		charges += len(d.Charges)
		for _, part := range [...]string{d.Bucket.Namespace, d.Bucket.Entity, d.Bucket.Resource} {
			if len(part) > MaxID {
				return within("bytes in a part of a bucket's key", len(part), MaxID)
			}
		}
		if len(d.Charges) > MaxLimits+MaxOverrides {
			return within("limits in one debit", len(d.Charges), MaxLimits+MaxOverrides)
		}
		for j := range d.Charges {
			if l := d.Charges[j].Limit; l != nil && len(l.Name) > MaxID {
				return within("bytes in the name of a limit", len(l.Name), MaxID)
			}
		}
	}
	return within("charges in one take or settle", charges, MaxCharges)
}

// CheckWrites reports a commit that exceeds the bounds, for drivers. Errors: [*BoundError], [ErrInvalid].
func CheckWrites(writes []Write) error {
	if len(writes) == 0 {
		return invalid("a commit without writes")
	}
	size := 0
	for i := range writes {
		n := len(writes[i].Record.Value)
		if err := within("bytes in a record", n, MaxValue); err != nil {
			return err
		}
		size += n
	}
	if err := within("writes in one commit", len(writes), MaxWrites); err != nil {
		return err
	}
	return within("bytes in one commit", size, MaxCommit)
}
