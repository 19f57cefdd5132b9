package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var (
	// ErrStaleLimits says that a bucket follows newer limits than the debit's: read the catalog again and repeat.
	// Nothing was debited.
	ErrStaleLimits = errors.New("the bucket follows newer limits")
	// ErrTooManyOverrides says that a bucket holds [MaxOverrides] other overriding limits that are not full.
	ErrTooManyOverrides = fmt.Errorf("more than %d different overriding limits are in use on the bucket", MaxOverrides)
	// ErrTooManyBuckets says that the store holds as many buckets in use as it may.
	ErrTooManyBuckets = errors.New("the store holds as many buckets in use as it may")
	// ErrOverflow says that a forced amount would carry a level past the largest one (about 5.6e15 tokens).
	ErrOverflow = errors.New("the amount would carry the bucket's level out of range")
	// ErrDuplicateBucket says that a take or settle names a bucket twice.
	ErrDuplicateBucket = errors.New("a bucket is named twice")
	// ErrSettled says that a settle with this ID was applied before.
	ErrSettled = errors.New("settled before")
	// ErrExpired says that a settle came after its Expires.
	ErrExpired = errors.New("expired")
	// ErrConflict matches every [*ConflictError].
	ErrConflict = errors.New("changed meanwhile")
	// ErrBadCursor says that a cursor is not one that this query returned.
	ErrBadCursor = errors.New("not a cursor of this list")
	// ErrNoUsage says that nobody keeps the store's usage.
	ErrNoUsage = errors.New("the store keeps no usage")
	// ErrInvalid says that a call breaks the contract of the seam: a mistake in weir, not in its use.
	ErrInvalid = errors.New("invalid call")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store closed")
)

// ConflictError says that a record's version is not the one that a write expected.
type ConflictError struct {
	Key        Key
	Have, Want uint64 // versions; 0 means that it does not exist
}

// Error names the record and what is there instead.
func (e *ConflictError) Error() string {
	switch {
	case e.Have == 0:
		return fmt.Sprintf("%s: does not exist any more", e.Key)
	case e.Want == 0:
		return fmt.Sprintf("%s: exists already", e.Key)
	}
	return fmt.Sprintf("%s: changed meanwhile (version %d, not %d)", e.Key, e.Have, e.Want)
}

// Is makes errors.Is(err, ErrConflict) hold.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Error is trouble of a store: the operation, what it was about, the cause, and what to do.
type Error struct {
	Op   string // "take", "settle", "open", …
	Key  string // a bucket, record, file or table
	Err  error
	Hint string // what to do; may be ""
}

// Error returns "op key: cause (hint)".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Key != "" {
		b.WriteString(" " + e.Key)
	}
	b.WriteString(": " + e.Err.Error())
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// quoted returns s as it is when it is plain, else as a Go string, so that an id can never garble a message.
func quoted(s string) string {
	for _, r := range s {
		if r <= ' ' || r == '"' || r == '/' || r == 0x7f || r > 0x7e && !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}
