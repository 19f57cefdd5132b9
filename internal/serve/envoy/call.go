package envoy

import (
	"context"
	"errors"
	"slices"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
)

const (
	codeOK   = rlsv3.RateLimitResponse_OK
	codeOver = rlsv3.RateLimitResponse_OVER_LIMIT
)

// call is one request of Envoy that is being answered.
type call struct {
	s   *Service
	lim *view
	buf *buffers

	domain   string
	began    time.Time
	requests []request // what to decide, all or none
	settles  []request // what to return, or to debit by force, once requests are admitted

	over     bool
	degraded bool
	bound    int64 // how much may be admitted beyond the limits, if degraded; -1 for no bound
	reason   reason
	retry    time.Duration // minimum time to wait
	statuses []weir.LimitStatus
}

// request is the request of a descriptor.
type request struct {
	at   int // index of the descriptor
	req  weir.Request
	peek bool // requests one token without debiting it

	negative bool // returns tokens
}

func newCall(s *Service, lim *view, n int) *call {
	buf := newBuffers(n)
	c := &buf.call
	c.s, c.lim, c.buf, c.began, c.requests = s, lim, buf, time.Now(), buf.requests[:0]
	return c
}

var (
	use         = []auth.Permission{auth.Envoy}
	useOverride = []auth.Permission{auth.Envoy, auth.Override}
	useReturn   = []auth.Permission{auth.Envoy, auth.Return}
)

// access returns what a call needs that concerns no particular entity.
func (c *call) access() auth.Access {
	return auth.Access{Role: auth.Acquire, Namespace: c.lim.Namespace(), Permissions: use}
}

// add adds what a descriptor requests, and returns what that needs. ok is false if the mapping does not have the
// descriptor.
func (c *call) add(at int, m *Mapping, d *ratelimitv3.RateLimitDescriptor, hits uint32) (access auth.Access, ok bool) {
	access = c.access()
	t, ok := m.Target(c.domain, d)
	if !ok {
		return access, false
	}
	access.Entity, access.Resource = t.Entity, t.Resource
	n := uint64(max(hits, 1))
	if w := d.GetHitsAddend(); w != nil {
		n = w.GetValue()
	}
	a := request{at: at, req: weir.Request{Entity: t.Entity, Resource: t.Resource}}
	negative := d.GetIsNegativeHits()
	a.negative, a.peek = negative, n == 0 && !negative && !t.Forced
	if n > weir.MaxTokens {
		if !negative && !t.Forced {
			c.refuse(at, reasonBurst)
			return access, true
		}
		n = weir.MaxTokens // more than any bucket holds
	}
	if o := d.GetLimit(); o != nil && o.GetUnit() != typev3.RateLimitUnit_UNKNOWN {
		access.Permissions = useOverride
		if o.GetRequestsPerUnit() == 0 {
			if !negative && !t.Forced {
				c.refuse(at, reasonNothing)
				return access, true
			}
			c.buf.status[at].Code = codeOK
			return access, true // nothing can be spent from a limit that allows nothing
		}
		t.tokens = slices.DeleteFunc(slices.Clone(t.tokens), func(a amount) bool { return a.fixed > 0 })
		name := "requests"
		if len(t.tokens) > 0 {
			name, t.tokens = t.tokens[0].limit, t.tokens[:1]
		}
		a.req.Limits = []weir.Limit{overrideOf(name, o)}
	}
	amount := int64(n)
	if negative {
		amount = -amount
	}
	a.demand(t.tokens, amount)
	if negative || t.Forced {
		c.buf.status[at].Code = codeOK
		c.settles = append(c.settles, a)
		return access, true
	}
	c.requests = append(c.requests, a)
	return access, true
}

func (a *request) demand(tokens []amount, hits int64) {
	if len(tokens) == 0 {
		a.req.Requests = hits
		return
	}
	a.req.Tokens = make(weir.Tokens, len(tokens))
	for _, t := range tokens {
		n := hits
		if t.fixed > 0 {
			if n = t.fixed; hits <= 0 { // a peek, or a return of as many times the amount
				n = max(hits, -1) * t.fixed
			}
		}
		a.req.Tokens[t.limit] = n
	}
}

// refuse marks a descriptor as over its limit.
func (c *call) refuse(at int, why reason) {
	c.buf.status[at].Code = codeOver
	c.over, c.reason = true, why
}

// refuseWhere marks the requests for which f holds as over their limits, or all requests if f holds for none.
func (c *call) refuseWhere(f func(*request) bool, why reason) {
	for i := range c.requests {
		if a := &c.requests[i]; f(a) {
			c.refuse(a.at, why)
		} else {
			c.buf.status[a.at].Code = codeOK
		}
	}
	if !c.over {
		c.refuseWhere(func(*request) bool { return true }, why)
	}
}

