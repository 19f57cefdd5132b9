package weir

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/parts/holds"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/held"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// item is one request of a decision, with what is found out about it.
type item struct {
	req    Request // a copy, so that the caller's stays off the heap
	policy *policy.Policy
	debits []store.Debit
	levels []store.Level // after the decision, by charge
	by     *degradation  // nil if the store decided
	lease  *Lease        // none for Allow
	allow  bool          // for Allow: the policy's prepared debits, and no lease
	nth    int           // position in AcquireAll, from 1; 0 for a single request
	failed error         // an error of a lookup that [Limiter.Wait] made
}

// wrap adds to an error which request of AcquireAll it is about.
func (it *item) wrap(err error) error {
	if err == nil || it.nth == 0 {
		return err
	}
	return &RequestError{it.nth - 1, err}
}

// decision is one decision over the items passed to its methods.
type decision struct {
	lim    *Limiter
	began  time.Time     // zero unless Observer.Decided is set
	debits []store.Debit // each bucket once
	merged held.Merged   // empty for a single item
	sent   time.Time     // when the store was called
	out    store.Outcome
	ended  func() // of a decision over what this process holds; nil for others
}

// maxStale is how often a decision is retried because a bucket follows newer limits than the cached ones.
const maxStale = 4

// errRefused is a refusal of Allow, which is not an error for its caller.
var errRefused = errors.New("refused")

// decide decides over items, all or none. All verbs that spend tokens end here, except for the fast path of Allow.
func decide(ctx context.Context, l *Limiter, items []item) error {
	d := decision{lim: l}
	if l.cfg.Observer.Decided != nil {
		d.began = time.Now()
	}
	cause, err := d.check(ctx, items)
	if err == nil && cause == nil {
		cause, err = d.decideInStore(ctx, items)
	}
	switch {
	case err != nil:
	case cause != nil:
		if err = d.without(items, cause); !errors.Is(err, ErrUnavailable) {
			l.ready.Answered()
		}
	default:
		l.outage.Warm(d.debits, &d.out)
		l.meter.Decided(ctx, &meter.Decision{
			Namespace: l.Namespace(), Thresholds: items[0].policy.Thresholds, Debits: d.debits, Outcome: d.out,
		})
	}
	if err == nil {
		err = d.judge(ctx, items)
	}
	if d.ended != nil {
		d.ended()
	}
	d.report(ctx, items, cause, err)
	return err
}

// check returns the caller's mistake, or the store's failure if a lookup has met it already.
func (d *decision) check(ctx context.Context, items []item) (cause, err error) {
	for i := range items {
		it := &items[i]
		if err := it.req.OnUnavailable.validate("on_unavailable"); err != nil {
			return nil, it.wrap(err)
		}
		if it.req.ID != "" {
			return nil, it.wrap(configErr("id", "is for Adjust"))
		}
		if it.req.OnUnavailable == OnUnavailableLocal {
			d.lim.outage.Want()
		}
	}
	if failed := items[0].failed; failed != nil {
		return storeFailure(ctx, failed)
	}
	return nil, nil
}

// decideInStore makes the store decide. It returns the cause if the store cannot, or the error to return to the caller.
func (d *decision) decideInStore(ctx context.Context, items []item) (cause, err error) {
	l := d.lim
	within, end, err := parts.Of(l).Begin(ctx, len(items))
	if err != nil {
		return nil, err
	}
	defer end()
	who := func() outage.Who { return items[0].who(l) }
	call, ok := l.outage.Begin(within, who)
	if !ok {
		return outage.ErrOpen, nil
	}
	for try := 0; ; try++ {
		err := d.resolve(within, items)
		if err == nil {
			err = d.merge(items)
		}
		if err == nil {
			err = l.holds.Restore(within, d.debits)
		}
		if err == nil {
			d.sent = time.Now()
			call.Called = d.sent
			d.out, err = l.store.Take(within, store.Take{Debits: d.debits})
		}
		for i := range items {
			if err == nil {
				err = items[i].policy.Share.Late(parts.Of(l).Within.Get())
			}
		}
		if back := d.unheld(err); len(back) > 0 {
			_, _ = l.store.Settle(context.WithoutCancel(ctx), store.Settle{Debits: back}) // otherwise they heal
		}
		switch {
		case err == nil:
			l.outage.End(call, who, call.Result(nil))
			return nil, nil
		case !errors.Is(err, store.ErrStaleLimits) || try == maxStale:
			return d.storeFailed(ctx, call, items, err)
		}
		for i := range items {
			items[i].policy.Stale(err)
		}
	}
}

