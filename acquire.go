package weir

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimits/weir/store"
)

// Acquire spends the request's tokens, from the entity and from every parent that its chain charges, all or none, in
// one atomic decision. When it returns a lease, the tokens are spent; the lease can adjust the amount and give it back.
//
// Errors: [*ExceededError] if a limit refuses (nothing was spent), [*BurstError] if the request can never pass,
// [*NoLimitsError], [*ConfigError], [ErrNotFound] if the namespace does not exist, [ErrUnavailable] if the store does
// not answer and on_unavailable is deny, the context's error, [ErrClosed].
func (l *Limiter) Acquire(ctx context.Context, req Request) (*Lease, error) {
	began := l.core.beginning()
	lease, err := l.acquire(ctx, &req)
	l.tally(ctx, &req, lease, err)
	if l.core.cfg.Observer.Decided != nil {
		l.observeDecision(ctx, began, &req, 0, lease, err)
	}
	return lease, err
}

// maxStale is how often a decision is retried because a bucket follows newer limits than the cached ones.
const maxStale = 4

func (l *Limiter) acquire(ctx context.Context, req *Request) (*Lease, error) {
	if err := req.OnUnavailable.validate("on_unavailable"); err != nil {
		return nil, err
	}
	call, ask := l.core.begin()
	if !ask {
		return l.orDegrade(req, nil, errOpen)
	}
	if req.OnUnavailable == Local {
		l.core.local.want()
	}
	lease, p, err := l.ask(ctx, req)
	trouble, err := l.core.answered(ctx, call, err)
	if !trouble {
		return lease, err
	}
	return l.orDegrade(req, p, err)
}

// ask makes the store decide. With an error it returns the plan, if that is known.
func (l *Limiter) ask(ctx context.Context, req *Request) (*Lease, *plan, error) {
	within := l.core.deciding(ctx)
	defer within.end()
	for try := 0; ; try++ {
		s, p, err := l.plan(within.or(ctx), req.Entity, req.Resource, len(req.Limits) == 0)
		if err != nil {
			return nil, p, err
		}
		lease, err := l.prepare(p, req)
		if err != nil {
			return nil, p, err
		}
		out, err := l.take(within.or(ctx), store.Take{Debits: lease.debits})
		if err == nil {
			err = l.core.late(p.share)
		}
		if err != nil {
			if errors.Is(err, store.ErrStaleLimits) && try < maxStale {
				l.core.forget(s, p)
				continue
			}
			return nil, p, err
		}
		l.core.local.warm(lease.debits, &out)
		lease.at, lease.levels = out.At, out.Levels
		l.observeNear(ctx, p.nearLimit, lease.debits, out)
		if !out.Allowed {
			d := lease.decision(false)
			l.observeShadows(ctx, s, &d)
			return nil, p, &ExceededError{Decision: d}
		}
		if p.shadows {
			lease.leaveOut()
			l.observeShadows(ctx, s, lease.decided)
		}
		return lease, p, nil
	}
}

// Allow spends one token of each limit that applies and counts requests: those named rps, rpm, rph, rpd or requests.
// Limits with other names are debited 0. It reports whether the request was allowed; what it spends cannot be given
// back.
//
// A refusal is not an error. Otherwise the errors are those of [Limiter.Acquire], and a [*ConfigError] if no limit that
// applies counts requests.
func (l *Limiter) Allow(ctx context.Context, entity, resource string) (bool, error) {
	began := l.core.beginning()
	if allowed, n := l.allowQuick(ctx, entity, resource); n != nil {
		if l.core.cfg.Observer.Decided != nil {
			l.observeAllowed(ctx, began, entity, resource, n.plan, allowed, CauseNone, nil)
		}
		return allowed, nil
	}
	p, ok, cause, err := l.allow(ctx, entity, resource)
	if cause != CauseNone && ok {
		l.countDegraded(entity, resource)
	}
	if l.core.cfg.Observer.Decided != nil {
		l.observeAllowed(ctx, began, entity, resource, p, ok, cause, err)
	}
	return ok, err
}

// allow decides by the store or by a local share; it returns the plan, and the cause if the store did not decide.
func (l *Limiter) allow(ctx context.Context, entity, resource string) (_ *plan, ok bool, _ Cause, _ error) {
	call, ask := l.core.begin()
	if !ask {
		p, ok, err := l.allowDegraded(entity, resource, nil, errOpen)
		return p, ok, CauseOpen, err
	}
	p, ok, err := l.askAllow(ctx, entity, resource)
	trouble, err := l.core.answered(ctx, call, err)
	if !trouble {
		return p, ok, CauseNone, err
	}
	cause := causeOf(err)
	p, ok, err = l.allowDegraded(entity, resource, p, err)
	return p, ok, cause, err
}

func countsNoRequests(entity, resource string) error {
	return configErr("resource", "%q has no limit named rps, rpm, rph, rpd or requests for entity %q: name the tokens in Acquire", resource, entity)
}