// decide gets the decision from the limiter. The only errors are that the caller has gone, or that there are too many.
func (c *call) decide(ctx context.Context) error {
	if c.over { // something can never be admitted, so the limiter need not decide
		for i := range c.requests {
			c.buf.status[c.requests[i].at].Code = codeOK
		}
		return nil
	}
	leases, err := c.acquire(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, decide.ErrOverloaded):
		return status.Error(codes.Unavailable, err.Error())
	default:
		return nil
	}
	if c.over { // a peek found nothing left, so what others were debited is returned
		return c.settleAll(ctx, leases, nil)
	}
	for i, lease := range leases {
		if !lease.Degraded() && !c.trusted(ctx, &c.requests[i]) {
			c.lim.recentDebits.add(&c.requests[i])
		}
	}
	return c.settleAll(ctx, nil, c.settles)
}

// trusted reports whether the caller may return what a request has taken without a record of it.
func (c *call) trusted(ctx context.Context, a *request) bool {
	access := c.access()
	access.Entity, access.Resource, access.Permissions = a.req.Entity, a.req.Resource, useReturn
	return c.s.cfg.May(ctx, access)
}

// returnable lowers what a request returns to what its descriptor took lately. It returns false if nothing is left.
func (c *call) returnable(ctx context.Context, a *request) bool {
	if !a.negative || c.trusted(ctx, a) {
		return true
	}
	all, some := c.lim.recentDebits.bound(a)
	if !all {
		c.reason = reasonReturn
	}
	return some
}

// acquire gets a decision on the requests, leaving out those that turn out to be unknown. After an error, the outcome
// is recorded in the call.
func (c *call) acquire(ctx context.Context) ([]*weir.Lease, error) {
	for len(c.requests) > 0 {
		leases, err := c.take(ctx)
		if err == nil {
			c.admitted(leases)
			return leases, nil
		}
		at, unknown := c.failed(ctx, err)
		if !unknown {
			return nil, err
		}
		c.requests = append(c.requests[:at], c.requests[at+1:]...)
	}
	return nil, nil
}

func (c *call) take(ctx context.Context) ([]*weir.Lease, error) {
	if len(c.requests) == 1 {
		lease, err := c.lim.Acquire(ctx, c.requests[0].req)
		if err != nil {
			return nil, err
		}
		c.buf.lease[0] = lease
		return c.buf.lease[:], decide.NoSlots(ctx, lease)
	}
	reqs := make([]weir.Request, len(c.requests))
	for i := range c.requests {
		reqs[i] = c.requests[i].req
	}
	leases, err := c.lim.AcquireAll(ctx, reqs)
	if err == nil {
		err = decide.NoSlots(ctx, leases...)
	}
	return leases, err
}

// admitted records the decisions of leases.
func (c *call) admitted(leases []*weir.Lease) {
	for i, lease := range leases {
		d := lease.Decision()
		c.degrade(&d)
		st := &c.buf.status[c.requests[i].at]
		st.Code = codeOK
		c.describe(c.requests[i].at, d.Statuses)
		if c.requests[i].peek {
			c.peeked(c.requests[i].at, d.Statuses)
		}
		c.addStatuses(d.Statuses)
	}
	if c.degraded {
		c.reason = reasonStore
	}
}

// degrade records that the store did not decide.
func (c *call) degrade(d *weir.Decision) {
	if d.Degraded {
		if !c.degraded || d.Over < 0 || c.bound >= 0 && d.Over > c.bound {
			c.bound = d.Over
		}
		c.degraded = true
	}
}

// failed records the outcome of an error, or returns the index of an unknown request to leave out.
func (c *call) failed(ctx context.Context, err error) (at int, unknown bool) {
	var (
		over   *weir.ExceededError
		burst  *weir.BurstError
		config *weir.ConfigError
		one    *weir.RequestError
	)
	if errors.As(err, &one) {
		at = one.Index
	}
	mine := one != nil || len(c.requests) == 1 // it is about one of the requests
	switch {
	case ctx.Err() != nil, errors.Is(err, decide.ErrOverloaded):
	case errors.As(err, &over):
		c.exceeded(over)
	case errors.As(err, &burst):
		c.refuseWhere(func(a *request) bool {
			if mine {
				return a == &c.requests[at]
			}
			return a.req.Entity == burst.Entity && a.req.Resource == burst.Resource
		}, reasonBurst)
	case mine && errors.Is(err, weir.ErrNoLimits):
		return at, c.unknown(ctx, c.requests[at].at, reasonNoLimits)
	case errors.Is(err, weir.ErrUnknownEntity):
		c.refuseWhere(func(a *request) bool { return a == &c.requests[at] }, reasonUnknown)
	case errors.Is(err, weir.ErrSlotsNeedLease):
		c.s.trouble(ctx, "a limit of slots applies, and Envoy gives no slots back", weir.ErrSlotsNeedLease)
		c.refuseWhere(func(*request) bool { return true }, reasonSlots)
	case errors.Is(err, weir.ErrBucketQuota):
		c.refuseWhere(func(*request) bool { return true }, reasonBuckets)
	case mine && errors.Is(err, weir.ErrNotFound):
		c.s.trouble(ctx, "the namespace of a domain does not exist", err)
		return at, c.unknown(ctx, c.requests[at].at, reasonDomain)
	case errors.As(err, &config) && config.Field == "limits" && len(c.requests[at].req.Limits) > 0,
		errors.As(err, &config) && !mine:
		// Overrides from Envoy create limits: a client that invents many of them must not escape all limits.
		c.s.trouble(ctx, "limits of descriptors", err)
		c.refuseWhere(func(a *request) bool { return len(a.req.Limits) > 0 }, reasonOverrides)
		c.retry = time.Second
	case errors.As(err, &config):
		c.s.trouble(ctx, "the mapping and the limits do not fit", err)
		return at, c.unknown(ctx, c.requests[at].at, reasonNoLimits)
	default:
		what, why := "the store did not answer a request in time", reasonStore
		if parts.NoShare(err) {
			what, why = "the server has no share of the limits", reasonShare
		}
		c.s.trouble(ctx, what, err)
		c.refuseWhere(func(*request) bool { return true }, why)
		c.degraded, c.retry = true, time.Second
	}
	return 0, false
}

