package weir

import (
	"context"
	"errors"

	"github.com/weirlimits/weir/store"
)

// AcquireAll spends the tokens of several requests, all or none, in one atomic decision if the store can make one.
// Requests may share buckets. The leases are in the order of the requests. While the store does not answer, each
// request follows its own on_unavailable, and all are admitted only if each of them is.
//
// The errors are those of [Limiter.Acquire]. An [*ExceededError] has the statuses of all requests. An error about one
// request is wrapped in a [*RequestError].
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
		if reqs[i].OnUnavailable == Local {
			l.core.local.want()
		}
	}
	call, ask := l.core.begin()
	if !ask {
		return l.orDegradeAll(reqs, errOpen)
	}
	leases, err := l.askAll(ctx, reqs)
	trouble, err := l.core.answered(ctx, call, err)
	if !trouble {
		return leases, err
	}
	return l.orDegradeAll(reqs, err)
}

// askAll makes the store decide.
func (l *Limiter) askAll(ctx context.Context, reqs []Request) ([]*Lease, error) {
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
			case errors.Is(err, ErrNoLimits): // read the others first: a caller that retries without this request then finds them cached
				if none == nil {
					none = &RequestError{i, err}
				}
				continue
			case err != nil:
				if p != nil { // only its share is too old
					leases[i] = &Lease{lim: l, plan: p}
				}
				return nil, &RequestError{i, err}
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
		for i := range leases {
			if err == nil {
				err = l.core.late(leases[i].plan.share)
			}
		}
		if err != nil {
			if errors.Is(err, store.ErrStaleLimits) && try < maxStale {
				for _, le := range leases {
					l.core.forget(s, le.plan)
				}
				continue
			}
			return nil, err
		}
		l.core.local.warm(m.debits, &out)
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
