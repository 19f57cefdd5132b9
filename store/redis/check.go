package redis

import (
	"fmt"
	"strings"

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
		charges := debits[i].Charges
		if len(charges) == 0 {
			return invalid("a debit without charges on %s", debits[i].Bucket)
		}
		for j := range charges {
			c := &charges[j]
			if c.Limit == nil || c.Amount < 0 || c.Force && c.Shadow {
				return invalid("a charge of a take on %s is negative or of no limit", debits[i].Bucket)
			}
			for _, o := range charges[:j] {
				if o.Limit.Name == c.Limit.Name && o.Limit.Override == c.Limit.Override && (!c.Limit.Override || *o.Limit == *c.Limit) {
					return invalid("limit %q twice in one debit", c.Limit.Name)
				}
			}
		}
	}
	return nil
}

func checkSettle(t *store.Settle) error {
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

// maxPart is how long the parts of a bucket's or record's name may be.
const maxPart = 1 << 14

func checkBucket(debits []store.Debit, i int) error {
	b := debits[i].Bucket
	for _, part := range []string{b.Namespace, b.Entity, b.Resource} {
		if part == "" || len(part) > maxPart || strings.Contains(part, "\x00") {
			return invalid("bucket %s has an empty part, one with a zero byte, or one that is too long", b)
		}
	}
	for j := range i {
		if debits[j].Bucket == b {
			return store.ErrDuplicateBucket
		}
	}
	return nil
}

func checkKey(k store.Key, parent string) error {
	for _, part := range []string{k.Namespace, k.ID, k.Sub, parent} {
		if len(part) > maxPart || strings.Contains(part, "\x00") {
			return invalid("a part of %s has a zero byte or is too long", k)
		}
	}
	return nil
}
