package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var (
	// ErrStaleLimits reports that a bucket follows newer limits than the debit's: read the catalog again and retry.
	// Nothing was debited.
	ErrStaleLimits = errors.New("the bucket follows newer limits")
	// ErrTooManyOverrides reports that the bucket holds [MaxOverrides] other overriding limits that are not full.
	ErrTooManyOverrides = fmt.Errorf("more than %d different overriding limits are in use on the bucket", MaxOverrides)
	// ErrTooManyBuckets reports that the store holds the maximum number of buckets in use.
	ErrTooManyBuckets = errors.New("the store holds the maximum number of buckets in use")
	// ErrBucketQuota matches every [*BucketQuotaError]. No driver returns one.
	ErrBucketQuota = errors.New("the namespace may have no more live buckets")
	// ErrOverflow reports that a forced amount would raise a level above the maximum (about 5.6e15 tokens).
	ErrOverflow = errors.New("the amount would put the bucket's level out of range")
	// ErrDuplicateBucket reports that a take or settle names a bucket twice.
	ErrDuplicateBucket = errors.New("a bucket is named twice")
	// ErrSettled reports that a settle with this ID was applied before.
	ErrSettled = errors.New("settled before")
	// ErrExpired reports that a settle came after its Expires.
	ErrExpired = errors.New("expired")
	// ErrConflict matches every [*ConflictError].
	ErrConflict = errors.New("changed in the meantime")
	// ErrBadCursor reports a cursor that this query did not return.
	ErrBadCursor = errors.New("not a cursor of this list")
	// ErrNoUsage reports that nothing keeps the store's usage.
	ErrNoUsage = errors.New("the store keeps no usage")
	// ErrNotMetered is the [ErrNoUsage] of a store that was opened so.
	ErrNotMetered = fmt.Errorf("%w: it was opened with usage off", ErrNoUsage)
	// ErrInvalid reports a call that breaks the contract of this package, or an invalid configuration of a store.
	ErrInvalid = errors.New("invalid call")
	// ErrClosed reports that the store is closed.
	ErrClosed = errors.New("store closed")
)

// BucketQuotaError reports that a server creates no bucket, because the namespace has as many live ones as it may, or
// that it takes no adjustment, because it remembers as many ids of earlier ones.
type BucketQuotaError struct {
	Bucket Bucket // that would have been created or adjusted; zero if the adjustment changes nothing
	Most   int    // live buckets of a namespace, and ids
	IDs    bool   // ids are too many, not buckets
}

// Error names the bucket, the quota, and what to do.
func (e *BucketQuotaError) Error() string {
	if e.IDs {
		return fmt.Sprintf("no adjustment of entity %q on %s: this server remembers %d earlier ones of the "+
			"namespace, as many as it may have live buckets: wait until some have expired, or let an administrator of "+
			"the server raise weir namespace set --max-buckets, and the flag of weir serve if that is lower",
			e.Bucket.Entity, ResourceQuoted(e.Bucket.Resource), e.Most)
	}
	return fmt.Sprintf("no bucket for entity %q on %s: the namespace has %d live ones on this server, as "+
		"many as it may: wait until some are full, take known entities only, or let an administrator of the server "+
		"raise weir namespace set --max-buckets, and the flag of weir serve if that is lower",
		e.Bucket.Entity, ResourceQuoted(e.Bucket.Resource), e.Most)
}

// Is reports whether target is [ErrBucketQuota].
func (e *BucketQuotaError) Is(target error) bool { return target == ErrBucketQuota }

// ConflictError reports that a record does not have the version that a write expected.
type ConflictError struct {
	Key        Key
	Have, Want uint64 // versions; 0 means that the record does not exist
}

// Error names the record, and what is there instead.
func (e *ConflictError) Error() string {
	switch {
	case e.Have == 0:
		return fmt.Sprintf("%s: no longer exists", e.Key)
	case e.Want == 0:
		return fmt.Sprintf("%s: already exists", e.Key)
	}
	return fmt.Sprintf("%s: changed in the meantime (version %d, not %d)", e.Key, e.Have, e.Want)
}

// Is reports whether target is [ErrConflict].
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Extent is how much of a store a failure concerns. It determines what a failed decision means for other callers.
type Extent uint8

// The extents of a failure.
const (
	// ExtentUnknown is that of a call without an answer, or with an error that other calls may get, too. If calls for
	// several unrelated keys fail, the store counts as unavailable.
	ExtentUnknown Extent = iota
	// ExtentKey is that of one key, while the store answers for others: it is throttled, in conflict or damaged.
	// Requests for that key are decided without the store, all others in the store.
	ExtentKey
	// ExtentCall is that of a call that waited for other calls of this process for most of its time. The store could
	// have decided it, so no local share does.
	ExtentCall
	// ExtentStore is that of the whole store: no connection to it could be made, or it broke.
	ExtentStore
)

// ExtentOf returns the extent of an error, as its outermost [*Error] with one has it.
func ExtentOf(err error) Extent {
	for e, ok := errors.AsType[*Error](err); ok; e, ok = errors.AsType[*Error](e.Err) {
		if e.Extent != ExtentUnknown {
			return e.Extent
		}
	}
	return ExtentUnknown
}

// Error reports a failure of a store: the operation, its subject, the cause, and what to do.
type Error struct {
	Op     string // "take", "settle", "open", …
	Key    string // a bucket, record, file or table
	Err    error
	Hint   string // what to do; may be ""
	Extent Extent // of a take or of reads that it needs
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

// quoted returns s unchanged if it is plain, and otherwise as a Go string, so that an id can never garble a message.
func quoted(s string) string {
	for _, r := range s {
		if r <= ' ' || r == '"' || r == '/' || r == 0x7f || r > 0x7e && !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}
