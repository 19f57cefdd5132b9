package weir

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

// part is one request of a decision.
type part struct {
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
func (pt *part) wrap(err error) error {
	if err == nil || pt.nth == 0 {
		return err
	}
	return &RequestError{pt.nth - 1, err}
}

// decision is one decision over the parts passed to its methods.
type decision struct {
	lim    *Limiter
	began  time.Time     // zero unless Observer.Decided is set
	debits []store.Debit // each bucket once
	merged merged        // empty for a single part
	out    store.Outcome
}

// maxStale is how often a decision is retried because a bucket follows newer limits than the cached ones.
const maxStale = 4

// errRefused is a refusal of Allow, which is not an error for its caller.
var errRefused = errors.New("refused")

// decide decides over parts, all or none. All verbs that spend tokens end here, except for the fast path of Allow.
func decide(ctx context.Context, l *Limiter, parts []part) error {
	d := decision{lim: l, began: l.beginning()}
	cause, err := d.check(ctx, parts)
	if err == nil && cause == nil {
		cause, err = d.decideInStore(ctx, parts)
	}
	switch {
	case err != nil:
	case cause != nil:
		err = d.without(parts, cause)
	default:
		l.outage.Warm(d.debits, &d.out)
		d.record(ctx, parts)
	}
	if err == nil {
		err = d.judge(parts)
	}
	d.report(ctx, parts, cause, err)
	return err
}

// check returns the caller's mistake, or the store's failure if a lookup has met it already.
func (d *decision) check(ctx context.Context, parts []part) (cause, err error) {
	for i := range parts {
		pt := &parts[i]
		if err := pt.req.OnUnavailable.validate("on_unavailable"); err != nil {
			return nil, pt.wrap(err)
		}
		if pt.req.OnUnavailable == OnUnavailableLocal {
			d.lim.outage.Want()
		}
	}
	if failed := parts[0].failed; failed != nil {
		return storeFailure(ctx, failed)
	}
	return nil, nil
}

// decideInStore makes the store decide. It returns the cause if the store cannot, or the error to return to the caller.
func (d *decision) decideInStore(ctx context.Context, parts []part) (cause, err error) {
	l := d.lim
	call, ok := l.outage.Begin()
	if !ok {
		return errOpen, nil
	}
	within, end := l.decideWithin(ctx)
	defer end()
	for try := 0; ; try++ {
		err := d.resolve(within, parts)
		if err == nil {
			err = d.merge(parts)
		}
		if err == nil {
			d.out, err = l.store.Take(within, store.Take{Debits: d.debits})
		}
		for i := range parts {
			if err == nil {
				err = parts[i].policy.Share.Late(l.cfg.DecideWithin)
			}
		}
		if !errors.Is(err, store.ErrStaleLimits) || try == maxStale {
			return d.answered(ctx, call, err)
		}
		for i := range parts {
			parts[i].policy.Forget()
		}
	}
}

// resolve finds the policy of each part, and prepares its debits. A request without limits is an error only after all
// others were looked up: a caller that tries again without it then finds them cached.
func (d *decision) resolve(ctx context.Context, parts []part) error {
	var none error
	for i := range parts {
		pt := &parts[i]
		var err error
		pt.policy, err = d.lim.resolve(ctx, &pt.req)
		switch {
		case errors.Is(err, ErrNoLimits):
			if none == nil {
				none = pt.wrap(err)
			}
			continue
		case err == nil && none == nil:
			err = pt.prepare(d.lim)
		}
		if err != nil {
			return pt.wrap(err)
		}
	}
	return none
}

// merge collects the debits of all parts.
func (d *decision) merge(parts []part) error {
	if len(parts) == 1 {
		d.debits = parts[0].debits
		return nil
	}
	d.merged = merge(parts)
	d.debits = d.merged.debits
	if d.merged.stale {
		return store.ErrStaleLimits
	}
	return d.merged.check()
}

// without decides without the store, each part as its on_unavailable says, and admits all or none. The parts that use
// local shares are decided together.
func (d *decision) without(parts []part, cause error) error {
	l := d.lim
	if l.closing.ended.Load() {
		return ErrClosed
	}
	denied, sharing := false, false
	var wrong error
	for i := range parts {
		pt := &parts[i]
		l.outage.Without(outage.Cause(causeOf(cause)))
		if pt.policy == nil {
			pt.policy = l.policies.Known(pt.req.Entity, pt.req.Resource, pt.req.usesOwn())
		}
		pt.debits = nil
		switch d.onUnavailable(&pt.req, pt.policy) {
		case OnUnavailableAllow:
			pt.admit(l, cause)
		case OnUnavailableLocal:
			sharing = true
			err := shared(&pt.req, pt.policy, cause)
			if err == nil {
				err = mistake(pt.policy, pt.prepare(l), cause)
			}
			if wrong == nil {
				wrong = pt.wrap(err)
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
	return d.share(parts, cause)
}

// admit admits a part without a decision.
func (pt *part) admit(l *Limiter, cause error) {
	pt.policy = &policy.Policy{Entity: pt.req.Entity, Resource: pt.req.Resource}
	pt.by = &degradation{reason: "the store did not answer: " + cause.Error(), cause: causeOf(cause)}
	if !pt.allow {
		pt.lease = &Lease{lim: l, policy: pt.policy}
	}
}

// share decides over this process's shares of the limits.
func (d *decision) share(parts []part, cause error) error {
	if err := d.merge(parts); err != nil && !errors.Is(err, store.ErrStaleLimits) {
		for i := range parts {
			err = mistake(parts[i].policy, err, cause)
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
	for i := range parts {
		if pt := &parts[i]; pt.by == nil {
			pt.by = by
			by.goesBy(pt.policy)
		}
	}
	d.out = out
	return nil
}

// record counts and reports a decision of the store.
func (d *decision) record(ctx context.Context, parts []part) {
	p := parts[0].policy
	shadows := p.Shadowed
	for i := range parts[1:] {
		shadows = shadows || parts[i+1].policy.Shadowed
	}
	d.lim.meter.Decided(ctx, &meter.Decision{
		Namespace: d.lim.Namespace(), Thresholds: p.Thresholds, Shadows: shadows, Debits: d.debits, Outcome: d.out,
	})
}

// judge returns the refusal, or makes the leases hold what was taken.
func (d *decision) judge(parts []part) error {
	d.spread(parts)
	if !d.out.Allowed {
		return d.refuse(parts)
	}
	for i := range parts {
		pt := &parts[i]
		if !pt.allow && pt.policy.Shadowed {
			pt.lease.leaveOut()
		}
	}
	return nil
}

// refuse counts a refusal, and returns its error.
func (d *decision) refuse(parts []part) error {
	m := d.lim.meter
	if pt := &parts[0]; pt.allow {
		d.lim.countRefusal(pt.policy)
		return errRefused
	}
	for i := range parts {
		m.Request(parts[i].policy.Bucket(), d.out.At, true)
	}
	m.Refused(d.debits, &d.out)
	if len(parts) == 1 {
		over := &ExceededError{Decision: parts[0].lease.decision(false)}
		if parts[0].nth > 0 {
			over.Each = []Decision{over.Decision}
		}
		return over
	}
	over := &ExceededError{Decision: d.refusal(parts)}
	if !slices.ContainsFunc(parts, func(pt part) bool { return pt.by.free() }) {
		over.Each = d.each(&over.Decision, parts)
	}
	return over
}

// report counts each part that was admitted without the store, and calls Observer.Decided.
func (d *decision) report(ctx context.Context, parts []part, cause, err error) {
	f := d.lim.cfg.Observer.Decided
	for i := range parts {
		pt := &parts[i]
		if err == nil && pt.by != nil {
			d.lim.countDegraded(&pt.req)
		}
		spent := pt.spent(err)
		if spent != nil {
			d.lim.debited(*spent, pt.policy)
		}
		if f == nil {
			continue
		}
		e := DecidedEvent{
			Namespace: d.lim.Namespace(), Entity: pt.req.Entity, Resource: pt.req.Resource,
			Allowed: err == nil, Degraded: cause != nil, Cause: causeOf(cause), Err: err,
			Took: time.Since(d.began), Part: max(0, pt.nth-1), debits: spent,
		}
		if err == errRefused { //nolint:errorlint // it is never wrapped
			e.Err = nil
		}
		f(ctx, e)
	}
}

// spent returns what a part was debited; nil if it was refused, or admitted without a decision.
func (pt *part) spent(err error) *[]store.Debit {
	switch {
	case err != nil || pt.by.free():
		return nil
	case pt.allow:
		return &pt.policy.Requests
	}
	return &pt.lease.debits
}

// prepare makes the debits that will spend a part's tokens. An error is a mistake in the request.
func (pt *part) prepare(l *Limiter) error {
	if pt.allow {
		if pt.debits = pt.policy.Requests; pt.debits == nil {
			return configErr("resource",
				"%q has no limit named rps, rpm, rph, rpd or requests for entity %q: name the tokens in Acquire",
				pt.req.Resource, pt.req.Entity)
		}
		return nil
	}
	lease := &Lease{lim: l, policy: pt.policy}
	lease.debits = lease.room.debits[:0]
	charges := lease.room.charges[:0]
	if len(pt.req.Limits) > 0 { // the policy has only the targets of the parents
		own, err := overriding(pt.policy, pt.req.Limits)
		if err != nil {
			return err
		}
		lease.debits = append(lease.debits, own)
	}
	for i := range pt.policy.Targets {
		t := &pt.policy.Targets[i]
		from := len(charges)
		for j := range t.Limits {
			charges = append(charges, store.Charge{Limit: &t.Limits[j], Shadow: t.Shadow.Has(j)})
		}
		lease.debits = append(lease.debits, store.Debit{
			Bucket: t.Bucket, Charges: charges[from:len(charges):len(charges)], Epoch: t.Epoch,
		})
	}
	pt.lease, pt.debits = lease, lease.debits
	return lease.demand(&pt.req)
}

// overriding returns the debit for a request that brings its own limits.
func overriding(p *policy.Policy, limits []Limit) (store.Debit, error) {
	valid, err := validateLimits(limits)
	if err != nil {
		return store.Debit{}, err
	}
	stored := make([]store.Limit, len(valid))
	d := store.Debit{Bucket: p.Own, Charges: make([]store.Charge, len(valid))}
	for i, lim := range valid {
		if lim.Enforce != EnforceOn {
			return store.Debit{}, configErr("limit "+lim.Name+": enforce",
				"must be on: the limits of a request are enforced")
		}
		stored[i] = p.Share.Step().Of(lim.stored(true))
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
			case !ok && policy.CountsRequests(c.Limit.Name):
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
				b := &le.debits[i].Bucket
				return &BurstError{b.Entity, b.Resource, c.Limit.Name, n, c.Limit.Burst / 1000}
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
	for name := range req.Tokens {
		if !le.has(name) {
			return le.unknown(name)
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
	return configErr("tokens."+limit, "no limit of entity %q on resource %q has this name; its limits are %q",
		le.policy.Entity, le.policy.Resource, have)
}
