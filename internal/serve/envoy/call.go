package envoy

import (
	"context"
	"errors"
	"slices"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/status"

	"github.com/weirlimits/weir"
)

const (
	codeOK      = rlsv3.RateLimitResponse_OK
	codeOver    = rlsv3.RateLimitResponse_OVER_LIMIT
	codeUnknown = rlsv3.RateLimitResponse_UNKNOWN
)

// call is one request of Envoy that is being answered.
type call struct {
	s   *Service
	lim *weir.Limiter
	buf *buffers

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
}

func newCall(s *Service, lim *weir.Limiter, n int) *call {
	buf := newBuffers(n)
	c := &buf.call
	c.s, c.lim, c.buf, c.began, c.requests = s, lim, buf, time.Now(), buf.requests[:0]
	return c
}

// add adds what a descriptor requests.
func (c *call) add(at int, m *Mapping, domain string, d *ratelimitv3.RateLimitDescriptor, hits uint32) {
	t, ok := m.Target(domain, d)
	if !ok {
		c.reason = reasonDescriptor
		return // UNKNOWN
	}
	n := uint64(max(hits, 1))
	if w := d.GetHitsAddend(); w != nil {
		n = w.GetValue()
	}
	a := request{at: at, req: weir.Request{Entity: t.Entity, Resource: t.Resource}}
	negative := d.GetIsNegativeHits()
	a.peek = n == 0 && !negative && !t.Forced
	if n > weir.MaxTokens {
		if !negative && !t.Forced {
			c.refuse(at, reasonBurst)
			return
		}
		n = weir.MaxTokens // more than any bucket holds
	}
	if o := d.GetLimit(); o != nil && o.GetUnit() != typev3.RateLimitUnit_UNKNOWN {
		if o.GetRequestsPerUnit() == 0 {
			if !negative && !t.Forced {
				c.refuse(at, reasonNothing)
				return
			}
			c.buf.status[at].Code = codeOK
			return // nothing can be spent from a limit that allows nothing
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
		return
	}
	c.requests = append(c.requests, a)
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

// decide gets the decision from the limiter. The only error is that the caller has gone.
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
	default:
		return nil
	}
	if c.over { // a peek found nothing left, so what others were debited is returned
		c.settleAll(ctx, leases, nil)
		return nil
	}
	c.settleAll(ctx, nil, c.settles)
	return nil
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
		return c.buf.lease[:], nil
	}
	reqs := make([]weir.Request, len(c.requests))
	for i := range c.requests {
		reqs[i] = c.requests[i].req
	}
	return c.lim.AcquireAll(ctx, reqs)
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
	case ctx.Err() != nil:
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
		c.reason = reasonNoLimits
		return at, true
	case mine && errors.Is(err, weir.ErrNotFound):
		c.s.trouble(ctx, "the namespace of a domain does not exist", err)
		c.reason = reasonDomain
		return at, true
	case errors.As(err, &config) && config.Field == "limits" && len(c.requests[at].req.Limits) > 0,
		errors.As(err, &config) && !mine:
		// Overrides from Envoy create limits: a client that invents many of them must not escape all limits.
		c.s.trouble(ctx, "limits of descriptors", err)
		c.refuseWhere(func(a *request) bool { return len(a.req.Limits) > 0 }, reasonOverrides)
		c.retry = time.Second
	case errors.As(err, &config):
		c.s.trouble(ctx, "the mapping and the limits do not fit", err)
		c.reason = reasonNoLimits
		return at, true
	default:
		c.s.trouble(ctx, "the store does not answer", err)
		c.refuseWhere(func(*request) bool { return true }, reasonStore)
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

// settleAll returns leases and negative amounts, and debits forced amounts.
func (c *call) settleAll(ctx context.Context, leases []*weir.Lease, requests []request) {
	if len(leases) == 0 && len(requests) == 0 {
		return
	}
	lim := c.lim
	all := make([]func(context.Context) error, 0, len(leases)+len(requests))
	for _, lease := range leases {
		all = append(all, lease.Rollback)
	}
	for i := range requests {
		all = append(all, func(ctx context.Context) error {
			err := lim.Adjust(ctx, requests[i].req)
			if errors.Is(err, weir.ErrNoLimits) {
				err = nil // without limits, nothing was spent
			}
			return err
		})
	}
	inTime := c.s.settle(ctx, c.began, all)
	if !inTime {
		c.degraded, c.reason = true, reasonStore
	}
}

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
