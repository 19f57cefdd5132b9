package decide

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/watch"
)

// Code is the code of a [Fault]: that of the limiter's error, or one of a server's own. Each protocol has a table with
// its answer to each.
type Code int

// The codes of a server's own errors.
const (
	Unauthenticated Code = iota + Code(weir.Codes) // no valid token
	Forbidden                                      // the token may not do this
	Overloaded                                     // too many requests; nothing was done
	ShuttingDown                                   // nothing was done
	Watched                                        // too many buckets are watched

	// Codes is the number of all codes, for tables with an entry for each.
	Codes = int(Watched) + 1
)

// Error is the reason why a server did not decide a request, regardless of limits. Its text is for the client.
type Error struct {
	Code   Code
	Detail string
}

// Error returns the detail.
func (e *Error) Error() string { return e.Detail }

// The errors of this package. Those about permission do not depend on what exists; see also [Refused].
var (
	ErrUnauthenticated = &Error{
		Unauthenticated, "send Authorization: Bearer and a token that has not expired or been revoked",
	}
	ErrForbidden = &Error{
		Forbidden, "the token lacks the role, permission, namespace, entity or resource that this needs: " +
			"GET /v1/whoami returns what it may do",
	}
	ErrOverloaded = &Error{
		Overloaded, "too many requests are under way; nothing was done: try again, or another instance",
	}
	ErrConnections = &Error{
		Overloaded, "too many connections are open; nothing was done: try again, or another instance",
	}
	// ErrUnread refuses an answer.
	ErrUnread = &Error{
		Overloaded, "there is no memory for the answer beside others that were not read: what was requested may have " +
			"been done",
	}
	ErrRefusing = &Error{
		Code(weir.CodeUnavailable), "the store refuses writes, so no decision has been made lately: see the log",
	}
	ErrNoShare = &Error{
		Code(weir.CodeUnavailable),
		"the cell has no share of the limits: it is joining, or drained: see weir cell shares",
	}
	ErrDraining = &Error{ShuttingDown, "the server is shutting down"}
	ErrNoLease  = &Error{Code(weir.CodeNotFound), "no such lease"}
	ErrExpired  = &Error{Code(weir.CodeExpired), "an expired lease counts as committed: its tokens are spent"}
	ErrSlotLost = &Error{Code(weir.CodeExpired), "a slot was not renewed in time, and is lost: acquire again"}
)

// Refused returns the refusal of a principal that lacks something for what it requests. It names the role that is
// lacking, which depends on the kind of the request alone; everywhere is for a role that is needed in all namespaces.
func Refused(p *auth.Principal, lacks auth.Reason, role auth.Role, everywhere bool) *RefusalError {
	r := &RefusalError{ErrForbidden, lacks, p}
	if lacks == auth.NoRole {
		in := ""
		if everywhere {
			in = " in all namespaces"
		}
		r.Answer = &Error{Forbidden, fmt.Sprintf(
			"this needs the role %s%s, which the token lacks: GET /v1/whoami returns what it may do", role, in)}
	}
	return r
}

// ErrTooLong refuses a request because others that wait came first.
var ErrTooLong = &weir.ExceededError{Decision: weir.Decision{RetryAfter: time.Second}}

// RefusalError is an [Error] because of who sends a request. The reason is for the log and metrics.
type RefusalError struct {
	Answer *Error
	Reason auth.Reason
	By     *auth.Principal // nil if unknown
}

// Error returns the detail of the answer.
func (r *RefusalError) Error() string { return r.Answer.Detail }

// Unwrap returns the answer.
func (r *RefusalError) Unwrap() error { return r.Answer }

// Fault is what a client may see of an error.
type Fault struct {
	RefusedBy     string // for the request log; "" if limits refused it
	Code          Code
	Detail, Field string              // Field is the part of the request that is wrong, or ""
	RetryAfter    time.Duration       // without jitter; 0: no hint
	Over          *weir.ExceededError // of a refusal by a limit
}

// details has the detail of each code whose errors have a text of their own only for the log.
var details = [weir.Codes]string{
	weir.CodeInternal:    "the error was logged",
	weir.CodeSettled:     "it was adjusted or rolled back under this id before; nothing was changed now",
	weir.CodeExpired:     ErrExpired.Detail,
	weir.CodeUnavailable: "the store does not answer, or not in time",
	weir.CodeCanceled:    "the store does not answer, or not in time",
}

