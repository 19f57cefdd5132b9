package rls

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

// call is one request of Envoy on its way to an answer.
type call struct {
	s    *Service
	lim  *weir.Limiter
	room *room

	began   time.Time
	asks    []ask // what is to be decided, all or none
	settles []ask // what is given back or counted once that was admitted

	over     bool
	degraded bool
	bound    int64 // on what may be admitted beyond the limits, if degraded; -1: none
	reason   reason
	retry    time.Duration // at least so long
	statuses []weir.LimitStatus
}

// ask is what a descriptor asks for.
type ask struct {
	at   int // of the descriptor
	req  weir.Request
	peek bool // debits nothing, and asks for one token
}

func newCall(s *Service, lim *weir.Limiter, n int) *call {
	room := newRoom(n)
	c := &room.call
	c.s, c.lim, c.room, c.began, c.asks = s, lim, room, time.Now(), room.asks[:0]
	return c
}

// add notes what a descriptor asks for.
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
	a := ask{at: at, req: weir.Request{Entity: t.Entity, Resource: t.Resource}}
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
			c.room.status[at].Code = codeOK
			return // nothing is spent of a limit that allows nothing
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
		c.room.status[at].Code = codeOK
		c.settles = append(c.settles, a)
		return
	}
	c.asks = append(c.asks, a)
}

func (a *ask) demand(tokens []amount, hits int64) {
	if len(tokens) == 0 {
		a.req.Requests = hits
		return
	}
	a.req.Tokens = make(weir.Tokens, len(tokens))
	for _, t := range tokens {
		n := hits
		if t.fixed > 0 {
			if n = t.fixed; hits <= 0 { // a peek, or a return: as often
				n = max(hits, -1) * t.fixed
			}
		}
		a.req.Tokens[t.limit] = n
	}
}

// refuse makes a descriptor be over its limit.
func (c *call) refuse(at int, why reason) {
	c.room.status[at].Code = codeOver
	c.over, c.reason = true, why
}

// refuseWhere makes those asks be over their limits for which f holds; all, if it holds for none.
func (c *call) refuseWhere(f func(*ask) bool, why reason) {
	for i := range c.asks {
		if a := &c.asks[i]; f(a) {
			c.refuse(a.at, why)
		} else {
			c.room.status[a.at].Code = codeOK
		}
	}
	if !c.over {
		c.refuseWhere(func(*ask) bool { return true }, why)
	}
}

