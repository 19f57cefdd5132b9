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
	// WouldRefuse is called for each limit in shadow that would have refused a request, had it been enforced. Allow
	// asks the store for more where it is set and a limit is in shadow.
	WouldRefuse func(ctx context.Context, e WouldRefuseEvent)
}

// DecidedEvent is one decision.
type DecidedEvent struct {
	Namespace, Entity, Resource string
	Allowed                     bool
	Degraded                    bool
	Err                         error // the error that the caller got, if not allowed
}

// WouldRefuseEvent is a request that a limit in shadow would have refused.
type WouldRefuseEvent struct {
	Namespace, Entity, Resource string // of the limit: the entity may be a parent of who asked
	Limit                       string
	Requested                   int64 // tokens
	Allowed                     bool  // it was admitted: no other limit refused it
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
