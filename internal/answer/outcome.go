package answer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
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

// Outcome is what a client may see of an error.
type Outcome struct {
	// Code is CodeExceeded, CodeExceedsBurst, CodeUnknownEntity, CodeUnavailable or, for anything that is not the
	// client's business, such as a configuration mistake, CodeInternal.
	Code       weir.Code
	Detail     string             // a sentence
	RetryAfter time.Duration      // with jitter; 0: do not retry
	Statuses   []weir.LimitStatus // of CodeExceeded
}

// OutcomeOf returns what a client may see of an error of [weir.Limiter.Acquire].
func OutcomeOf(err error, tell Tell) Outcome {
	var (
		over  *weir.ExceededError
		burst *weir.BurstError
	)
	switch code := weir.CodeOf(err); {
	case code == weir.CodeExceeded && errors.As(err, &over):
		o := Outcome{
			Code: code, RetryAfter: Jittered(over.RetryAfter), Statuses: tell.Of(over.Statuses),
		}
		shown := weir.ExceededError{Decision: weir.Decision{Statuses: o.Statuses, RetryAfter: over.RetryAfter}}
		o.Detail = shown.Error()
		if !slices.ContainsFunc(o.Statuses, func(st weir.LimitStatus) bool { return st.Refused }) {
			o.Detail = "limit exceeded" + o.Detail
		}
		return o
	case code == weir.CodeExceedsBurst && errors.As(err, &burst):
		st := weir.LimitStatus{
			Entity: burst.Entity, Resource: burst.Resource, Limit: burst.Limit,
			Requested: burst.Requested, Burst: burst.Burst,
		}
		if tell != nil && !tell(&st) {
			return Outcome{Code: code, Detail: "more is requested than can ever be spent at once: ask for less"}
		}
		return Outcome{Code: code, Detail: burst.Error()}
	case code == weir.CodeUnknownEntity:
		return Outcome{Code: code, Detail: "the caller is not known here"}
	case code == weir.CodeBucketQuota:
		return Outcome{Code: code, Detail: "there are too many callers at present"}
	case code == weir.CodeUnavailable, code == weir.CodeCanceled:
		detail := "the store does not answer, or not in time"
		if errors.Is(err, weir.ErrOfCell) {
			detail = "nothing can be decided here at present"
		}
		return Outcome{Code: weir.CodeUnavailable, Detail: detail, RetryAfter: Jittered(time.Second)}
	}
	return Outcome{Code: weir.CodeInternal, Detail: "the error was logged"}
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