// decide asks the limiter. The only error is that whoever asked has gone.
func (c *call) decide(ctx context.Context) error {
	if c.over { // something can never be: nothing is asked for
		for i := range c.asks {
			c.room.status[c.asks[i].at].Code = codeOK
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
	if c.over { // a peek found nothing: what others were debited goes back
		c.settleAll(ctx, leases, nil)
		return nil
	}
	c.settleAll(ctx, nil, c.settles)
	return nil
}

// acquire decides about what is asked for, without what turns out to be unknown. After an error the call knows what came
// of it.
func (c *call) acquire(ctx context.Context) ([]*weir.Lease, error) {
	for len(c.asks) > 0 {
		leases, err := c.take(ctx)
		if err == nil {
			c.admitted(leases)
			return leases, nil
		}
		at, unknown := c.failed(ctx, err)
		if !unknown {
			return nil, err
		}
		c.asks = append(c.asks[:at], c.asks[at+1:]...)
	}
	return nil, nil
}

func (c *call) take(ctx context.Context) ([]*weir.Lease, error) {
	if len(c.asks) == 1 {
		lease, err := c.lim.Acquire(ctx, c.asks[0].req)
		if err != nil {
			return nil, err
		}
		c.room.lease[0] = lease
		return c.room.lease[:], nil
	}
	reqs := make([]weir.Request, len(c.asks))
	for i := range c.asks {
		reqs[i] = c.asks[i].req
	}
	return c.lim.AcquireAll(ctx, reqs)
}

// admitted notes what the leases say.
func (c *call) admitted(leases []*weir.Lease) {
	for i, lease := range leases {
		d := lease.Decision()
		c.degrade(&d)
		st := &c.room.status[c.asks[i].at]
		st.Code = codeOK
		c.describe(c.asks[i].at, d.Statuses)
		if c.asks[i].peek {
			c.peeked(c.asks[i].at, d.Statuses)
		}
		c.note(d.Statuses)
	}
	if c.degraded {
		c.reason = reasonStore
	}
}

// degrade notes that the store did not decide.
func (c *call) degrade(d *weir.Decision) {
	if d.Degraded {
		if !c.degraded || d.Over < 0 || c.bound >= 0 && d.Over > c.bound {
			c.bound = d.Over
		}
		c.degraded = true
	}
}

// failed notes what came of an error, or returns which ask is unknown and to be left out.
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
	mine := one != nil || len(c.asks) == 1 // it is about one of the asks
	switch {
	case ctx.Err() != nil:
	case errors.As(err, &over):
		c.exceeded(over)
	case errors.As(err, &burst):
		c.refuseWhere(func(a *ask) bool {
			return mine && a == &c.asks[at] || !mine && a.req.Entity == burst.Entity && a.req.Resource == burst.Resource
		}, reasonBurst)
	case mine && errors.Is(err, weir.ErrNoLimits):
		c.reason = reasonNoLimits
		return at, true
	case mine && errors.Is(err, weir.ErrNotFound):
		c.s.trouble(ctx, "the namespace of a domain does not exist", err)
		c.reason = reasonDomain
		return at, true
	case errors.As(err, &config) && config.Field == "limits" && len(c.asks[at].req.Limits) > 0, errors.As(err, &config) && !mine:
		// Limits come and go by what Envoy sends: who makes up many must not be free of all.
		c.s.trouble(ctx, "limits of descriptors", err)
		c.refuseWhere(func(a *ask) bool { return len(a.req.Limits) > 0 }, reasonOverrides)
		c.retry = time.Second
	case errors.As(err, &config):
		c.s.trouble(ctx, "the mapping and the limits do not fit", err)
		c.reason = reasonNoLimits
		return at, true
	default:
		c.s.trouble(ctx, "the store does not answer", err)
		c.refuseWhere(func(*ask) bool { return true }, reasonStore)
		c.degraded, c.retry = true, time.Second
	}
	return 0, false
}

// exceeded notes which descriptors are over their limits. Of the others nothing was debited.
func (c *call) exceeded(over *weir.ExceededError) {
	c.over, c.reason, c.retry = true, reasonExceeded, over.RetryAfter
	c.degrade(&over.Decision)
	c.note(over.Statuses)
	for i := range c.asks {
		d := &over.Decision
		if over.Each != nil {
			d = &over.Each[i]
		}
		st := &c.room.status[c.asks[i].at]
		st.Code = codeOK
		if refusedAny(d.Statuses) {
			st.Code = codeOver
		}
		c.describe(c.asks[i].at, d.Statuses)
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

// peeked refuses a peek at limits of which one has nothing left. In debt it was refused before.
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

// settleAll gives back leases, and what is negative, and counts what is forced.
func (c *call) settleAll(ctx context.Context, leases []*weir.Lease, asks []ask) {
	if len(leases) == 0 && len(asks) == 0 {
		return
	}
	lim := c.lim
	all := make([]func(context.Context) error, 0, len(leases)+len(asks))
	for _, lease := range leases {
		all = append(all, lease.Rollback)
	}
	for i := range asks {
		all = append(all, func(ctx context.Context) error {
			err := lim.Adjust(ctx, asks[i].req)
			if errors.Is(err, weir.ErrNoLimits) {
				err = nil // of what has no limits nothing was spent
			}
			return err
		})
	}
	inTime := c.s.settle(ctx, c.began, all)
	if !inTime {
		c.degraded, c.reason = true, reasonStore
	}
}

// perSecond bounds the rate of an override to what weir counts.
const perSecond = 4_000_000

// maxPeriod is the longest period of a limit.
const maxPeriod = 366 * 24 * time.Hour

// overrideOf returns the limit that a descriptor brings along. One that is too long is cut to the same rate.
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
	return weir.Limit{Name: name, Amount: amount, Period: time.Duration(seconds) * time.Second, Burst: max(burst, amount)}
}
