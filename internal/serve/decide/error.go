package decide

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirlimits/weir"
)

// Code is the kind of an [Error]. Each protocol has its own answer to each.
type Code int

// The codes.
const (
	Unauthenticated Code = iota + 1 // no valid token
	Forbidden                       // the token lacks the role or the namespace
	Overloaded                      // too many requests; nothing was done
	ShuttingDown                    // nothing was done
	NoLease                         // whatever is wrong with the id
	LeaseExpired                    // it counts as committed
)

// Error is the reason why a server did not decide a request, regardless of limits. Its text is for the client.
type Error struct {
	Code   Code
	Detail string
}

// Error returns the detail.
func (e *Error) Error() string { return e.Detail }

// The errors of this package. Those about permission always have the same text, so that they do not reveal what exists.
var (
	ErrUnauthenticated = &Error{
		Unauthenticated, "send Authorization: Bearer and a token that has not expired or been revoked",
	}
	ErrForbidden  = &Error{Forbidden, "the token does not have the role, or not the namespace, that this needs"}
	ErrOverloaded = &Error{
		Overloaded, "too many requests are under way; nothing was done: try again, or another instance",
	}
	ErrDraining = &Error{ShuttingDown, "the server is shutting down"}
	ErrNoLease  = &Error{NoLease, "no such lease"}
	ErrExpired  = &Error{LeaseExpired, "an expired lease counts as committed: its tokens are spent"}
)

// ErrTooLong refuses a request because others that wait came first.
var ErrTooLong = &weir.ExceededError{Decision: weir.Decision{RetryAfter: time.Second}}

// logs are the messages that anyone's requests can cause: at most one line per second of each.
type logs struct {
	troubles, refusals, overloads *slog.Logger

	maxInflight int
}

// Refused logs that a caller was not permitted to do something, at most once a second.
func (l *logs) Refused(ctx context.Context, why string, at ...slog.Attr) {
	l.refusals.LogAttrs(ctx, slog.LevelWarn, "a request was refused",
		append(at, slog.String("why", why), slog.String("principal", CallerOf(ctx).Audit("")))...)
}

// Overload logs that the server refuses requests because it has too many, at most once a second.
func (l *logs) Overload(ctx context.Context, at ...slog.Attr) {
	l.overloads.LogAttrs(ctx, slog.LevelWarn, "too many requests: some are refused",
		append(at, slog.Int("max", l.maxInflight), slog.String("principal", CallerOf(ctx).Audit("")))...)
}

// Trouble logs an error, at most one per second: when the store is down, every request has one.
func (l *logs) Trouble(ctx context.Context, what string, err error, at ...slog.Attr) {
	l.troubles.LogAttrs(ctx, slog.LevelError, "trouble with a request",
		append(at, slog.String("what", what), slog.Any("error", err))...)
}
