package weir

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimits/weir/store"
)

// Acquire spends the request's tokens, of the entity and of every parent that its chain charges, all or none, in one
// atomic decision. When it returns a lease the tokens are spent; the lease can adjust the amount and give it back.
//
// Errors: [*ExceededError] when a limit refuses (nothing was spent), [*BurstError] when the request can never pass,
// [*NoLimitsError], [*ConfigError], [ErrUnavailable] when the store does not answer and on_unavailable is deny, the
// context's error, [ErrClosed].
func (l *Limiter) Acquire(ctx context.Context, req Request) (*Lease, error) {
	began := l.core.beginning()
	lease, err := l.acquire(ctx, &req)
	l.tally(ctx, &req, lease, err)
	if l.core.cfg.Observer.Decided != nil {
		l.observeDecision(ctx, began, &req, 0, lease, err)
	}
	return lease, err
}

// maxStale is how often a decision is tried again because a bucket follows newer limits than were known.
const maxStale = 4

func (l *Limiter) acquire(ctx context.Context, req *Request) (*Lease, error) {
	if err := req.OnUnavailable.validate("on_unavailable"); err != nil {
		return nil, err
	}
	within := l.core.deciding(ctx)
	defer within.end()
	for try := 0; ; try++ {
		s, p, err := l.plan(within.or(ctx), req.Entity, req.Resource, len(req.Limits) == 0)
		if err != nil {
			return l.orDegrade(ctx, req, nil, err)
		}
		lease, err := l.prepare(p, req)
		if err != nil {
			return nil, err
		}
		out, err := l.take(within.or(ctx), store.Take{Debits: lease.debits})
		if err != nil {
			if errors.Is(err, store.ErrStaleLimits) && try < maxStale {
				l.core.forget(s, p)
				continue
			}
			return l.orDegrade(ctx, req, p, err)
		}
		lease.at, lease.levels = out.At, out.Levels
		l.observeNear(ctx, p.nearLimit, lease.debits, out)
		if !out.Allowed {
			d := lease.decision(false)
			l.observeShadows(ctx, s, &d)
			return nil, &ExceededError{Decision: d}
		}
		if p.shadows {
			lease.leaveOut()
			l.observeShadows(ctx, s, lease.decided)
		}
		return lease, nil
	}
}

// Allow spends one token of each limit that applies and counts requests: those named rps, rpm, rph, rpd or requests.
// Limits of other names are debited 0. It reports whether that was allowed; what is spent cannot be given back.
//
// A refusal is not an error. The errors are those of [Limiter.Acquire] otherwise, and a [*ConfigError] when no limit
// that applies counts requests.
func (l *Limiter) Allow(ctx context.Context, entity, resource string) (bool, error) {
	began := l.core.beginning()
	if allowed, n := l.allowQuick(ctx, entity, resource); n != nil {
		if l.core.cfg.Observer.Decided != nil {
			l.observeAllowed(ctx, began, entity, resource, n.plan, allowed, false, nil)
		}
		return allowed, nil
	}
	p, ok, degraded, err := l.allow(ctx, entity, resource)
	if degraded && ok {
		l.countDegraded(entity, resource)
	}
	if l.core.cfg.Observer.Decided != nil {
		l.observeAllowed(ctx, began, entity, resource, p, ok, degraded, err)
	}
	return ok, err
}