// unheld returns what gives back the slots of a decision that was made, but for nobody because of an error.
func (d *decision) unheld(err error) []store.Debit {
	if err == nil {
		return nil
	}
	return store.GiveBack(d.debits, d.out.Levels)
}

// resolve finds the policy of each item, and prepares its debits. A request without limits is an error only after all
// others were looked up: a caller that tries again without it then finds them cached.
func (d *decision) resolve(ctx context.Context, items []item) error {
	if err := d.lim.policies.Prefetch(ctx, len(items), func(i int) (entity, resource string, own bool) {
		return items[i].req.Entity, items[i].req.Resource, items[i].req.usesOwn()
	}); err != nil {
		return items[0].wrap(resolveError(err))
	}
	var none error
	for i := range items {
		it := &items[i]
		var err error
		it.policy, err = d.lim.policyOf(ctx, &it.req)
		switch {
		case errors.Is(err, ErrNoLimits):
			if none == nil {
				none = it.wrap(err)
			}
			continue
		case err == nil && none == nil:
			err = it.prepare(d.lim)
		}
		if err != nil {
			return it.wrap(err)
		}
	}
	return none
}

// merge adds up the debits of all items: a store accepts each bucket only once.
func (d *decision) merge(items []item) error {
	if len(items) == 1 {
		d.debits = items[0].debits
		return nil
	}
	all := make([][]store.Debit, len(items))
	for i := range items {
		all[i] = items[i].debits
	}
	d.merged = held.Merge(all)
	if d.debits = d.merged.Debits; d.merged.Stale {
		return store.ErrStaleLimits
	}
	return publicError(d.merged.Check())
}

// without decides without the store, each item by its on_unavailable, and admits all or none. The items that use
// local shares are decided together.
func (d *decision) without(items []item, cause error) error {
	l := d.lim
	if l.closing.ended.Load() {
		return ErrClosed
	}
	denied, sharing := false, false
	var wrong error
	for i := range items {
		it := &items[i]
		l.outage.Without(outage.CauseOf(cause), store.ExtentOf(cause))
		if it.policy != nil && it.policy.Over() { // while the store was called
			it.policy = nil
		}
		if it.policy == nil { // otherwise the ids were checked when it was made
			if err := record.CheckIDs(it.req.Entity, it.req.Resource); err != nil {
				return it.wrap(publicError(err))
			}
			it.policy = l.policies.Known(it.req.Entity, it.req.Resource, it.req.usesOwn())
		}
		it.debits = nil
		switch d.onUnavailable(&it.req, it.policy) {
		case OnUnavailableAllow:
			it.admit(l, cause)
		case OnUnavailableLocal:
			sharing, denied = true, denied || l.outage == nil // a store that never waits has no shares
			err := checkShare(&it.req, it.policy, cause)
			if err == nil {
				err = mistake(it.policy, it.prepare(l), cause)
			}
			if wrong == nil {
				wrong = it.wrap(err)
			}
		default:
			denied = true
		}
	}
	d.out = store.Outcome{Allowed: true, At: time.Now()}
	switch {
	case denied:
		return &unavailableError{cause}
	case wrong != nil:
		return wrong
	case !sharing:
		return nil
	}
	return d.decideLocally(items, cause)
}

// admit admits an item without a decision.
func (it *item) admit(l *Limiter, cause error) {
	it.policy = &policy.Policy{Entity: it.req.Entity, Resource: it.req.Resource, Share: new(policy.Share)}
	it.by = &degradation{reason: "the store did not answer: " + cause.Error(), cause: outage.CauseOf(cause)}
	if !it.allow {
		it.lease = &Lease{lim: l, policy: it.policy}
	}
}

// decideLocally decides over this process's shares of the limits.
func (d *decision) decideLocally(items []item, cause error) error {
	if err := d.merge(items); err != nil && !errors.Is(err, store.ErrStaleLimits) {
		for i := range items {
			err = mistake(items[i].policy, err, cause)
		}
		return err
	}
	if slices.ContainsFunc(items, func(it item) bool { return held.HasSlots(it.policy) }) {
		d.ended = d.lim.holds.Decide()
	}
	out, n, ok := d.lim.outage.Take(d.debits, store.ExtentOf(cause))
	if !ok {
		return &unavailableError{&StoreError{
			Op: "take", Err: cause, Hint: "there is no room for more local shares: raise Config.CacheEntries",
		}}
	}
	by := &degradation{
		reason: "the store did not answer: " + cause.Error(), cause: outage.CauseOf(cause), local: true, n: n,
	}
	for i := range items {
		if it := &items[i]; it.by == nil {
			it.by = by
			by.goesBy(it.policy)
		}
	}
	d.out = out
	return nil
}

