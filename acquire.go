package weir

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/held"
)

// Acquire spends the request's tokens, and takes its slots, from the entity and from every parent that its chain
// charges, all or none. When it returns a lease, the tokens are spent; the lease can adjust the amount and give it
// back. If slots apply, the caller must end the lease, for example with [Lease.Close].
//
// Errors: [*ExceededError] if a limit refuses (nothing is spent, except what package dynamodb, which decides bucket by
// bucket, cannot give back safely), [*BurstError] if the request can never pass, [*NoLimitsError], [*ConfigError],
// [ErrNotFound] if the namespace does not exist, [ErrUnknownEntity], [ErrBucketQuota], [ErrUnavailable] if the store
// does not answer and on_unavailable is deny, [ErrOverloaded] and [ErrOfCell] whatever on_unavailable is, the context's
// error, [ErrClosed]. After [ErrUnavailable] or the context's error, the tokens may be spent.
func (l *Limiter) Acquire(ctx context.Context, req Request) (*Lease, error) {
	items := [1]item{{req: req}}
	if err := decide(ctx, l, items[:]); err != nil {
		return nil, err
	}
	return items[0].lease, nil
}

// AcquireAll spends the tokens of several requests, all or none, in one atomic decision if the store can make one.
// Requests may share buckets. The leases are in the order of the requests. While the store does not answer, each
// request follows its own on_unavailable, and all are admitted only if each of them is.
//
// The errors are those of [Limiter.Acquire]. An [*ExceededError] has the statuses of all requests. An error about one
// request is wrapped in a [*RequestError].
func (l *Limiter) AcquireAll(ctx context.Context, reqs []Request) ([]*Lease, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	items := make([]item, len(reqs))
	for i := range reqs {
		items[i] = item{req: reqs[i], nth: i + 1}
	}
	if err := decide(ctx, l, items); err != nil {
		return nil, err
	}
	leases := make([]*Lease, len(items))
	for i := range items {
		leases[i] = items[i].lease
	}
	return leases, nil
}

// Allow spends one token of each limit that applies and counts requests: those named rps, rpm, rph, rpd or requests.
// Limits with other names are debited 0. It reports whether the request was allowed; what it spends cannot be given
// back. A refusal is not an error. The errors are those of [Limiter.Acquire], a [*ConfigError] if no limit that applies
// counts requests, and [ErrSlotsNeedLease].
func (l *Limiter) Allow(ctx context.Context, entity, resource string) (bool, error) {
	if allowed, ok := l.allowQuick(ctx, entity, resource); ok {
		return allowed, nil
	}
	items := [1]item{{req: Request{Entity: entity, Resource: resource}, allow: true}}
	err := decide(ctx, l, items[:])
	if err == errRefused { //nolint:errorlint // it is never wrapped
		return false, nil
	}
	return err == nil, err
}

// allowQuick is the common case of Allow on a store that never waits. It halves the time of BenchmarkAllow. If ok is
// false, it has done nothing.
func (l *Limiter) allowQuick(ctx context.Context, entity, resource string) (allowed, ok bool) {
	if l.inProcess == nil || l.meter.WantsNear() || ctx.Err() != nil {
		return false, false
	}
	decided, called := l.cfg.Observer.Decided, l.cfg.Observer.Called
	if decided == nil && called == nil {
		_, allowed, ok = parts.Quick(&l.handle, l.inProcess, entity, resource, nil)
		return allowed, ok
	}
	began := time.Now()
	spent, allowed, ok := parts.Quick(&l.handle, l.inProcess, entity, resource, func() {
		if called != nil {
			called(ctx, CalledEvent{Op: "take", Took: time.Since(began)})
		}
	})
	if ok && decided != nil {
		decided(ctx, DecidedEvent{
			Namespace: l.Namespace(), Entity: entity, Resource: resource, Allowed: allowed,
			Took: time.Since(began), debits: spent,
		})
	}
	return allowed, ok
}

