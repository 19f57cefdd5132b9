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

// orDegrade returns the result of a request that the store did not decide. The plan is nil if it is not known.
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

// orDegradeAll is orDegrade for several requests, which are admitted only if each of them may be. Those that use local
// shares are decided together.
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

// shareAll decides over the shares of several leases; the other leases are admitted already.
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

// taken returns the debits without what was left out because a limit is in shadow.
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

// policy returns how to decide a request without the store.
func (l *Limiter) policy(req *Request, p *plan) Unavailable {
	switch {
	case req.OnUnavailable != UnavailableDefault:
		return req.OnUnavailable
	case p != nil:
		return p.onUnavailable
	}
	return l.knownPolicy(req.Entity, req.Resource, len(req.Limits) == 0)
}

// said is an on_unavailable setting, and where it comes from.
type said struct {
	value Unavailable
	from  string
}

// onUnavailable returns the setting for an entity with these views: that of the first level that has one. If it is not
// known what a level has, the stricter setting counts; a level that cannot be read means Deny.
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
		at   int // index of the view; an entity whose limits are ignored has none
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

// bounded is a context with a deadline. It arms a timer only if something waits for it, which an embedded store rarely
// does.
type bounded struct {
	context.Context //nolint:containedctx // it is a context
	deadline        time.Time

	once   sync.Once
	armed  context.Context //nolint:containedctx // made on first use
	cancel context.CancelFunc
	ended  atomic.Bool
}

// bound bounds one call to the store.
func (c *core) bound(ctx context.Context) *bounded {
	return &bounded{Context: ctx, deadline: time.Now().Add(c.cfg.StoreTimeout)}
}

// deciding bounds one decision with all its calls to the store; it returns nil for a store that never waits.
func (c *core) deciding(ctx context.Context) *bounded {
	if c.immediate != nil {
		return nil
	}
	return &bounded{Context: ctx, deadline: time.Now().Add(c.cfg.DecideWithin)}
}

// or returns the bounded context, or ctx if nothing is bounded.
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
	if b.ended.Load() { // a context that the store derived from it may look later
		return context.Canceled
	}
	return nil
}

// AfterFunc lets contexts derived from this one learn of its end without a goroutine each: see [context.AfterFunc].
func (b *bounded) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(b.arm(), f) }

// end releases the timer. The context can no longer be armed.
func (b *bounded) end() {
	if b == nil {
		return
	}
	b.ended.Store(true)
	b.once.Do(func() { b.armed, b.cancel = b.Context, func() {} })
	b.cancel()
}
