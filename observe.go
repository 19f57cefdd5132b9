package weir

import (
	"context"
	"time"
)

// Observer is told what happens, for metrics and traces. Its functions are called on the caller's goroutine, must be
// fast and safe for concurrent use, and may be nil.
type Observer struct {
	// Decided is called for each decision, also of a degraded one.
	Decided func(ctx context.Context, e DecidedEvent)
	// Called is called after each call of the store, with how long it took.
	Called func(ctx context.Context, e CalledEvent)
}

// DecidedEvent is one decision.
type DecidedEvent struct {
	Namespace, Entity, Resource string
	Allowed                     bool
	Degraded                    bool
	Err                         error // the error that the caller got, if not allowed
}

// CalledEvent is one call of the store.
type CalledEvent struct {
	Op   string // "take", "settle", "peek", "get", "commit", "list", "buckets", "forget"
	Took time.Duration
	Err  error
}

func (c *core) observeCall(ctx context.Context, op string, began time.Time, err error) {
	if f := c.cfg.Observer.Called; f != nil {
		f(ctx, CalledEvent{Op: op, Took: time.Since(began), Err: err})
	}
}

func (l *Limiter) observeDecision(ctx context.Context, entity, resource string, allowed, degraded bool, err error) {
	if f := l.core.cfg.Observer.Decided; f != nil {
		f(ctx, DecidedEvent{Namespace: l.name, Entity: entity, Resource: resource, Allowed: allowed, Degraded: degraded, Err: err})
	}
}