// exceeded records which descriptors are over their limits. Nothing was debited for the others.
func (c *call) exceeded(over *weir.ExceededError) {
	c.over, c.reason, c.retry = true, reasonExceeded, over.RetryAfter
	c.degrade(&over.Decision)
	c.addStatuses(over.Statuses)
	for i := range c.requests {
		d := &over.Decision
		if over.Each != nil {
			d = &over.Each[i]
		}
		st := &c.buf.status[c.requests[i].at]
		st.Code = codeOK
		if refusedAny(d.Statuses) {
			st.Code = codeOver
		}
		c.describe(c.requests[i].at, d.Statuses)
	}
}

func refusedAny(statuses []weir.LimitStatus) bool {
	for i := range statuses {
		if statuses[i].Refused {
			return true
		}
	}
	return false
}

// peeked refuses a peek if one of its limits has nothing left. A limit in debt has refused already.
func (c *call) peeked(at int, statuses []weir.LimitStatus) {
	for i := range statuses {
		st := &statuses[i]
		if st.Shadow || st.Available >= 1 {
			continue
		}
		st.Refused, st.RetryAfter = true, untilOne(st)
		c.refuse(at, reasonExceeded)
		c.retry = max(c.retry, st.RetryAfter)
		c.describe(at, statuses)
	}
}

// settleAll returns leases and negative amounts, and debits forced amounts, once it is their turn to call the store.
// The only errors are that the caller has gone, or that there are too many.
func (c *call) settleAll(ctx context.Context, leases []*weir.Lease, requests []request) error {
	n := len(leases) + len(requests)
	if n == 0 {
		return nil
	}
	lim := c.lim
	leave := func() {}
	if p := parts.Of(lim.Limiter); p.Outage != nil {
		var err error
		if leave, err = p.Gate.Enter(ctx, lim.Namespace(), n); err != nil {
			return errUnsettled
		}
	}
	all := make([]func(context.Context) error, 0, n)
	for _, lease := range leases {
		all = append(all, lease.Rollback)
	}
	for i := range requests {
		if !c.returnable(ctx, &requests[i]) {
			continue
		}
		all = append(all, func(ctx context.Context) error {
			_, err := lim.Adjust(ctx, requests[i].req)
			if errors.Is(err, weir.ErrNoLimits) || errors.Is(err, weir.ErrMaxDebt) {
				return nil // without limits, nothing was spent; beyond max_debt, nothing more is
			}
			if err == nil && !c.trusted(ctx, &requests[i]) {
				lim.recentDebits.add(&requests[i])
			}
			return err
		})
	}
	if !c.s.settle(ctx, c.began, all, leave) {
		c.degraded, c.reason = true, reasonStore
	}
	return nil
}

var errUnsettled = status.Error(codes.Unavailable,
	"too many requests are under way: tokens were not given back, or not counted")

// perSecond bounds the rate of an override to what weir can represent.
const perSecond = 4_000_000

// maxPeriod is the longest period of a limit.
const maxPeriod = 366 * 24 * time.Hour

// overrideOf returns the limit in a descriptor's override. If its period is too long, it is shortened at the same rate.
func overrideOf(name string, o *ratelimitv3.RateLimitDescriptor_RateLimitOverride) weir.Limit {
	var unit time.Duration
	switch o.GetUnit() {
	case typev3.RateLimitUnit_SECOND:
		unit = time.Second
	case typev3.RateLimitUnit_MINUTE:
		unit = time.Minute
	case typev3.RateLimitUnit_HOUR:
		unit = time.Hour
	case typev3.RateLimitUnit_DAY:
		unit = day
	case typev3.RateLimitUnit_MONTH:
		unit = month
	default:
		unit = year
	}
	n := int64(1)
	if w := o.GetUnitMultiplier(); w != nil {
		n = int64(max(w.GetValue(), 1))
	}
	burst := int64(o.GetRequestsPerUnit())
	amount, seconds, most := burst, int64(unit/time.Second)*n, int64(maxPeriod/time.Second)
	if seconds > most {
		amount = max(1, int64(float64(amount)*float64(most)/float64(seconds)))
		seconds = most
	}
	amount = min(amount, seconds*perSecond)
	return weir.Limit{
		Name: name, Amount: amount, Period: time.Duration(seconds) * time.Second,
		Burst: max(burst, amount),
	}
}