// Wait is like [Limiter.Acquire], but when a limit refuses, it waits until the request is admitted. Waiters on a bucket
// are served first come, first served, within this process; requests that do not wait may still be admitted before
// them. Limits raised and tokens given back by other processes are noticed within [Config.CacheTTL], or a second if
// that is longer, and slots within a second.
//
// If ctx has a deadline that cannot be met, given the waiters ahead, Wait fails at once with an error that is both an
// [*ExceededError] and context.DeadlineExceeded; not for slots. If ctx ends while it waits, Wait returns its error.
func (l *Limiter) Wait(ctx context.Context, req Request) (*Lease, error) {
	if err := req.OnUnavailable.validate("on_unavailable"); err != nil {
		return nil, err
	}
	items := [1]item{{req: req}}
	it := &items[0]
	if err := it.resolveKnown(ctx, l); err != nil {
		return nil, err
	}
	if it.failed != nil {
		if err := decide(ctx, l, items[:]); err != nil {
			return nil, err
		}
		return it.lease, nil
	}
	err := it.prepare(l)
	if err != nil && it.policy.UsesBroaderLimits { // it is not known whether the request can ever pass
		lease, err := l.Acquire(ctx, req)
		if errors.Is(err, ErrExceeded) { // now it is known
			return l.Wait(ctx, req)
		}
		return lease, err
	}
	if err != nil {
		return nil, err // a request that can never pass does not queue
	}
	w := waiter{l.queues.Add(it.debits, held.Requested(it.debits)), l}
	defer l.queues.Leave(w.Waiter)
	for {
		if lease, done, err := w.try(ctx, req); done || err != nil {
			return lease, err
		}
	}
}

// Do acquires a lease and runs f with it. It commits when f returns nil, and rolls back when f returns an error or
// panics. If Acquire fails, Do returns its error without running f. With slots, f should use [Lease.Context].
func (l *Limiter) Do(ctx context.Context, req Request, f func(context.Context, *Lease) error) error {
	lease, err := l.Acquire(ctx, req)
	if err != nil {
		return err
	}
	defer lease.Rollback(ctx) //nolint:errcheck // after the commit it does nothing, after f's error that one counts
	if err := f(ctx, lease); err != nil {
		return err
	}
	if err := lease.Commit(ctx); err != nil && !errors.Is(err, ErrRolledBack) {
		return err
	}
	return nil
}

// adjustedFor is how long the ID of an adjustment is remembered.
const adjustedFor = time.Hour

// Adjust changes what an entity and the parents that its chain charges have spent on a resource, without a lease: for a
// caller that did not acquire the tokens and reports the usage afterwards. Positive Tokens and Requests are debited
// whether they fit or not: a limit may go into debt, which holds later requests back. Negative ones are given back.
//
// Nothing proves that the returned tokens were ever debited: they may be those of another caller. A bucket is never
// more than full, so it admits at most its burst, the tokens issued and the tokens given back. If there is a lease, use
// [Lease.Adjust]. With a [Request.ID], an adjustment that is repeated is applied once.
//
// Adjust returns the balance of each limit that it changed: the entity's, then its parents'.
//
// Adjust makes one call to the store, bounded by [Config.StoreTimeout], even if ctx has ended. After an error other
// than a mistake in the request, an amount to be debited may or may not have been debited, and an amount given back
// counts as given back.
//
// Errors: [*NoLimitsError], [*ConfigError], [*DebtError], [ErrSettled], [ErrNotFound] if the namespace does not exist,
// and store errors, regardless of on_unavailable.
func (l *Limiter) Adjust(ctx context.Context, req Request) ([]Balance, error) {
	ctx = context.WithoutCancel(ctx)
	p, err := l.policyOf(ctx, &req)
	if p == nil { // usage is booked even if the share has expired
		return nil, err
	}
	it := item{req: Request{Limits: req.Limits}, policy: p}
	if err := it.prepare(l); err != nil {
		return nil, err
	}
	lease := it.lease
	if req.ID != "" {
		if err := checkID("id", req.ID); err != nil {
			return nil, err
		}
		lease.token = &issuedToken{id: p.Once(req.ID), expires: time.Now().Add(adjustedFor)}
	}
	delta, err := req.demand().Change(lease.debits)
	if err != nil {
		return nil, publicError(err)
	}
	return lease.Adjust(ctx, delta)
}

// Available returns what an entity can spend on a resource now. It writes nothing, and its result may be out of date as
// soon as it returns: to spend, use [Limiter.Acquire]. The errors are those of Acquire, except refusals; store errors
// are returned regardless of on_unavailable.
func (l *Limiter) Available(ctx context.Context, entity, resource string) (Availability, error) {
	p, err := l.policyOf(ctx, &Request{Entity: entity, Resource: resource})
	if p == nil || err != nil && !errors.Is(err, policy.ErrShareExpired) {
		return Availability{}, err
	}
	it := item{policy: p}
	if err := it.prepare(l); err != nil {
		return Availability{}, err
	}
	d, _, err := it.lease.peek(ctx)
	return Availability{d.At, d.Statuses}, err
}
