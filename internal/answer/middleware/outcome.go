package middleware

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer/ratelimitheaders"
)

// Kind is the reason why a request is not let through.
type Kind int

// The kinds.
const (
	Unforeseen Kind = iota // such as a configuration mistake: not the client's business
	Exceeded
	ExceedsBurst
	Unavailable
)

// Tell reports whether clients may see a limit. Nil: they see all.
type Tell func(*weir.LimitStatus) bool

// Of returns the statuses that clients may see.
func (tell Tell) Of(statuses []weir.LimitStatus) []weir.LimitStatus {
	if tell == nil {
		return statuses
	}
	return slices.DeleteFunc(slices.Clone(statuses), func(st weir.LimitStatus) bool { return !tell(&st) })
}

// Outcome is what a client may know about an error.
type Outcome struct {
	Kind       Kind
	Detail     string             // a sentence
	RetryAfter time.Duration      // with jitter; 0: do not retry
	Statuses   []weir.LimitStatus // of Exceeded
}

// OutcomeOf returns what a client may know about an error of [weir.Limiter.Acquire].
func OutcomeOf(err error, tell Tell) Outcome {
	var (
		over  *weir.ExceededError
		burst *weir.BurstError
		store *weir.StoreError
	)
	switch {
	case errors.As(err, &over):
		o := Outcome{Kind: Exceeded, RetryAfter: ratelimitheaders.Jittered(over.RetryAfter), Statuses: tell.Of(over.Statuses)}
		if slices.ContainsFunc(o.Statuses, func(st weir.LimitStatus) bool { return st.Refused }) {
			shown := weir.ExceededError{Decision: weir.Decision{Statuses: o.Statuses, RetryAfter: over.RetryAfter}}
			o.Detail = shown.Error()
		} else {
			o.Detail = "limit exceeded; retry in " + over.RetryAfter.Round(time.Microsecond).String()
		}
		return o
	case errors.As(err, &burst):
		st := weir.LimitStatus{Entity: burst.Entity, Resource: burst.Resource, Limit: burst.Limit, Requested: burst.Requested, Burst: burst.Burst}
		if tell != nil && !tell(&st) {
			return Outcome{Kind: ExceedsBurst, Detail: "more is requested than can ever be spent at once: ask for less"}
		}
		return Outcome{Kind: ExceedsBurst, Detail: burst.Error()}
	case errors.Is(err, weir.ErrUnavailable), errors.As(err, &store), errors.Is(err, weir.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Outcome{Kind: Unavailable, Detail: "the store does not answer, or not in time", RetryAfter: ratelimitheaders.Jittered(time.Second)}
	}
	return Outcome{Detail: "the error was logged"}
}

// Log logs errors at most once a second, because during a store outage every request has one.
type Log struct {
	Logger *slog.Logger
	last   atomic.Int64
}

// Trouble logs an error.
func (l *Log) Trouble(ctx context.Context, what string, err error, attrs ...slog.Attr) {
	now := time.Now().UnixNano()
	last := l.last.Load()
	if now-last < int64(time.Second) || !l.last.CompareAndSwap(last, now) {
		return
	}
	attrs = append(attrs, slog.String("what", what), slog.Any("error", err))
	l.Logger.LogAttrs(ctx, slog.LevelError, "trouble with a limit", attrs...)
}
