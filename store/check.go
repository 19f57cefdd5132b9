package store

import "fmt"

// invalid returns an ErrInvalid that describes what is wrong with a call.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// Check reports mistakes in a take that no store may act on, for drivers. Errors: [ErrInvalid], [ErrDuplicateBucket],
// [ErrTooManyOverrides], [*BoundError].
func (t *Take) Check() error {
	if len(t.Debits) == 0 {
		return invalid("a take without debits")
	}
	if err := t.CheckSize(); err != nil {
		return err
	}
	if err := checkBuckets(t.Debits); err != nil {
		return err
	}
	for i := range t.Debits {
		bucket, charges := t.Debits[i].Bucket, t.Debits[i].Charges
		if len(charges) == 0 {
			return invalid("a debit without charges on %s", bucket)
		}
		for j := range charges {
			c := &charges[j]
			if c.Limit == nil || c.Amount < 0 || c.Force && c.Shadow || c.Hold != nil {
				return invalid(
					"a charge on %s in a take is negative, has no limit or a hold, or is both forced and shadow",
					bucket,
				)
			}
			for _, o := range charges[:j] {
				if o.Limit.Name == c.Limit.Name && o.Limit.Override == c.Limit.Override &&
					(!c.Limit.Override || *o.Limit == *c.Limit) {
					return invalid("limit %q appears twice in one debit of %s", c.Limit.Name, bucket)
				}
			}
		}
	}
	return nil
}

// Check reports mistakes in a settle that no store may act on, for drivers. Errors: [ErrInvalid], [ErrDuplicateBucket],
// [*BoundError].
func (t *Settle) Check() error {
	if len(t.Debits) == 0 && t.ID == "" || t.ID != "" && t.Expires.IsZero() {
		return invalid("a settle without debits or an ID, or with an ID but no expiry")
	}
	if err := t.CheckSize(); err != nil {
		return err
	}
	if err := checkBuckets(t.Debits); err != nil {
		return err
	}
	for i := range t.Debits {
		for j := range t.Debits[i].Charges {
			c := &t.Debits[i].Charges[j]
			if c.Limit == nil || c.Force || c.Shadow || c.Amount == -1<<63 || t.Forgive && c.Amount >= 0 ||
				c.Hold != nil && !c.Limit.IsSlots() {
				return invalid(
					"a charge on %s in a settle is forced, shadow or too negative, has no limit or a hold of another "+
						"kind, or forgives nothing", t.Debits[i].Bucket,
				)
			}
		}
	}
	return nil
}

// few is how many buckets are compared with each other faster than by an index.
const few = 32

func checkBuckets(debits []Debit) error {
	var index map[Bucket]bool
	if len(debits) > few {
		index = make(map[Bucket]bool, len(debits))
	}
	for i := range debits {
		b := debits[i].Bucket
		if b.Namespace == "" || b.Entity == "" || b.Resource == "" {
			return invalid("bucket %s has an empty part", b)
		}
		if index != nil {
			if index[b] {
				return ErrDuplicateBucket
			}
			index[b] = true
			continue
		}
		for j := range i {
			if debits[j].Bucket == b {
				return ErrDuplicateBucket
			}
		}
	}
	return nil
}