// allow returns the plan with a decision of the store.
func (l *Limiter) allow(ctx context.Context, entity, resource string) (_ *plan, ok, degraded bool, err error) {
	within := l.core.deciding(ctx)
	defer within.end()
	for try := 0; ; try++ {
		s, p, err := l.plan(within.or(ctx), entity, resource, true)
		if err != nil {
			ok, degraded, err = l.allowDegraded(ctx, nil, err)
			return nil, ok, degraded, err
		}
		if p.allow == nil {
			return nil, false, false, configErr("resource", "%q has no limit named rps, rpm, rph, rpd or requests for entity %q: name the tokens in Acquire", resource, entity)
		}
		watched := p.shadows && l.core.watchesShadows() || l.core.near != nil
		out, err := l.take(within.or(ctx), store.Take{Debits: p.allow, Brief: !watched})
		if err == nil {
			if watched {
				l.observeNear(ctx, p.nearLimit, p.allow, out)
				l.observeAllow(ctx, p.allow, out)
			}
			if !out.Allowed {
				l.core.tallies.refused(p, &p.refusals)
			}
			return p, out.Allowed, false, nil
		}
		if !errors.Is(err, store.ErrStaleLimits) || try >= maxStale {
			ok, degraded, err = l.allowDegraded(ctx, p, err)
			return nil, ok, degraded, err
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

// prepare makes the lease of a request, with the debits that will spend its tokens.
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
		lease.debits = append(lease.debits, *own) // the plan has only its parents' links
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

// overriding returns the debit of a request that brings its entity's limits along.
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
		stored[i] = lim.stored(true)
		d.Charges[i].Limit = &stored[i]
	}
	return d, nil
}

// demand puts the amounts that a request asks for into the lease's charges, and refuses what can never be.
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
		return configErr("requests", "no limit that Tokens does not name counts requests for entity %q on resource %q: it would be named rps, rpm, rph, rpd or requests", le.plan.entity, le.plan.resource)
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

// asked returns what a lease that was just prepared asks for, by the names of limits.
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
	return configErr("tokens."+limit, "no limit of entity %q on resource %q has this name; there are %q", le.plan.entity, le.plan.resource, have)
}

// AcquireAll spends the tokens of several requests, all or none, in one atomic decision where the store can make one.
// Requests may share buckets. The leases are in the order of the requests.
//
// The errors are those of [Limiter.Acquire]; an [*ExceededError] has the statuses of all requests, and a
// [*RequestError] around what is wrong with one of them says with which.
func (l *Limiter) AcquireAll(ctx context.Context, reqs []Request) ([]*Lease, error) {
	began := l.core.beginning()
	leases, err := l.acquireAll(ctx, reqs)
	l.tallyAll(ctx, reqs, leases, err)
	if l.core.cfg.Observer.Decided != nil {
		for i := range reqs {
			var lease *Lease
			if err == nil {
				lease = leases[i]
			}
			l.observeDecision(ctx, began, &reqs[i], i, lease, err)
		}
	}
	return leases, err
}

func (l *Limiter) acquireAll(ctx context.Context, reqs []Request) ([]*Lease, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	for i := range reqs {
		if err := reqs[i].OnUnavailable.validate("on_unavailable"); err != nil {
			return nil, &RequestError{i, err}
		}
	}
	within := l.core.deciding(ctx)
	defer within.end()
	for try := 0; ; try++ {
		leases := make([]*Lease, len(reqs))
		var s *space
		var none error // the first request to which no limits apply
		for i := range reqs {
			var p *plan
			var err error
			s, p, err = l.plan(within.or(ctx), reqs[i].Entity, reqs[i].Resource, len(reqs[i].Limits) == 0)
			switch {
			case errors.Is(err, ErrNoLimits): // who leaves it out and asks again is to find the others read
				if none == nil {
					none = &RequestError{i, err}
				}
				continue
			case err != nil:
				return l.orDegradeAll(ctx, reqs, leases, &RequestError{i, err})
			case none != nil:
				continue
			}
			if leases[i], err = l.prepare(p, &reqs[i]); err != nil {
				return nil, &RequestError{i, err}
			}
		}
		if none != nil {
			return nil, none
		}
		m := merge(leases)
		out, err := store.Outcome{}, store.ErrStaleLimits
		if !m.stale {
			if err := m.check(); err != nil {
				return nil, err
			}
			out, err = l.take(within.or(ctx), store.Take{Debits: m.debits})
		}
		if err != nil {
			if errors.Is(err, store.ErrStaleLimits) && try < maxStale {
				for _, le := range leases {
					l.core.forget(s, le.plan)
				}
				continue
			}
			return l.orDegradeAll(ctx, reqs, leases, err)
		}
		d := m.spread(out, leases, !out.Allowed || l.core.cfg.Observer.WouldRefuse != nil)
		l.observeNear(ctx, leases[0].plan.nearLimit, m.debits, out)
		l.observeShadows(ctx, s, &d)
		if !out.Allowed {
			return nil, &ExceededError{d, m.each(&d)}
		}
		for _, le := range leases {
			if le.plan.shadows {
				le.leaveOut()
			}
		}
		return leases, nil
	}
}
