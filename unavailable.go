package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
)

// orDegrade is what the caller gets of a decision that the store did not make. The plan is nil if it is not known.
func (l *Limiter) orDegrade(req *Request, p *plan, cause error) (*Lease, error) {
	if l.core.ended.Load() {
		return nil, ErrClosed
	}
	if p == nil {
		p = l.known(req.Entity, req.Resource, len(req.Limits) == 0)
	}
	l.core.countCause(cause)
	switch l.policy(req, p) {
	case Allow:
		return l.degradedLease(req, cause), nil
	case Local:
		return l.share(req, p, cause)
	default:
		return nil, &unavailableError{cause}
	}
}

func (l *Limiter) degradedLease(req *Request, cause error) *Lease {
	return &Lease{
		lim: l, plan: &plan{entity: req.Entity, resource: req.Resource},
		at: time.Now(), degraded: &degradation{reason: "the store did not answer: " + cause.Error(), cause: causeOf(cause)},
	}
}

// orDegradeAll is orDegrade for several requests: they are admitted only if each of them may be. Those of local shares are
// decided over together.
func (l *Limiter) orDegradeAll(reqs []Request, cause error) ([]*Lease, error) {
	if l.core.ended.Load() {
		return nil, ErrClosed
	}
	leases := make([]*Lease, len(reqs))
	var sharing []*Lease
	denied, mistake := false, error(nil)
	for i := range reqs {
		l.core.countCause(cause)
		p := l.known(reqs[i].Entity, reqs[i].Resource, len(reqs[i].Limits) == 0)
		switch l.policy(&reqs[i], p) {
		case Allow:
			leases[i] = l.degradedLease(&reqs[i], cause)
			continue
		case Local:
		default:
			denied = true
			continue
		}
		err := shared(reqs[i].Entity, reqs[i].Resource, p, cause)
		if err == nil {
			leases[i], err = l.prepare(p, &reqs[i])
			err = p.mistake(err, cause)
		}
		if err != nil && mistake == nil {
			mistake = &RequestError{i, err}
		}
		sharing = append(sharing, leases[i])
	}
	switch {
	case denied:
		return nil, &unavailableError{cause}
	case mistake != nil:
		return nil, mistake
	case len(sharing) == 0:
		return leases, nil
	}
	return leases, l.shareAll(leases, sharing, cause)
}

// shareAll decides over the shares of several leases; those of the others were admitted.
func (l *Limiter) shareAll(leases, sharing []*Lease, cause error) error {
	m := merge(sharing)
	if err := m.check(); err != nil {
		for _, le := range sharing {
			err = le.plan.mistake(err, cause)
		}
		return err
	}
	out, by, err := l.takeShare(m.debits, cause)
	if err != nil {
		return err
	}
	m.by = by
	for _, le := range sharing {
		le.degraded = by
		by.goesBy(le.plan)
	}
	d := m.spread(out, sharing, !out.Allowed)
	if !out.Allowed {
		over := &ExceededError{Decision: d}
		if len(sharing) == len(leases) {
			over.Each = m.each(&d)
		}
		return over
	}
	for _, le := range sharing {
		if le.plan.shadows {
			le.leaveOut()
		}
		l.core.local.owe(le.debits)
	}
	return nil
}

// allowDegraded is orDegrade for Allow.
func (l *Limiter) allowDegraded(entity, resource string, p *plan, cause error) (_ *plan, ok bool, _ error) {
	if l.core.ended.Load() {
		return nil, false, ErrClosed
	}
	if p == nil {
		p = l.known(entity, resource, true)
	}
	l.core.countCause(cause)
	switch l.policy(&Request{Entity: entity, Resource: resource}, p) {
	case Allow:
		return nil, true, nil
	case Local:
		if err := shared(entity, resource, p, cause); err != nil {
			return nil, false, err
		}
		if p.allow == nil {
			return nil, false, p.mistake(countsNoRequests(entity, resource), cause)
		}
		out, _, err := l.takeShare(p.allow, cause)
		if err != nil {
			return nil, false, err
		}
		if out.Allowed {
			l.core.local.owe(taken(p.allow, out))
		} else {
			l.core.tallies.refused(p, &p.refusals)
		}
		return p, out.Allowed, nil
	default:
		return nil, false, &unavailableError{cause}
	}
}

// taken returns the debits without what limits in shadow have left out.
func taken(debits []store.Debit, out store.Outcome) []store.Debit {
	if !slices.ContainsFunc(out.Levels, func(lv store.Level) bool { return lv.Refused }) {
		return debits
	}
	debits, n := slices.Clone(debits), 0
	for i := range debits {
		debits[i].Charges = slices.Clone(debits[i].Charges)
		for j := range debits[i].Charges {
			if out.Levels[n].Refused {
				debits[i].Charges[j].Amount = 0
			}
			n++
		}
	}
	return debits
}

// policy is what to do without the store.
func (l *Limiter) policy(req *Request, p *plan) Unavailable {
	switch {
	case req.OnUnavailable != UnavailableDefault:
		return req.OnUnavailable
	case p != nil:
		return p.onUnavailable
	}
	return l.knownPolicy(req.Entity, req.Resource, len(req.Limits) == 0)
}

// said is what is answered when the store does not answer, and who says so.
type said struct {
	value Unavailable
	from  string
}

// onUnavailable returns what is answered of an entity whose views these are: the first level that says it counts. Where it is
// not known what a level says the stricter does, and what nobody can read refuses.
func (c *core) onUnavailable(vs []view) (s said) {
	if vs[0].unreadable {
		return said{Deny, string(SourceEntity)}
	}
	add := func(u Unavailable, from string) {
		if strict := stricter(s.value, u); strict != s.value {
			s = said{strict, from}
		}
	}
	for _, level := range []struct {
		at   int // of the views; an entity that is passed over has none of its own
		from Source
	}{{3, SourceEntity}, {4, SourceEntityDefault}, {2, SourceResource}, {1, SourceSystem}} {
		if level.at >= len(vs) {
			continue
		}
		v := &vs[level.at]
		if v.unreadable {
			add(Deny, string(level.from))
			return s
		}
		add(v.onUnavailable, string(level.from))
		if v.onUnavailable != UnavailableDefault && !v.doubt.policy {
			return s
		}
	}
	add(c.cfg.OnUnavailable, "config")
	return s
}

// triage reports whether an error is the store's trouble, and how the caller is to see it.
func triage(ctx context.Context, err error) (trouble bool, _ error) {
	var config *ConfigError
	var none *NoLimitsError
	switch {
	case ctx.Err() != nil:
		return false, fmt.Errorf("acquire: %w", ctx.Err())
	case errors.As(err, &config), errors.As(err, &none), errors.Is(err, ErrExceedsBurst), errors.Is(err, ErrNotFound), errors.Is(err, ErrClosed), errors.Is(err, errNoShare):
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
