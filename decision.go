package weir

import (
	"fmt"
	"math"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/outage/share"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

// Decision is the result of a request.
type Decision struct {
	Allowed bool
	// Degraded is set if the store did not answer and on_unavailable decided; Reason is why.
	Degraded bool
	Reason   string
	// Over bounds a degraded decision: the most tokens that all of the [Config.Instances] processes together may admit
	// beyond any one limit until the store answers again. It is the largest [LimitStatus.Over], or -1 if there is no
	// bound or it is not known which limits apply.
	Over int64
	At   time.Time // the store's time of the decision
	// RetryAfter is how long until a refused request would pass if nobody spent; math.MaxInt64 if a balance refused it.
	// It is a guess for slots, and a hint for some buckets on DynamoDB; see docs/guarantees.md.
	RetryAfter time.Duration
	Statuses   []LimitStatus // every limit that was checked: the entity's, also on groups, then its parents'

	cause Cause
}

// LimitStatus is the state of a limit right after a decision.
type LimitStatus struct {
	Entity    string
	Resource  string // that was requested, its group ([GroupResource]), or [TotalResource]
	Limit     string
	Source    Source // the scope that the limit comes from
	Manifest  string // the manifest that declares the limit, as far as is known without a lookup; "" if none
	Requested int64  // tokens
	Available int64  // tokens, rounded down; negative in debt
	Amount    int64  // tokens per Period or Window; 0 for a balance
	Period    time.Duration
	Window    Window        // of a quota
	Burst     int64         // tokens; 0 for a balance; of a limit of slots, how many can be held
	Heal      time.Duration // of a limit of slots
	Full      time.Duration // until the bucket is full again if nobody spends; 0 for a balance, and for slots
	Began     time.Duration // of a quota: since the window began
	// Ends is how long until the next window of a quota begins. From [Limiter.Available] and [Limiter.Explain], it is
	// also how long until the next slots that are held come back unless they are renewed; 0 if none is held.
	Ends time.Duration
	// Refused is set if the request was refused because of this limit, possibly among others; RetryAfter is how long
	// until this limit would have let it pass or, if that is earlier, until other limits begin or end.
	Refused    bool
	RetryAfter time.Duration
	// Estimated marks a RetryAfter that is a guess, because nobody knows when slots are given back: for how long those
	// of the limit were held lately in this process (the median, at least a second).
	Estimated bool
	// Shadow is set if the limit does not refuse this entity; see [Enforce]. WouldRefuse is then set if it would have
	// refused the request, whether the request was admitted or not; in that case Requested was not debited from it.
	Shadow      bool
	WouldRefuse bool
	// Over is [Decision.Over] for this limit: its burst or, if that is more, a token or the tokens requested at once
	// (at most the burst) for each process. In a degraded decision, Available, Full and RetryAfter are those of this
	// process's share.
	Over int64

	params  clock.Params // in millitokens
	level   int64
	at      int64
	typical time.Duration // for how long slots are held
	until   int64         // when other limits may apply; 0: not known; the largest int64: never
}

// waitFor returns how long after the decision so many millitokens will be available, whatever the burst.
func (s *LimitStatus) waitFor(milli int64) time.Duration {
	return s.within(s.params.Wait(s.level, s.at, milli))
}

// within returns how long to wait, which is at most until other limits may apply.
func (s *LimitStatus) within(wait time.Duration) time.Duration {
	if s.until == 0 || s.until == math.MaxInt64 {
		return wait
	}
	return min(wait, time.Duration(max(1, clock.Sub(s.until, s.at))))
}

// Balance is what an adjustment left of a limit.
type Balance struct {
	Entity     string
	Resource   string
	Limit      string
	Available  int64         // tokens, rounded down; negative in debt
	RetryAfter time.Duration // until a token, or a lesser burst, is available if nobody else spends; 0: it is
}

// balances returns the balances that a settle left; none if the store did not answer.
func balances(debits []store.Debit, out *store.Outcome) (bs []Balance) {
	levels, now := out.Levels, clock.Nanos(out.At)
	for i := range debits {
		b := &debits[i].Bucket
		for range debits[i].Charges[:min(len(levels), len(debits[i].Charges))] {
			l, p := levels[0], levels[0].Limit.Params()
			wait, _ := p.RetryAfter(l.Level, now, min(1000, p.Burst))
			left := clock.MulDivFloor(p.Available(l.Level, p.Clock(now)), 1, 1000)
			bs, levels = append(bs, Balance{b.Entity, b.Resource, l.Limit.Name, left, wait}), levels[1:]
		}
	}
	return bs
}

// Source is the scope that a limit comes from. The first scope that has limits is used; scopes are not merged.
type Source string

// The scopes in order of precedence. [SourceRequest], the override of one request, comes before all.
const (
	SourceRequest       Source = "request"        // Request.Limits
	SourceEntity        Source = "entity"         // the entity's limits on this resource
	SourceEntityDefault Source = "entity-default" // the entity's limits on all other resources
	SourcePlan          Source = "plan"           // the limits of the entity's plan on this resource
	SourcePlanDefault   Source = "plan-default"   // the limits of the entity's plan on all other resources
	SourceResource      Source = "resource"       // the resource's limits
	SourceSystem        Source = "system"         // the namespace's limits
)

// origin is where a limit comes from: the scope, and the manifest that declares it there.
type origin struct {
	source   Source
	manifest string
}

// set sets the statuses of a decision over debits, and what follows from them. Function from returns where the limit of
// the n-th charge comes from.
func (d *Decision) set(
	l *Limiter, by *degradation, debits []store.Debit, levels []store.Level, from func(n int) origin,
) {
	d.degraded(by)
	if len(levels) == 0 {
		return
	}
	d.Statuses = make([]LimitStatus, len(levels))
	now, n := clock.Nanos(d.At), 0
	for i := range debits {
		for j := range debits[i].Charges {
			c, st := &debits[i].Charges[j], &d.Statuses[n]
			st.set(&debits[i], from(n), c, &levels[n], now)
			by.describe(st, c.Limit)
			l.estimate(st, c.Limit, &debits[i].Bucket)
			n++
		}
	}
	d.RetryAfter = longest(d.Statuses)
	d.over()
}

// set sets a charge's status, which is empty, from its level after the decision.
func (s *LimitStatus) set(d *store.Debit, from origin, c *store.Charge, l *store.Level, now int64) {
	p := l.Limit.Params()
	s.params, s.level, s.at = p, l.Level, now
	_, s.until = d.Phase.Bounds()
	s.Entity, s.Resource, s.Limit = d.Bucket.Entity, d.Bucket.Resource, l.Limit.Name
	s.Source, s.Manifest, s.Requested = from.source, from.manifest, c.Amount/1000
	s.Available = clock.MulDivFloor(p.Available(l.Level, p.Clock(now)), 1, 1000)
	s.Refused, s.Shadow, s.WouldRefuse = l.Refused && !c.Shadow, c.Shadow, l.Refused && c.Shadow
	s.allow(l.Limit)
	if s.Amount > 0 {
		s.Full = time.Duration(max(0, clock.Sub(p.Full(l.Level), now)))
	}
	if p.Kind() == clock.Quota {
		from, to := p.Window.Bounds(now)
		s.Began, s.Ends = time.Duration(now-from), time.Duration(to-now)
	}
	if s.Refused {
		wait, _ := p.RetryAfter(l.Level, now, c.Amount)
		s.RetryAfter = s.within(wait)
	}
}

// allow sets how much the limit allows.
func (s *LimitStatus) allow(l *store.Limit) {
	s.Amount, s.Period, s.Window, s.Heal = l.Amount/1000, l.Period, l.Window, l.Heal
	if !l.IsBalance() {
		s.Burst = l.Burst / 1000
	}
}

// longest returns the RetryAfter that satisfies all statuses.
func longest(ss []LimitStatus) (d time.Duration) {
	for i := range ss {
		d = max(d, ss[i].RetryAfter)
	}
	return d
}

// Cause is the reason why the store did not make a decision.
type Cause = outage.Cause

// The reasons why the store did not make a decision.
const (
	CauseNone    = outage.CauseNone    // the store made it
	CauseTimeout = outage.CauseTimeout // it did not answer in time
	CauseError   = outage.CauseError   // it failed
	CauseOpen    = outage.CauseOpen    // it has not answered for a while and was not called
)

// degradation is why the store did not decide, and what was admitted instead.
type degradation struct {
	reason            string
	cause             Cause
	local             bool // the tokens come from this process's share; otherwise nothing was spent
	elsewhere         bool // they come from the share of another process, or of one that has ended
	n                 int  // the number of processes that share the limits
	usesBroaderLimits bool // the limits are more general ones, because the entity's own are not known
}

// goesBy records by which policy the decision was made.
func (d *degradation) goesBy(p *policy.Policy) {
	if p.UsesBroaderLimits && !d.usesBroaderLimits {
		d.usesBroaderLimits = true
		d.reason += fmt.Sprintf("; the limits of %q itself are not known, so more general ones apply", p.Entity)
	}
}

// free reports whether a lease holds nothing because nothing was spent.
func (d *degradation) free() bool { return d != nil && !d.local }

// describe puts the limit that applies to the entity into a status, which was decided by the share.
func (d *degradation) describe(st *LimitStatus, l *store.Limit) {
	if d == nil || !d.local {
		return
	}
	st.allow(l)
	mine := share.Of(l, d.n)
	if st.Refused && st.Requested*1000 > mine.Burst { // it passes once the share is full
		wait, _ := mine.RetryAfter(st.level, st.at, mine.Burst)
		st.RetryAfter = st.within(wait)
	}
	st.Over = math.MaxInt64
	if each := max(mine.Burst, min(st.Requested, l.Burst/1000)*1000); each <= (math.MaxInt64-999)/int64(d.n) {
		st.Over = (each*int64(d.n) + 999) / 1000
	}
}

// degraded marks a decision as degraded, before its statuses are added.
func (d *Decision) degraded(by *degradation) {
	if by == nil {
		return
	}
	d.Degraded, d.Reason, d.cause = true, by.reason, by.cause
	if by.free() || by.usesBroaderLimits {
		d.Over = -1
	}
}

// over sets Over from the statuses.
func (d *Decision) over() {
	if d.Over < 0 {
		return
	}
	for i := range d.Statuses {
		d.Over = max(d.Over, d.Statuses[i].Over)
	}
}
