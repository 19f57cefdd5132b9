package weir

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimits/weir/store"
)

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

// said is an on_unavailable setting, and where it comes from.
type said struct {
	value OnUnavailable
	from  string
}

// onUnavailable returns the setting for an entity with these views: that of the first level that has one. A level that
// cannot be read means Deny.
func (c *core) onUnavailable(vs []view) said {
	if vs[0].unreadable {
		return said{OnUnavailableDeny, string(SourceEntity)}
	}
	for _, level := range []struct {
		at   int // index of the view; an entity whose limits are ignored has none
		from Source
	}{{3, SourceEntity}, {4, SourceEntityDefault}, {2, SourceResource}, {1, SourceSystem}} {
		if level.at >= len(vs) {
			continue
		}
		switch v := &vs[level.at]; {
		case v.unreadable:
			return said{OnUnavailableDeny, string(level.from)}
		case v.onUnavailable != OnUnavailableDefault:
			return said{v.onUnavailable, string(level.from)}
		}
	}
	return said{c.cfg.OnUnavailable, "config"}
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
	case errors.As(err, &config), errors.As(err, &none), errors.Is(err, ErrExceedsBurst), errors.Is(err, ErrNotFound), errors.Is(err, ErrClosed), errors.Is(err, errNoShare):
		return false, err
	case errors.Is(err, errUnreadable), errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrDuplicateBucket):
		return false, err // the store did answer: a bad record, or a bug in weir, must not admit
	case errors.Is(err, store.ErrTooManyOverrides):
		return false, &ConfigError{Field: "limits", Reason: err.Error()}
	case errors.Is(err, store.ErrOverflow):
		return false, &ConfigError{Field: "tokens", Reason: err.Error()}
	case errors.Is(err, store.ErrStaleLimits):
		return false, &unavailableError{&StoreError{Op: "take", Err: err, Hint: "the limits change faster than they can be read"}}
	case errors.Is(err, context.DeadlineExceeded):
		return true, &StoreError{Op: "take", Err: err, Hint: "the store did not answer within Config.DecideWithin, which defaults to Config.StoreTimeout"}
	case errors.Is(err, store.ErrTooManyBuckets):
		// The store did answer. If this were admitted, inventing ids would fill the store and remove all limits.
		return false, &unavailableError{&StoreError{Op: "take", Err: err, Hint: "raise MaxBuckets of the store"}}
	}
	return true, err
}