// faultOf returns what a client may see of an error.
func faultOf(err error) (f Fault) {
	var (
		own    *Error
		config *weir.ConfigError
	)
	switch {
	case errors.As(err, &own):
		f.Code, f.Detail = own.Code, own.Detail
	case errors.Is(err, weir.ErrOverloaded):
		f.Code, f.Detail = Overloaded, "too many requests are under way, so this one was too late: try again"
	case errors.Is(err, weir.ErrOfCell):
		f.Code = Code(weir.CodeUnavailable)
		f.Detail = "the store belongs to a cell, which has a share of the limits: the server needs --cell; see its log"
	case parts.NoShare(err):
		return faultOf(ErrNoShare)
	case errors.Is(err, watch.ErrTooMany):
		f.Code, f.Detail = Watched, err.Error()
	case errors.Is(err, watch.ErrClosed):
		return faultOf(ErrDraining)
	case errors.Is(err, ErrTooLong):
		f.Code, f.Detail = Code(weir.CodeExceeded), "others came first: not admitted in the time given to wait"
		f.RetryAfter = ErrTooLong.RetryAfter
	default:
		code := weir.CodeOf(err)
		f.Code, f.Detail = Code(code), cmp.Or(details[code], err.Error())
		switch {
		case errors.As(err, &f.Over):
			f.Detail, f.RetryAfter = f.Over.Error(), f.Over.RetryAfter
		case code == weir.CodeInvalid && errors.As(err, &config):
			f.Detail, f.Field = config.Error(), config.Field
		case code == weir.CodeInvalid:
			f.Detail, f.Field = "after: is not a cursor of this list", "after"
		}
	}
	if slices.Contains(passing, f.Code) {
		f.RetryAfter = time.Second
	}
	return f
}

// passing are the codes of errors that pass by themselves.
var passing = []Code{Overloaded, ShuttingDown, Watched, Code(weir.CodeUnavailable), Code(weir.CodeCanceled)}

// Fault returns what a client may see of an error, and logs what it must not. The client's address is from.
func (l *logs) Fault(ctx context.Context, err error, from string, at ...slog.Attr) Fault {
	f := faultOf(err)
	if f.Over == nil {
		f.RefusedBy = refusedBy(err)
	}
	var own *Error
	var refusal *RefusalError
	switch {
	case errors.As(err, &refusal):
		l.refusals.Add(ctx, refusal.Reason, from, refusal.By, at...)
	case f.Code == Overloaded:
		l.overload(ctx, at...)
	case errors.As(err, &own):
	case f.Code == Code(weir.CodeInternal):
		l.Trouble(ctx, "a request failed", err, at...)
	case parts.NoShare(err):
		l.Trouble(ctx, "the server has no share of the limits", err, at...)
	case (f.Code == Code(weir.CodeUnavailable) || f.Code == Code(weir.CodeCanceled)) && ctx.Err() == nil:
		l.Trouble(ctx, "the store did not answer a request in time", err, at...)
	}
	return f
}

// Panicked logs a panic and returns the error to answer with.
func (l *logs) Panicked(ctx context.Context, v any, at ...slog.Attr) error {
	l.log.LogAttrs(ctx, slog.LevelError, "a request panicked",
		append(at, slog.Any("panic", v), slog.String("stack", string(debug.Stack())))...)
	return &Error{Code(weir.CodeInternal), details[weir.CodeInternal]}
}

// logs are the messages that anyone's requests can cause.
type logs struct {
	log                 *slog.Logger
	troubles, overloads *slog.Logger // each at most one line per second
	refusals            *auth.Refusals

	maxInflight int
	requests    slog.Level // of the lines about requests
}

// overload logs that the server refuses requests because it has too many, at most once a second.
func (l *logs) overload(ctx context.Context, at ...slog.Attr) {
	l.overloads.LogAttrs(ctx, slog.LevelWarn, "too many requests: some are refused",
		append(at, slog.Int("max", l.maxInflight), slog.String("principal", CallerOf(ctx).Audit("")))...)
}

// Trouble logs an error, at most one per second: when the store is down, every request has one.
func (l *logs) Trouble(ctx context.Context, what string, err error, at ...slog.Attr) {
	l.troubles.LogAttrs(ctx, slog.LevelError, "trouble with a request",
		append(at, slog.String("what", what), slog.Any("error", err))...)
}