// askAllow makes the store decide. With an error it returns the plan, if that is known.
func (l *Limiter) askAllow(ctx context.Context, entity, resource string) (_ *plan, ok bool, _ error) {
	within := l.core.deciding(ctx)
	defer within.end()
	for try := 0; ; try++ {
		s, p, err := l.plan(within.or(ctx), entity, resource, true)
		if err != nil {
			return p, false, err
		}
		if p.allow == nil {
			return nil, false, countsNoRequests(entity, resource)
		}
		watched := p.shadows && l.core.watchesShadows() || l.core.near != nil
		out, err := l.take(within.or(ctx), store.Take{Debits: p.allow, Brief: !watched})
		if err == nil {
			err = l.core.late(p.share)
		}
		if err == nil {
			l.core.local.warm(p.allow, &out)
			if watched {
				l.observeNear(ctx, p.nearLimit, p.allow, out)
				l.observeAllow(ctx, p.allow, out)
			}
			if !out.Allowed {
				l.core.tallies.refused(p, &p.refusals)
			}
			return p, out.Allowed, nil
		}
		if !errors.Is(err, store.ErrStaleLimits) || try >= maxStale {
			return p, false, err
		}
		l.core.forget(s, p)
	}
}

// take asks the store for a decision, in the time that the context leaves.
func (l *Limiter) take(ctx context.Context, t store.Take) (store.Outcome, error) {
	c := l.core
	if c.cfg.Observer.Called == nil {
		return c.store.Take(ctx, t)
	}
	began := time.Now()
	out, err := c.store.Take(ctx, t)
	c.observeCall(ctx, "take", began, err)
	return out, err
}

// prepare returns the lease of a request, with the debits that will spend its tokens.
func (l *Limiter) prepare(p *plan, req *Request) (*Lease, error) {
	lease := &Lease{lim: l, plan: p}
	links := p.links
	var own *store.Debit
	if len(req.Limits) > 0 {
		d, err := overriding(p, req.Limits)
		if err != nil {
			return nil, err
		}
		own = &d
	}
	lease.debits = lease.room.debits[:0]
	charges := lease.room.charges[:0]
	if own != nil {
		lease.debits = append(lease.debits, *own) // the plan has only the links of its parents
	}
	for i := range links {
		lk := &links[i]
		from := len(charges)
		for j := range lk.limits {
			charges = append(charges, store.Charge{Limit: &lk.limits[j], Shadow: lk.shadow.has(j)})
		}
		lease.debits = append(lease.debits, store.Debit{
			Bucket: lk.bucket, Charges: charges[from:len(charges):len(charges)], Epoch: lk.epoch, Ref: lk.ref,
		})
	}
	return lease, lease.demand(req)
}

// overriding returns the debit for a request that brings its own limits.
func overriding(p *plan, limits []Limit) (store.Debit, error) {
	valid, err := validateLimits(limits)
	if err != nil {
		return store.Debit{}, err
	}
	stored := make([]store.Limit, len(valid))
	d := store.Debit{Bucket: p.own.bucket, Charges: make([]store.Charge, len(valid)), Ref: p.own.ref}
	for i, lim := range valid {
		if lim.Enforce != EnforceOn {
			return store.Debit{}, configErr("limit "+lim.Name+": enforce", "must be on: the limits of a request are enforced")
		}
		stored[i] = p.share.step().of(lim.stored(true))
		d.Charges[i].Limit = &stored[i]
	}
	return d, nil
}

// demand sets the lease's charges to the amounts that a request asks for, and refuses those that can never pass.
func (le *Lease) demand(req *Request) error {
	if len(req.Tokens) == 0 && req.Requests == 0 {
		return nil
	}
	named, counted := 0, false
	for i := range le.debits {
		for j := range le.debits[i].Charges {
			c := &le.debits[i].Charges[j]
			n, ok := req.Tokens[c.Limit.Name]
			switch {
			case ok && i == 0:
				named++
			case !ok && countsRequests(c.Limit.Name):
				n, counted = req.Requests, true
			}
			switch {
			case n == 0:
				continue
			case n < 0:
				return configErr("tokens."+c.Limit.Name, "must not be negative: %d", n)
			case n > MaxTokens:
				return configErr("tokens."+c.Limit.Name, "must be at most %d", int64(MaxTokens))
			case n*1000 > c.Limit.Burst && !c.Shadow:
				return &BurstError{le.debits[i].Bucket.Entity, le.plan.resource, c.Limit.Name, n, c.Limit.Burst / 1000}
			}
			c.Amount = n * 1000
		}
	}
	if req.Requests != 0 && !counted {
		return configErr("requests", "entity %q on resource %q has no limit that counts requests (named rps, rpm, rph, rpd or requests), apart from those in Tokens", le.plan.entity, le.plan.resource)
	}
	if named == len(req.Tokens) {
		return nil
	}
	for name := range req.Tokens {
		if !le.has(name) {
			return le.unknown(name)
		}
	}
	return nil
}

// asked returns what a lease that was just prepared asks for, by limit name.
func (le *Lease) asked() Tokens {
	asked := make(Tokens)
	for i := range le.debits {
		for _, c := range le.debits[i].Charges {
			if c.Amount > 0 {
				asked[c.Limit.Name] = c.Amount / 1000
			}
		}
	}
	return asked
}

func (le *Lease) has(limit string) bool {
	for i := range le.debits {
		for j := range le.debits[i].Charges {
			if le.debits[i].Charges[j].Limit.Name == limit {
				return true
			}
		}
	}
	return false
}

func (le *Lease) unknown(limit string) error {
	var have []string
	for _, d := range le.debits {
		for _, c := range d.Charges {
			have = append(have, c.Limit.Name)
		}
	}
	return configErr("tokens."+limit, "no limit of entity %q on resource %q has this name; its limits are %q", le.plan.entity, le.plan.resource, have)
}
