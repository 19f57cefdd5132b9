package weir

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/cache"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// storeFailed ends a call that failed, and sorts its error: cause is the store's failure, for which on_unavailable
// decides; err is returned to the caller. An ended context, a mistake, or a missing share of the cell mean nothing for
// the store.
func (d *decision) storeFailed(ctx context.Context, call outage.Call, items []item, failed error) (cause, err error) {
	result := outage.Unknown
	if cause, err = storeFailure(ctx, failed); cause != nil && !errors.Is(cause, policy.ErrShareExpired) {
		if read := (*cache.LateError)(nil); errors.As(failed, &read) {
			call.Called = read.Began
		}
		var own bool
		if result, own = d.lim.outage.Late(call, len(items), failed); own {
			cause, err = nil, overloaded(failed)
		}
	}
	d.lim.outage.End(call, func() outage.Who { return items[0].who(d.lim) }, result)
	return cause, err
}

// who returns whose decision it is, as far as is known.
func (it *item) who(l *Limiter) outage.Who {
	root := l.policies.Root(it.policy, it.req.Entity, it.req.Resource, it.req.usesOwn())
	return outage.Who{Namespace: l.Namespace(), Root: root}
}

func overloaded(err error) error { return &unavailableError{fmt.Errorf("%w: %w", ErrOverloaded, err)} }

// checkShare returns the reason if a request has no share.
func checkShare(req *Request, p *policy.Policy, cause error) error {
	switch {
	case p == nil:
		return unknownLimits(req.Entity, req.Resource, cause)
	case p.Share.Num == 0: // a share that has only expired is the best there is, like the limits
		return &unavailableError{policy.NoShare()}
	}
	return nil
}

// mistake returns the error in a request, unless its entity's own limits are not known: then it may be none.
func mistake(p *policy.Policy, err, cause error) error {
	if err == nil || !p.UsesBroaderLimits {
		return err
	}
	return unknownLimits(p.Entity, p.Resource, cause)
}

func unknownLimits(entity, resource string, cause error) error {
	return &unavailableError{&StoreError{
		Op: "take", Key: fmt.Sprintf("entity %q on resource %q", entity, resource), Err: cause,
		Hint: "the limits are not known to this process, so it cannot admit a share of them",
	}}
}

// onUnavailable returns how to decide a request without the store. The request can only make it stricter.
func (d *decision) onUnavailable(req *Request, p *policy.Policy) OnUnavailable {
	var mode policy.Mode
	if p != nil {
		mode = p.OnUnavailable
	} else {
		mode = d.lim.policies.KnownMode(req.Entity, req.Resource)
	}
	return OnUnavailable(policy.Stricter(mode, policy.Mode(req.OnUnavailable)))
}

// storeFailure sorts an error: cause is the store's failure, err is returned to the caller.
func storeFailure(ctx context.Context, failed error) (cause, err error) {
	var config *ConfigError
	is := func(targets ...error) bool { return is(targets...)(failed) }
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("acquire: %w", ctx.Err())
	case errors.As(failed, &config), is(ErrNoLimits, ErrExceedsBurst, ErrNotFound, ErrClosed, ErrSlotsNeedLease),
		is(policy.ErrNoShare, ErrOfCell, ErrUnknownEntity, ErrBucketQuota): // invented names must not escape all limits
		return nil, failed
	case is(record.ErrUnreadable, store.ErrInvalid, store.ErrDuplicateBucket):
		return nil, publicError(failed) // the store did answer: a bad record, or a bug in weir, must not admit
	case is(store.ErrTooManyOverrides):
		return nil, &ConfigError{Field: "limits", Reason: failed.Error()}
	case is(store.ErrOverflow):
		return nil, &ConfigError{Field: "tokens", Reason: failed.Error()}
	case is(store.ErrStaleLimits):
		return nil, &unavailableError{&StoreError{Op: "take", Err: failed, Hint: "the limits keep changing"}}
	case store.ExtentOf(failed) == store.ExtentCall:
		// The store does answer. If this were admitted, flooding this process would remove all limits.
		return nil, overloaded(failed)
	case is(context.DeadlineExceeded) && store.ExtentOf(failed) != store.ExtentKey:
		hint := "the store did not answer within --decide-within, or Config.DecideWithin (at most Config.StoreTimeout)"
		return &StoreError{Op: "take", Err: failed, Hint: hint}, nil
	case is(store.ErrTooManyBuckets):
		// The store did answer. If this were admitted, inventing ids would fill the store and remove all limits.
		return nil, &unavailableError{&StoreError{Op: "take", Err: failed, Hint: "raise MaxBuckets of the store"}}
	}
	return failed, nil
}
