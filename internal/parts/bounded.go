package parts

import (
	"context"
	"sync"
	"time"
)

// bounded is a context with a timeout. It differs from those of the standard library in that it starts its timer only
// when somebody waits for its end: most decisions are made in memory and wait for nothing, and the timer would take a
// quarter of the processor time of a refusal from memory.
type bounded struct {
	context.Context //nolint:containedctx // it is one
	until           time.Time

	mu     sync.Mutex
	timed  context.Context //nolint:containedctx // the same with a timer; nil until somebody waits
	cancel context.CancelFunc
}

func bound(ctx context.Context, timeout time.Duration) *bounded {
	b := &bounded{Context: ctx, until: time.Now().Add(timeout)}
	if until, ok := ctx.Deadline(); ok && until.Before(b.until) {
		b.until = until
	}
	return b
}

// end releases the timer.
func (b *bounded) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed != nil {
		b.cancel()
	}
}

func (b *bounded) wait() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed == nil {
		b.timed, b.cancel = context.WithDeadline(b.Context, b.until)
	}
	return b.timed
}

// Deadline implements [context.Context].
func (b *bounded) Deadline() (time.Time, bool) { return b.until, true }

// Done implements [context.Context].
func (b *bounded) Done() <-chan struct{} { return b.wait().Done() }

// Err implements [context.Context].
func (b *bounded) Err() error {
	b.mu.Lock()
	timed := b.timed
	b.mu.Unlock()
	switch {
	case timed != nil:
		return timed.Err()
	case time.Now().Before(b.until):
		return b.Context.Err()
	}
	return b.wait().Err()
}

// AfterFunc ends contexts that derive from this one, without a goroutine for each: see [context.AfterFunc].
func (b *bounded) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(b.wait(), f) }
