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
	Adjust(ctx context.Context, tokens weir.Tokens) ([]weir.Balance, error)
	// Slots returns those of the first limit of the entity that has slots; zero if none has.
	Slots() Slots
	// Commit gives the slots back.
	Commit(ctx context.Context) error
}

// Slots are slots of one limit: how many a lease has, and how many all leases together can have.
type Slots struct{ Held, Of int64 }

// timeout limits each call to a target.
const timeout = 10 * time.Second

// Library calls a limiter in this process.
type Library struct{ Limiter *weir.Limiter }

// Acquire implements [Target].
func (t Library) Acquire(ctx context.Context, c *traffic.Call) (Held, error) {
	req := weir.Request{Entity: c.Entity, Resource: c.Resource, Tokens: c.Tokens}
	acquire := t.Limiter.Acquire
	if c.Wait > 0 {
		acquire = t.Limiter.Wait
		bounded, cancel := context.WithTimeout(ctx, c.Wait)
		defer cancel()
		ctx = bounded
	}
	lease, err := acquire(ctx, req)
	if err == nil {
		return libraryLease{lease, c.Entity}, nil
	}
	if errors.Is(err, weir.ErrExceeded) || c.Wait > 0 && errors.Is(err, context.DeadlineExceeded) {
		return nil, nil //nolint:nilnil // a refusal is not an error
	}
	return nil, err
}

// Available implements [Target].
func (t Library) Available(ctx context.Context, c *traffic.Call) error {
	_, err := t.Limiter.Available(ctx, c.Entity, c.Resource)
	return err
}

type libraryLease struct {
	*weir.Lease

	entity string
}

// Slots implements [Held].
func (l libraryLease) Slots() Slots {
	for _, s := range l.Decision().Statuses {
		if s.Heal > 0 && s.Entity == l.entity {
			return Slots{s.Requested, s.Burst}
		}
	}
	return Slots{}
}
