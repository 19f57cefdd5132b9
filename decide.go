package weir

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/policy"
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
	merged policy.Merged // empty for a single item
	out    store.Outcome
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
		err = d.without(items, cause)
	default:
		l.outage.Warm(d.debits, &d.out)
		l.meter.Decided(ctx, &meter.Decision{
			Namespace: l.Namespace(), Thresholds: items[0].policy.Thresholds, Debits: d.debits, Outcome: d.out,
		})
	}
	if err == nil {
		err = d.judge(items)
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
	call, ok := l.outage.Begin()
	if !ok {
		return errOpen, nil
	}
	within, end := l.decideWithin(ctx)
	defer end()
	for try := 0; ; try++ {
		err := d.resolve(within, items)
		if err == nil {
			err = d.merge(items)
		}
		if err == nil {
			d.out, err = l.store.Take(within, store.Take{Debits: d.debits})
		}
		for i := range items {
			if err == nil {
				err = items[i].policy.Share.Late(l.cfg.DecideWithin)
			}
		}
		switch {
		case err == nil:
			l.outage.End(call, outage.Succeeded)
			return nil, nil
		case !errors.Is(err, store.ErrStaleLimits) || try == maxStale:
			return d.storeFailed(ctx, call, err)
		}
		for i := range items {
			items[i].policy.Forget()
		}
	}
}

