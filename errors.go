package weir

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
)

// What errors.Is finds. Each is carried by a type, or wrapped, with what it is about.
var (
	// ErrExceeded matches every [*ExceededError]: a limit refused the request, which may succeed later.
	ErrExceeded = errors.New("limit exceeded")
	// ErrExceedsBurst matches every [*BurstError]: the request is larger than a limit's burst and never succeeds.
	ErrExceedsBurst = errors.New("larger than the burst")
	// ErrUnavailable says that the store did not answer and on_unavailable is deny. It wraps the store's error.
	ErrUnavailable = errors.New("limiter unavailable")
	// ErrNoLimits says that no level has limits for a request: neither the entity, nor the resource, nor the system.
	ErrNoLimits = errors.New("no limits apply")
	// ErrNotFound says that an entity, namespace or set of limits does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists says that what is to be created exists.
	ErrExists = errors.New("exists already")
	// ErrConflict says that somebody else changed the same thing meanwhile, again and again.
	ErrConflict = errors.New("changed meanwhile")
	// ErrCommitted says that a lease was committed: its tokens are spent.
	ErrCommitted = errors.New("the lease was committed")
	// ErrRolledBack says that a lease was rolled back: its tokens are given back.
	ErrRolledBack = errors.New("the lease was rolled back")
	// ErrSettled says that an operation with this id was applied before.
	ErrSettled = store.ErrSettled
	// ErrExpired says that a lease has expired: its tokens count as spent.
	ErrExpired = store.ErrExpired
	// ErrBadCursor says that a cursor is not one of the list.
	ErrBadCursor = store.ErrBadCursor
	// ErrNoUsage says that the store keeps no usage.
	ErrNoUsage = store.ErrNoUsage
	// ErrClosed says that the limiter or its store was closed.
	ErrClosed = store.ErrClosed
)

// ConfigError is a caller's mistake: the field and what is wrong with it. Nothing was spent or written.
type ConfigError struct {
	Field  string
	Reason string
}

// Error returns "field reason".
func (e *ConfigError) Error() string { return e.Field + ": " + e.Reason }

func configErr(field, format string, args ...any) *ConfigError {
	return &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// StoreError is trouble of the store: the operation, the key, the cause, and a hint what to do.
type StoreError = store.Error

// ExceededError says that a limit refused a request; nothing was spent. Its Decision has the status of every limit
// that was looked at, and RetryAfter is when the request would pass if nobody else spent.
type ExceededError struct {
	Decision
	// Each is what of the Decision each request of [Limiter.AcquireAll] is about, in their order: the limits of its own
	// chain, with what all requests together asked of them. A request none of whose limits refused is Allowed, though
	// nothing was spent. Nil after all other calls.
	Each []Decision
}

// Error names the limits that refused and when to come back.
func (e *ExceededError) Error() string {
	var b strings.Builder
	b.WriteString("limit exceeded: ")
	first := true
	for _, s := range e.Statuses {
		if !s.Refused {
			continue
		}
		if !first {
			b.WriteString(", ")
		}
		first = false
		fmt.Fprintf(&b, "%s of %s on %s has %d of %d available, %d requested", s.Limit, s.Entity, s.Resource, s.Available, s.Burst, s.Requested)
	}
	fmt.Fprintf(&b, "; retry in %s", e.RetryAfter.Round(time.Microsecond))
	return b.String()
}

// Is makes errors.Is(err, ErrExceeded) hold.
func (e *ExceededError) Is(target error) bool { return target == ErrExceeded }

// BurstError says that a request asks for more of a limit than can ever be spent at once.
type BurstError struct {
	Entity, Resource, Limit string
	Requested, Burst        int64
}

// Error names the limit and both amounts.
func (e *BurstError) Error() string {
	return fmt.Sprintf("%d %s requested of %s on %s, but at most %d can be spent at once: ask for less or raise the burst",
		e.Requested, e.Limit, e.Entity, e.Resource, e.Burst)
}

// Is makes errors.Is(err, ErrExceedsBurst) hold.
func (e *BurstError) Is(target error) bool { return target == ErrExceedsBurst }

// RequestError says which request of [Limiter.AcquireAll] an error is about.
type RequestError struct {
	Index int // from 0
	Err   error
}

// Error returns "request N: " and the error.
func (e *RequestError) Error() string { return fmt.Sprintf("request %d: %v", e.Index, e.Err) }

// Unwrap returns the error.
func (e *RequestError) Unwrap() error { return e.Err }

// NoLimitsError says that no limits apply to an entity on a resource, and where they were looked for.
type NoLimitsError struct{ Entity, Resource string }

// Error names the levels that were looked at.
func (e *NoLimitsError) Error() string {
	return fmt.Sprintf("no limits apply to entity %q on resource %q: set some for the entity, the resource or the system", e.Entity, e.Resource)
}

// Is makes errors.Is(err, ErrNoLimits) hold.
func (e *NoLimitsError) Is(target error) bool { return target == ErrNoLimits }

// unavailableError is ErrUnavailable with its cause.
type unavailableError struct{ cause error }

func (e *unavailableError) Error() string   { return "limiter unavailable: " + e.cause.Error() }
func (e *unavailableError) Unwrap() []error { return []error{ErrUnavailable, e.cause} }

func notFound(what, id string) error { return fmt.Errorf("%s %q: %w", what, id, ErrNotFound) }
