package weir

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/held"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Errors to test for with errors.Is. The errors that weir returns match or wrap them.
var (
	// ErrExceeded matches every [*ExceededError]: a limit refused the request, which may succeed later.
	ErrExceeded = errors.New("limit exceeded")
	// ErrExceedsBurst matches every [*BurstError]: the request is larger than a limit's burst and never succeeds.
	ErrExceedsBurst = held.ErrExceedsBurst
	// ErrMaxDebt matches every [*DebtError]: an adjustment went beyond what a limit may be in debt.
	ErrMaxDebt = held.ErrMaxDebt
	// ErrUnavailable reports that no decision could be made, usually because the store did not answer and
	// on_unavailable is deny. The returned error also wraps the store's error.
	ErrUnavailable = errors.New("limiter unavailable")
	// ErrOverloaded reports that a request waited for others of this process until its time was up, although the store
	// answers, or that several of one [Limiter.AcquireAll] took too long, perhaps because of their number. It is not
	// admitted, whatever on_unavailable is. Such an error matches ErrUnavailable.
	ErrOverloaded = errors.New("overloaded")
	// ErrNoLimits matches every [*NoLimitsError]: no scope has limits for the request.
	ErrNoLimits = record.ErrNoLimits
	// ErrUnknownEntity reports a request for an entity that was never created, in a namespace whose entities are known.
	ErrUnknownEntity = record.ErrUnknownEntity
	// ErrBucketQuota reports that a server creates no bucket, because the namespace has as many live ones as it may.
	ErrBucketQuota = store.ErrBucketQuota
	// ErrOfCell reports that the store belongs to a cell, which has only a share of the limits: a program must call a
	// server of the cell. The limiter looks once per Config.CacheTTL. Such an error matches ErrUnavailable.
	ErrOfCell = record.ErrOfCell
	// ErrNotFound reports that an entity, namespace or set of limits does not exist.
	ErrNotFound = policy.ErrNotFound
	// ErrExists reports that the thing to be created already exists.
	ErrExists = errors.New("already exists")
	// ErrConflict reports that others kept changing the same records, or that a record is not in the expected state.
	ErrConflict = policy.ErrConflict
	// ErrCommitted reports that the lease was committed: its tokens are spent.
	ErrCommitted = errors.New("the lease was committed")
	// ErrRolledBack reports that the lease was rolled back: its tokens were given back.
	ErrRolledBack = errors.New("the lease was rolled back")
	// ErrSettled reports that an operation with this id was applied before.
	ErrSettled = store.ErrSettled
	// ErrExpired reports that a lease has expired: its tokens count as spent.
	ErrExpired = store.ErrExpired
	// ErrSlotsNeedLease reports that slots apply to a call that cannot give them back, such as [Limiter.Allow].
	ErrSlotsNeedLease = errors.New("a limit of slots applies, which needs a lease to give them back: use Acquire")
	// ErrSlotLost is the cause for which the context of a lease ends that could not renew its slots in time.
	ErrSlotLost = held.ErrSlotLost
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
	if bound, ok := errors.AsType[*store.BoundError](err); ok {
		return &ConfigError{Field: "request", Reason: bound.Error()}
	}
	return err
}

// StoreError reports a failure of the store: the operation, the key, the cause, and a hint on what to do.
type StoreError = store.Error

// ExceededError reports that a limit refused a request; nothing was spent. Its Decision holds the status of every limit
// that was checked, and [Decision.RetryAfter] is how long until the request would pass if nobody else spent.
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
	text, separator := "", "limit exceeded: "
	for _, s := range e.Statuses {
		if !s.Refused {
			continue
		}
		of := ""
		if s.Burst > 0 {
			of = fmt.Sprintf(" of %d", s.Burst)
		}
		text += separator + fmt.Sprintf("%s of %s on %s has %d%s available, %d requested",
			s.Limit, s.Entity, store.ResourceText(s.Resource), s.Available, of, s.Requested)
		separator = ", "
	}
	if e.RetryAfter == math.MaxInt64 {
		return text + "; waiting does not help until it is topped up"
	}
	return text + "; retry in " + e.RetryAfter.Round(time.Microsecond).String()
}

// Is reports whether target is [ErrExceeded].
func (e *ExceededError) Is(target error) bool { return target == ErrExceeded }

// BurstError reports a request of an Entity on a Resource for more of a Limit than can ever be spent at once: for the
// tokens Requested, of the limit's Burst.
type BurstError = held.BurstError

// DebtError reports that an adjustment would have brought a limit further into debt than its [Limit.MaxDebt]: the Limit
// of an Entity on a Resource was debited up to that, and the rest of the adjustment was made. Of several limits, it is
// about the one of which most was left out. Left is what was not debited, in tokens, rounded up.
type DebtError = held.DebtError

// RequestError reports which request of [Limiter.AcquireAll] an error is about.
type RequestError struct {
	Index int // from 0
	Err   error
}

// Error returns "request N: " and the error.
func (e *RequestError) Error() string { return fmt.Sprintf("request %d: %v", e.Index, e.Err) }

// Unwrap returns Err.
func (e *RequestError) Unwrap() error { return e.Err }

// NoLimitsError reports that no scope (entity, entity default, plan, resource or system) has limits for an Entity on a
// Resource.
type NoLimitsError = record.NoLimitsError

// unavailableError is ErrUnavailable together with its cause.
type unavailableError struct{ cause error }

func (e *unavailableError) Error() string   { return "limiter unavailable: " + e.cause.Error() }
func (e *unavailableError) Unwrap() []error { return []error{ErrUnavailable, e.cause} }
