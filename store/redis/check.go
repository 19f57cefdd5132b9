package redis

import (
	"fmt"
	"strings"

	"github.com/weirlimits/weir/store"
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrInvalid, fmt.Sprintf(format, args...))
}

// maxPart is the longest part of a bucket's or record's name, in bytes.
const maxPart = 1 << 14

// checkParts rejects names that a key cannot hold unchanged.
func checkParts(debits []store.Debit) error {
	for i := range debits {
		if err := checkBucket(debits[i].Bucket); err != nil {
			return err
		}
	}
	return nil
}

func checkBucket(b store.Bucket) error {
	for _, part := range []string{b.Namespace, b.Entity, b.Resource} {
		if len(part) > maxPart || strings.Contains(part, "\x00") {
			return invalid("a part of bucket %s has a zero byte or is too long", b)
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
