package weir

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Errors to test for with errors.Is. The errors that weir returns match or wrap them.
var (
	// ErrExceeded matches every [*ExceededError]: a limit refused the request, which may succeed later.
	ErrExceeded = errors.New("limit exceeded")
	// ErrExceedsBurst matches every [*BurstError]: the request is larger than a limit's burst and never succeeds.
	ErrExceedsBurst = errors.New("larger than the burst")
	// ErrUnavailable reports that no decision could be made, usually because the store did not answer and
	// on_unavailable is deny. The returned error also wraps the store's error.
	ErrUnavailable = errors.New("limiter unavailable")
	// ErrNoLimits matches every [*NoLimitsError]: no scope has limits for the request.
	ErrNoLimits = errors.New("no limits apply")
	// ErrNotFound reports that an entity, namespace or set of limits does not exist.
	ErrNotFound = policy.ErrNotFound
	// ErrExists reports that the thing to be created already exists.
	ErrExists = errors.New("already exists")
	// ErrConflict reports that others kept changing the same records, or that a record is no longer in the expected
	// state.
	ErrConflict = policy.ErrConflict
	// ErrCommitted reports that the lease was committed: its tokens are spent.
	ErrCommitted = errors.New("the lease was committed")
	// ErrRolledBack reports that the lease was rolled back: its tokens were given back.
	ErrRolledBack = errors.New("the lease was rolled back")
	// ErrSettled reports that an operation with this id was applied before.
	ErrSettled = store.ErrSettled
	// ErrExpired reports that a lease has expired: its tokens count as spent.
	ErrExpired = store.ErrExpired
	// ErrBadCursor reports a cursor that this list did not issue.
	ErrBadCursor = store.ErrBadCursor
	// ErrNoUsage reports that the store keeps no usage, or that nothing books it.
	ErrNoUsage = store.ErrNoUsage
	// ErrClosed reports that the limiter or its store is closed.
	ErrClosed = store.ErrClosed
)

// ConfigError reports a caller's mistake: the field, and what is wrong with it. Nothing was spent or written.
type ConfigError struct {
	Field  string
	Reason string
}

// Error returns "field: reason".
func (e *ConfigError) Error() string { return e.Field + ": " + e.Reason }

func configErr(field, format string, args ...any) *ConfigError {
	return &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func checkID(field, id string) error { return publicError(record.CheckID(field, id)) }

// publicError returns the error as this package defines it.
func publicError(err error) error {
	if bad, ok := err.(*record.FieldError); ok { //nolint:errorlint // one that is wrapped is not the caller's
		return &ConfigError{Field: bad.Field, Reason: bad.Reason}
	}
	return err
}

// StoreError reports a failure of the store: the operation, the key, the cause, and a hint on what to do.
type StoreError = store.Error

// ExceededError reports that a limit refused a request; nothing was spent. Its Decision holds the status of every limit
// that was checked, and RetryAfter is how long until the request would pass if nobody else spent.
type ExceededError struct {
	Decision
	// Each holds the part of the Decision that concerns each request of [Limiter.AcquireAll], in their order: the
	// limits of the request's own chain, with the tokens that all requests together need of them. A request is Allowed
	// if none of its limits refused, although nothing was spent. Nil for all other calls, and where on_unavailable
	// admitted some of the requests without a decision.
	Each []Decision
}

// Error names the limits that refused, and the time to wait before a retry.
func (e *ExceededError) Error() string {
	var b strings.Builder
	separator := "limit exceeded: "
	for _, s := range e.Statuses {
		if !s.Refused {
			continue
		}
		b.WriteString(separator)
		separator = ", "
		fmt.Fprintf(&b, "%s of %s on %s has %d of %d available, %d requested",
			s.Limit, s.Entity, s.Resource, s.Available, s.Burst, s.Requested)
	}
	fmt.Fprintf(&b, "; retry in %s", e.RetryAfter.Round(time.Microsecond))
	return b.String()
}

// Is reports whether target is [ErrExceeded].
func (e *ExceededError) Is(target error) bool { return target == ErrExceeded }

// BurstError reports a request for more of a limit than can ever be spent at once.
type BurstError struct {
	Entity, Resource, Limit string
	Requested, Burst        int64
}

func burstError(b store.Bucket, l *store.Limit, requested int64) *BurstError {
	return &BurstError{b.Entity, b.Resource, l.Name, requested, l.Burst / 1000}
}

// Error names the limit and both amounts.
func (e *BurstError) Error() string {
	return fmt.Sprintf(
		"%d %s requested of %s on %s, but at most %d can be spent at once: ask for less or raise the burst",
		e.Requested, e.Limit, e.Entity, e.Resource, e.Burst)
}

// Is reports whether target is [ErrExceedsBurst].
func (e *BurstError) Is(target error) bool { return target == ErrExceedsBurst }

// RequestError reports which request of [Limiter.AcquireAll] an error is about.
type RequestError struct {
	Index int // from 0
	Err   error
}

// Error returns "request N: " and the error.
func (e *RequestError) Error() string { return fmt.Sprintf("request %d: %v", e.Index, e.Err) }

// Unwrap returns Err.
func (e *RequestError) Unwrap() error { return e.Err }

// NoLimitsError reports that no scope (entity, entity default, resource or system) has limits for an entity on a
// resource.
type NoLimitsError struct{ Entity, Resource string }

// Error names the scopes that were checked.
func (e *NoLimitsError) Error() string {
	return fmt.Sprintf("no limits apply to entity %q on resource %q: set some for the entity, the resource or the "+
		"system", e.Entity, e.Resource)
}

// Is reports whether target is [ErrNoLimits].
func (e *NoLimitsError) Is(target error) bool { return target == ErrNoLimits }

// unavailableError is ErrUnavailable together with its cause.
type unavailableError struct{ cause error }

func (e *unavailableError) Error() string   { return "limiter unavailable: " + e.cause.Error() }
func (e *unavailableError) Unwrap() []error { return []error{ErrUnavailable, e.cause} }
