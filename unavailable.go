package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
)

// orDegrade turns what a store answered instead of a decision into what the caller gets: the caller's own mistake and
// end as they are; of the store's trouble, what on_unavailable says.
func (l *Limiter) orDegrade(ctx context.Context, req *Request, p *plan, err error) (*Lease, error) {
	trouble, err := triage(ctx, err)
	if !trouble {
		return nil, err
	}
	if l.policy(req.OnUnavailable, p) == Allow {
		return l.degradedLease(req, err), nil
	}
	return nil, &unavailableError{err}
}

func (l *Limiter) degradedLease(req *Request, err error) *Lease {
	return &Lease{
		lim: l, plan: &plan{entity: req.Entity, resource: req.Resource},
		at: time.Now(), degraded: "the store did not answer: " + err.Error(),
	}
}

// orDegradeAll is orDegrade for several requests: they are admitted only if each of them may be.
func (l *Limiter) orDegradeAll(ctx context.Context, reqs []Request, leases []*Lease, err error) ([]*Lease, error) {
	trouble, err := triage(ctx, err)
	if !trouble {
		return nil, err
	}
	for i := range reqs {
		var p *plan
		if leases[i] != nil {
			p = leases[i].plan
		}
		if l.policy(reqs[i].OnUnavailable, p) != Allow {
			return nil, &unavailableError{err}
		}
	}
	for i := range reqs {
		leases[i] = l.degradedLease(&reqs[i], err)
	}
	return leases, nil
}

func (l *Limiter) allowDegraded(ctx context.Context, p *plan, err error) (ok, degraded bool, _ error) {
	trouble, err := triage(ctx, err)
	switch {
	case !trouble:
		return false, false, err
	case l.policy(UnavailableDefault, p) == Allow:
		return true, true, nil
	}
	return false, false, &unavailableError{err}
}

func (l *Limiter) policy(asked Unavailable, p *plan) Unavailable {
	var system Unavailable
	if p != nil {
		system = p.onUnavailable
	}
	return cmp.Or(asked, system, l.core.cfg.OnUnavailable)
}

// triage reports whether an error is the store's trouble, and how the caller is to see it.
func triage(ctx context.Context, err error) (trouble bool, _ error) {
	var config *ConfigError
	var none *NoLimitsError
	switch {
	case ctx.Err() != nil:
		return false, fmt.Errorf("acquire: %w", ctx.Err())
	case errors.As(err, &config), errors.As(err, &none), errors.Is(err, ErrNotFound), errors.Is(err, ErrClosed):
		return false, err
	case errors.Is(err, errUnreadable), errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrDuplicateBucket):
		return false, err // the store did answer: a bad record, or a mistake in weir, must not admit
	case errors.Is(err, store.ErrTooManyOverrides):
		return false, &ConfigError{Field: "limits", Reason: err.Error()}
	case errors.Is(err, store.ErrOverflow):
		return false, &ConfigError{Field: "tokens", Reason: err.Error()}
	case errors.Is(err, store.ErrStaleLimits):
		return false, &unavailableError{&StoreError{Op: "take", Err: err, Hint: "the limits change faster than they can be read"}}
	case errors.Is(err, context.DeadlineExceeded):
		return true, &StoreError{Op: "take", Err: err, Hint: "the store did not answer within Config.DecideWithin, which is Config.StoreTimeout where it is not set"}
	case errors.Is(err, store.ErrTooManyBuckets):
		// It has answered. Were this admitted, whoever makes up ids would fill the store and then have no limits.
		return false, &unavailableError{&StoreError{Op: "take", Err: err, Hint: "raise MaxBuckets of the store"}}
	}
	return true, err
}

// bounded is a context that ends when its time is over. It arms a timer only if somebody waits for it, which an
// embedded store seldom does.
type bounded struct {
	context.Context //nolint:containedctx // it is a context
	deadline        time.Time

	once   sync.Once
	armed  context.Context //nolint:containedctx // made when it is first waited for
	cancel context.CancelFunc
	ended  atomic.Bool
}

// bound bounds one call of the store.
func (c *core) bound(ctx context.Context) *bounded {
	return &bounded{Context: ctx, deadline: time.Now().Add(c.cfg.StoreTimeout)}
}

// deciding bounds one decision with all its calls of the store; nil for a store that never waits.
func (c *core) deciding(ctx context.Context) *bounded {
	if c.immediate != nil {
		return nil
	}
	return &bounded{Context: ctx, deadline: time.Now().Add(c.cfg.DecideWithin)}
}

// or returns the bounded context, or ctx where nothing is bounded.
func (b *bounded) or(ctx context.Context) context.Context {
	if b == nil {
		return ctx
	}
	return b
}

func (b *bounded) arm() context.Context {
	b.once.Do(func() { b.armed, b.cancel = context.WithDeadline(b.Context, b.deadline) })
	return b.armed
}

// Deadline implements context.Context.
func (b *bounded) Deadline() (time.Time, bool) {
	if d, ok := b.Context.Deadline(); ok && d.Before(b.deadline) {
		return d, true
	}
	return b.deadline, true
}

// Done implements context.Context.
func (b *bounded) Done() <-chan struct{} { return b.arm().Done() }

// Err implements context.Context.
func (b *bounded) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	if !time.Now().Before(b.deadline) {
		return context.DeadlineExceeded
	}
	if b.ended.Load() { // what a store derived from it may look later than that
		return context.Canceled
	}
	return nil
}

// end releases what was armed. Nobody may arm it any more.
func (b *bounded) end() {
	if b == nil {
		return
	}
	b.ended.Store(true)
	b.once.Do(func() { b.armed, b.cancel = b.Context, func() {} })
	b.cancel()
}
