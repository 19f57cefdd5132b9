package weir

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// answered reports the result of a call to the store, and sorts its error. An ended context, a mistake, or a missing
// share of the cell mean nothing for the store.
func (d *decision) answered(ctx context.Context, call outage.Call, failed error) (cause, err error) {
	if failed == nil {
		d.lim.outage.End(call, outage.Succeeded)
		return nil, nil
	}
	cause, err = storeFailure(ctx, failed)
	if cause != nil && !errors.Is(cause, policy.ErrShareExpired) {
		d.lim.outage.End(call, outage.Failed)
	} else {
		d.lim.outage.End(call, outage.Unknown)
	}
	return cause, err
}

// shared returns the reason if a request has no share.
func shared(req *Request, p *policy.Policy, cause error) error {
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

// onUnavailable returns how to decide a request without the store.
func (d *decision) onUnavailable(req *Request, p *policy.Policy) OnUnavailable {
	switch {
	case req.OnUnavailable != OnUnavailableDefault:
		return req.OnUnavailable
	case p != nil:
		return OnUnavailable(p.OnUnavailable)
	}
	return OnUnavailable(d.lim.policies.KnownMode(req.Entity, req.Resource, req.usesOwn()))
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
		errors.Is(err, ErrClosed), errors.Is(err, policy.ErrNoShare):
		return false, err
	case errors.Is(err, record.ErrUnreadable), errors.Is(err, store.ErrInvalid),
		errors.Is(err, store.ErrDuplicateBucket):
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
