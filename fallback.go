package weir

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/store"
)

// newOutage returns what decides without the store; nil for a store that never waits.
func (c *core) newOutage() *outage.Fallback {
	if c.inProcess != nil {
		return nil
	}
	cfg := outage.Config{
		Entries: c.cfg.CacheEntries, Instances: c.cfg.Instances, Settle: c.store.Settle,
		Keep:     c.cfg.OnUnavailable == OnUnavailableLocal,
		Cooldown: c.cfg.Cooldown, DecideWithin: c.cfg.DecideWithin, StoreTimeout: c.cfg.StoreTimeout,
	}
	if f := c.cfg.Observer.Breaker; f != nil {
		cfg.Changed = func(state string) { f(context.Background(), BreakerEvent{state}) }
	}
	return outage.New(cfg)
}

// answered reports the result of a call to the store, and sorts its error. An ended context, a mistake, or a missing
// share of the cell mean nothing for the store.
func (c *core) answered(ctx context.Context, call outage.Call, failed error) (cause, err error) {
	if failed == nil {
		c.outage.End(call, outage.Succeeded)
		return nil, nil
	}
	cause, err = storeFailure(ctx, failed)
	if cause != nil && !errors.Is(cause, errOldShare) {
		c.outage.End(call, outage.Failed)
	} else {
		c.outage.End(call, outage.Unknown)
	}
	return cause, err
}

// shared returns the reason if a plan has no share.
func shared(entity, resource string, p *plan, cause error) error {
	if p != nil {
		// A share that has only expired is the best there is, like the limits.
		if err := p.usable(); errors.Is(err, errNoShare) {
			return &unavailableError{err}
		}
		return nil
	}
	return unknownLimits(entity, resource, cause)
}

// policy returns how to decide a request without the store.
func (l *Limiter) policy(req *Request, p *plan) OnUnavailable {
	switch {
	case req.OnUnavailable != OnUnavailableDefault:
		return req.OnUnavailable
	case p != nil:
		return p.onUnavailable
	}
	return l.knownPolicy(req.Entity, req.Resource, len(req.Limits) == 0)
}

// policySetting is an on_unavailable setting, and where it comes from.
type policySetting struct {
	value OnUnavailable
	from  string
}

// onUnavailable returns the setting for an entity with these views: that of the first level that has one. A level that
// cannot be read means Deny.
func (c *core) onUnavailable(vs []view) policySetting {
	if vs[0].unreadable {
		return policySetting{OnUnavailableDeny, string(SourceEntity)}
	}
	for _, level := range levels {
		if level.view >= len(vs) {
			continue
		}
		switch v := &vs[level.view]; {
		case v.unreadable:
			return policySetting{OnUnavailableDeny, string(level.source)}
		case v.onUnavailable != OnUnavailableDefault:
			return policySetting{v.onUnavailable, string(level.source)}
		}
	}
	return policySetting{c.cfg.OnUnavailable, "config"}
}

// storeFailure sorts an error: cause is the store's failure, for which on_unavailable decides; err is returned to the
// caller.
func storeFailure(ctx context.Context, failed error) (cause, err error) {
	trouble, err := triage(ctx, failed)
	if trouble {
		return err, nil
	}
	return nil, err
}

// triage reports whether an error is the store's trouble, and the error to return to the caller.
func triage(ctx context.Context, err error) (trouble bool, _ error) {
	var config *ConfigError
	var none *NoLimitsError
	switch {
	case ctx.Err() != nil:
		return false, fmt.Errorf("acquire: %w", ctx.Err())
	case errors.As(err, &config), errors.As(err, &none), errors.Is(err, ErrExceedsBurst), errors.Is(err, ErrNotFound),
		errors.Is(err, ErrClosed), errors.Is(err, errNoShare):
		return false, err
	case errors.Is(err, errUnreadable), errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrDuplicateBucket):
		return false, err // the store did answer: a bad record, or a bug in weir, must not admit
	case errors.Is(err, store.ErrTooManyOverrides):
		return false, &ConfigError{Field: "limits", Reason: err.Error()}
	case errors.Is(err, store.ErrOverflow):
		return false, &ConfigError{Field: "tokens", Reason: err.Error()}
	case errors.Is(err, store.ErrStaleLimits):
		return false, &unavailableError{&StoreError{
			Op: "take", Err: err,
			Hint: "the limits change faster than they can be read",
		}}
	case errors.Is(err, context.DeadlineExceeded):
		return true, &StoreError{
			Op: "take", Err: err,
			Hint: "the store did not answer within Config.DecideWithin, which defaults to Config.StoreTimeout",
		}
	case errors.Is(err, store.ErrTooManyBuckets):
		// The store did answer. If this were admitted, inventing ids would fill the store and remove all limits.
		return false, &unavailableError{&StoreError{Op: "take", Err: err, Hint: "raise MaxBuckets of the store"}}
	}
	return true, err
}
