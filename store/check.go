package store

import "fmt"

// invalid returns an ErrInvalid that describes what is wrong with a call.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// Check reports mistakes in a take that no store may act on, for drivers. Errors: [ErrInvalid], [ErrDuplicateBucket].
func (t *Take) Check() error {
	if len(t.Debits) == 0 {
		return invalid("a take without debits")
	}
	for i := range t.Debits {
		if err := checkBucket(t.Debits, i); err != nil {
			return err
		}
		bucket, charges := t.Debits[i].Bucket, t.Debits[i].Charges
		if len(charges) == 0 {
			return invalid("a debit without charges on %s", bucket)
		}
		for j := range charges {
			c := &charges[j]
			if c.Limit == nil || c.Amount < 0 || c.Force && c.Shadow {
				return invalid(
					"a charge on %s in a take is negative, has no limit, or is both forced and shadow", bucket,
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

// Check reports mistakes in a settle that no store may act on, for drivers. Errors: [ErrInvalid], [ErrDuplicateBucket].
func (t *Settle) Check() error {
	if len(t.Debits) == 0 && t.ID == "" || t.ID != "" && t.Expires.IsZero() {
		return invalid("a settle without debits or an ID, or with an ID but no expiry")
	}
	for i := range t.Debits {
		if err := checkBucket(t.Debits, i); err != nil {
			return err
		}
		for j := range t.Debits[i].Charges {
			if c := &t.Debits[i].Charges[j]; c.Limit == nil || c.Force || c.Shadow || c.Amount == -1<<63 {
				return invalid(
					"a charge on %s in a settle is forced, shadow or too negative, or has no limit", t.Debits[i].Bucket,
				)
			}
		}
	}
	return nil
}

func checkBucket(debits []Debit, i int) error {
	b := debits[i].Bucket
	if b.Namespace == "" || b.Entity == "" || b.Resource == "" {
		return invalid("bucket %s has an empty part", b)
	}
	for j := range i {
		if debits[j].Bucket == b {
			return ErrDuplicateBucket
		}
	}
	return nil
}
