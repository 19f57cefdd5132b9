package dynamodb

import (
	"fmt"
	"math/bits"

	"github.com/weirlimits/weir/store"
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrInvalid, fmt.Sprintf(format, args...))
}

func checkTake(debits []store.Debit) error {
	if len(debits) == 0 {
		return invalid("a take without debits")
	}
	for i := range debits {
		if err := checkBucket(debits, i); err != nil {
			return err
		}
		if len(debits[i].Charges) == 0 {
			return invalid("a debit without charges on %s", debits[i].Bucket)
		}
		for j := range debits[i].Charges {
			c := &debits[i].Charges[j]
			if c.Limit == nil || c.Amount < 0 || c.Force && c.Shadow {
				return invalid("a charge of a take on %s is negative or of no limit", debits[i].Bucket)
			}
			for _, o := range debits[i].Charges[:j] {
				if o.Limit.Name == c.Limit.Name && (!o.Limit.Override || !c.Limit.Override || *o.Limit == *c.Limit) && o.Limit.Override == c.Limit.Override {
					return invalid("limit %q twice in one debit", c.Limit.Name)
				}
			}
		}
	}
	return nil
}

func checkSettle(t store.Settle) error {
	if len(t.Debits) == 0 && t.ID == "" || t.ID != "" && t.Expires.IsZero() {
		return invalid("a settle of nothing, or one with an ID and without an end")
	}
	for i := range t.Debits {
		if err := checkBucket(t.Debits, i); err != nil {
			return err
		}
		for j := range t.Debits[i].Charges {
			if c := &t.Debits[i].Charges[j]; c.Limit == nil || c.Force || c.Shadow || c.Amount == -1<<63 {
				return invalid("a charge of a settle on %s is forced or of no limit", t.Debits[i].Bucket)
			}
		}
	}
	return nil
}

func checkBucket(debits []store.Debit, i int) error {
	b := debits[i].Bucket
	if b.Namespace == "" || b.Entity == "" || b.Resource == "" {
		return invalid("bucket %s has an empty part", b)
	}
	for j := range i {
		if debits[j].Bucket == b {
			return store.ErrDuplicateBucket
		}
	}
	return nil
}

const minTime = -1 << 63

// mulDiv returns a*b/c rounded down, for 0 <= a <= c.
func mulDiv(a, b, c int64) int64 {
	if c == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}