// judge returns the refusal, or makes the leases hold what was taken.
func (d *decision) judge(ctx context.Context, items []item) error {
	d.spread(ctx, items)
	if !d.out.Allowed {
		return d.refuse(items)
	}
	for i := range items {
		it := &items[i]
		if held.HasSlots(it.policy) {
			goesOn := d.onUnavailable(&it.req, it.policy) != OnUnavailableDeny
			terms := holds.Terms{Ctx: ctx, Who: it.who(d.lim), GoesOn: goesOn}
			d.lim.holds.Add(&it.lease.slots, terms, it.lease.debits, it.lease.levels, d.sent)
		}
		if !it.allow && it.policy.Shadowed {
			it.lease.decisionLocked() // from the amounts that were requested
			held.LeaveOut(it.lease.debits, it.lease.levels)
		}
	}
	return nil
}

// spread hands the outcome to the items and their leases.
func (d *decision) spread(ctx context.Context, items []item) {
	if len(items) == 1 || len(d.out.Levels) == 0 {
		items[0].levels = d.out.Levels
	} else {
		for i := range items {
			items[i].levels = d.merged.Levels(i, d.out.Levels)
		}
	}
	for i := range items {
		if le := items[i].lease; le != nil {
			le.ctx, le.at, le.levels = ctx, d.out.At, items[i].levels //nolint:fatcontext // it is not nested
			le.degraded = items[i].by
			if le.since = d.out.First; le.since.IsZero() {
				le.since = d.out.At
			}
		}
	}
}

// report counts each item that was admitted without the store, and calls Observer.Decided.
func (d *decision) report(ctx context.Context, items []item, cause, err error) {
	l, f := d.lim, d.lim.cfg.Observer.Decided
	for i := range items {
		it := &items[i]
		if err == nil && it.by != nil {
			if id := l.policies.LastID(); id != "" { // otherwise the namespace is not known
				b := store.Bucket{Namespace: id, Entity: it.req.Entity, Resource: it.req.Resource}
				l.meter.Request(b, time.Now(), false)
			}
		}
		spent := it.spent(err)
		if spent != nil {
			l.meter.Debited(l.Namespace(), *spent, it.policy.Share.Num, it.policy.Share.Den)
		}
		if f == nil {
			continue
		}
		e := DecidedEvent{
			Namespace: l.Namespace(), Entity: it.req.Entity, Resource: it.req.Resource,
			Allowed: err == nil, Degraded: cause != nil, Cause: outage.CauseOf(cause), Err: err,
			Local: it.by != nil && it.by.local,
			Took:  time.Since(d.began), Index: max(0, it.nth-1), debits: spent,
		}
		if err == errRefused { //nolint:errorlint // it is never wrapped
			e.Err = nil
		}
		f(ctx, e)
	}
}

// spent returns what an item was debited; nil if it was refused, or admitted without a decision.
func (it *item) spent(err error) *[]store.Debit {
	switch {
	case err != nil || it.by.free():
		return nil
	case it.allow:
		return &it.policy.Requests
	}
	return &it.lease.debits
}

// prepare makes the debits that will spend an item's tokens. An error is a mistake in the request.
func (it *item) prepare(l *Limiter) error {
	if it.allow {
		if held.HasSlots(it.policy) {
			return ErrSlotsNeedLease
		}
		if it.debits = it.policy.Requests; it.debits == nil {
			return configErr("resource",
				"%q has no limit named rps, rpm, rph, rpd or requests for entity %q: name the tokens in Acquire",
				it.req.Resource, it.req.Entity)
		}
		return nil
	}
	lease := &Lease{lim: l, policy: it.policy}
	lease.debits = lease.room.debits[:0]
	if len(it.req.Limits) > 0 { // the policy has only the targets of the parents
		limits := make([]record.Limit, len(it.req.Limits))
		for i, lim := range it.req.Limits {
			limits[i] = lim.record()
		}
		override, err := it.policy.Override(limits)
		if err != nil {
			return publicError(err)
		}
		lease.debits = append(lease.debits, override)
	}
	lease.debits = held.Append(lease.debits, it.policy, lease.room.charges[:0])
	it.lease, it.debits = lease, lease.debits
	return publicError(it.req.demand().Set(lease.debits))
}
