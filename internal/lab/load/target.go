package load

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

// Target is what the load is sent to. Its methods may be called concurrently, and must answer within a time limit.
type Target interface {
	// Acquire returns what was acquired, or nil if a limit refuses.
	Acquire(ctx context.Context, c *traffic.Call) (Held, error)
	Available(ctx context.Context, c *traffic.Call) error
}

// Held is what was acquired.
type Held interface {
	Adjust(ctx context.Context, tokens weir.Tokens) error
}

// timeout limits each call to a target.
const timeout = 10 * time.Second

// Nothing answers at once and admits everything, so that a run measures the runner itself.
type Nothing struct{}

// Acquire implements [Target].
func (Nothing) Acquire(context.Context, *traffic.Call) (Held, error) { return Nothing{}, nil }

// Available implements [Target].
func (Nothing) Available(context.Context, *traffic.Call) error { return nil }

// Adjust implements [Held].
func (Nothing) Adjust(context.Context, weir.Tokens) error { return nil }

// Library calls a limiter in this process.
type Library struct{ Limiter *weir.Limiter }

// Acquire implements [Target].
func (t Library) Acquire(ctx context.Context, c *traffic.Call) (Held, error) {
	lease, err := t.Limiter.Acquire(ctx, weir.Request{Entity: c.Entity, Resource: c.Resource, Tokens: c.Tokens})
	if err == nil {
		return lease, nil
	}
	if errors.Is(err, weir.ErrExceeded) {
		return nil, nil //nolint:nilnil // a refusal is not an error
	}
	return nil, err
}

// Available implements [Target].
func (t Library) Available(ctx context.Context, c *traffic.Call) error {
	_, err := t.Limiter.Available(ctx, c.Entity, c.Resource)
	return err
}