// resolve finds the policy of each item, and prepares its debits. A request without limits is an error only after all
// others were looked up: a caller that tries again without it then finds them cached.
func (d *decision) resolve(ctx context.Context, items []item) error {
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
	d.merged = policy.Merge(all)
	if d.debits = d.merged.Debits; d.merged.Stale {
		return store.ErrStaleLimits
	}
	for _, debit := range d.debits { // sums that can never pass
		for _, c := range debit.Charges {
			if c.Amount > c.Limit.Burst && !c.Shadow {
				return burstError(debit.Bucket, c.Limit, c.Amount/1000)
			}
		}
	}
	return nil
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
		l.outage.Without(outage.Cause(causeOf(cause)))
		if it.policy == nil { // otherwise the ids were checked when it was made
			if err := policy.CheckIDs(it.req.Entity, it.req.Resource); err != nil {
				return it.wrap(publicError(err))
			}
			it.policy = l.policies.Known(it.req.Entity, it.req.Resource, it.req.usesOwn())
		}
		it.debits = nil
		switch d.onUnavailable(&it.req, it.policy) {
		case OnUnavailableAllow:
			it.admit(l, cause)
		case OnUnavailableLocal:
			sharing = true
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
	it.policy = &policy.Policy{Entity: it.req.Entity, Resource: it.req.Resource}
	it.by = &degradation{reason: "the store did not answer: " + cause.Error(), cause: causeOf(cause)}
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
	out, n, ok := d.lim.outage.Take(d.debits)
	if !ok {
		return &unavailableError{&StoreError{
			Op: "take", Err: cause, Hint: "there is no room for more local shares: raise Config.CacheEntries",
		}}
	}
	by := &degradation{reason: "the store did not answer: " + cause.Error(), cause: causeOf(cause), local: true, n: n}
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
func (d *decision) judge(items []item) error {
	d.spread(items)
	if !d.out.Allowed {
		return d.refuse(items)
	}
	for i := range items {
		it := &items[i]
		if !it.allow && it.policy.Shadowed {
			it.lease.leaveOut()
		}
	}
	return nil
}

// spread hands the outcome to the items and their leases.
func (d *decision) spread(items []item) {
	if len(items) == 1 || len(d.out.Levels) == 0 {
		items[0].levels = d.out.Levels
	} else {
		for i, from := range d.merged.From {
			items[i].levels = make([]store.Level, len(from))
			for j, at := range from {
				items[i].levels[j] = d.out.Levels[at]
			}
		}
	}
	for i := range items {
		if le := items[i].lease; le != nil {
			le.at, le.levels, le.degraded = d.out.At, items[i].levels, items[i].by
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
			Allowed: err == nil, Degraded: cause != nil, Cause: causeOf(cause), Err: err,
			Took: time.Since(d.began), Index: max(0, it.nth-1), debits: spent,
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
		if it.debits = it.policy.Requests; it.debits == nil {
			return configErr("resource",
				"%q has no limit named rps, rpm, rph, rpd or requests for entity %q: name the tokens in Acquire",
				it.req.Resource, it.req.Entity)
		}
		return nil
	}
	lease := &Lease{lim: l, policy: it.policy}
	lease.debits = lease.room.debits[:0]
	charges := lease.room.charges[:0]
	if len(it.req.Limits) > 0 { // the policy has only the targets of the parents
		override, err := overriding(it.policy, it.req.Limits)
		if err != nil {
			return err
		}
		lease.debits = append(lease.debits, override)
	}
	for i := range it.policy.Targets {
		t := &it.policy.Targets[i]
		from := len(charges)
		for j := range t.Limits {
			charges = append(charges, store.Charge{Limit: &t.Limits[j], Shadow: t.Shadow.Has(j)})
		}
		lease.debits = append(lease.debits, store.Debit{
			Bucket: t.Bucket, Charges: charges[from:len(charges):len(charges)], Epoch: t.Epoch,
		})
	}
	it.lease, it.debits = lease, lease.debits
	return lease.demand(&it.req)
}

// overriding returns the debit for a request that brings its own limits.
func overriding(p *policy.Policy, limits []Limit) (store.Debit, error) {
	records := make([]record.Limit, len(limits))
	for i, lim := range limits {
		records[i] = lim.record()
	}
	valid, err := record.ValidateLimits(records)
	if err != nil {
		return store.Debit{}, publicError(err)
	}
	stored := make([]store.Limit, len(valid))
	d := store.Debit{Bucket: p.OverrideBucket, Charges: make([]store.Charge, len(valid))}
	for i, lim := range valid {
		if lim.Enforce != record.EnforceOn {
			return store.Debit{}, configErr("limit "+lim.Name+": enforce",
				"must be on: the limits of a request are enforced")
		}
		stored[i] = p.Share.Step().Of(lim.Stored(true))
		d.Charges[i].Limit = &stored[i]
	}
	return d, nil
}

// demand sets the lease's charges to the amounts requested, and refuses those that can never pass.
func (le *Lease) demand(req *Request) error {
	if len(req.Tokens) == 0 && req.Requests == 0 {
		return nil
	}
	named, counted := 0, false
	for i := range le.debits {
		for j := range le.debits[i].Charges {
			c := &le.debits[i].Charges[j]
			n, ok := req.amount(c.Limit.Name)
			if ok && i == 0 {
				named++
			}
			counted = counted || !ok && n != 0
			switch {
			case n == 0:
				continue
			case n < 0:
				return configErr("tokens."+c.Limit.Name, "must not be negative: %d", n)
			case n > MaxTokens:
				return configErr("tokens."+c.Limit.Name, "must be at most %d", int64(MaxTokens))
			case n*1000 > c.Limit.Burst && !c.Shadow:
				return burstError(le.debits[i].Bucket, c.Limit, n)
			}
			c.Amount = n * 1000
		}
	}
	if req.Requests != 0 && !counted {
		return countsNoRequests(le.policy.Entity, le.policy.Resource)
	}
	if named == len(req.Tokens) {
		return nil
	}
	names := le.limitNames()
	for name := range req.Tokens {
		if err := le.checkName(name, names); err != nil {
			return err
		}
	}
	return nil
}

func countsNoRequests(entity, resource string) error {
	return configErr("requests", "entity %q on resource %q has no limit that counts requests"+
		" (named rps, rpm, rph, rpd or requests), apart from those in Tokens", entity, resource)
}

// requested returns the amounts of a lease that was just prepared, by limit name.
func (le *Lease) requested() Tokens {
	requested := make(Tokens)
	for i := range le.debits {
		for _, c := range le.debits[i].Charges {
			if c.Amount > 0 {
				requested[c.Limit.Name] = c.Amount / 1000
			}
		}
	}
	return requested
}

// limitNames returns the names of the lease's limits.
func (le *Lease) limitNames() (names []string) {
	for i := range le.debits {
		for j := range le.debits[i].Charges {
			names = append(names, le.debits[i].Charges[j].Limit.Name)
		}
	}
	return names
}

// checkName returns an error if a limit is not among the names of the lease's.
func (le *Lease) checkName(limit string, names []string) error {
	if slices.Contains(names, limit) {
		return nil
	}
	return configErr("tokens."+limit, "no limit of entity %q on resource %q has this name; its limits are %q",
		le.policy.Entity, le.policy.Resource, names)
}
