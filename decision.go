package weir

import (
	"context"
	"errors"
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
	// RetryAfter is how long until the refused request would pass if nobody else spent: the longest over its limits.
	RetryAfter time.Duration
	Statuses   []LimitStatus // every limit that was checked: the entity's, then its parents'

	cause Cause
}

// LimitStatus is the state of a limit right after a decision.
type LimitStatus struct {
	Entity    string
	Resource  string
	Limit     string
	Source    Source // the scope that the limit comes from
	Manifest  string // the manifest that declares the limit, as far as is known without a lookup; "" if none
	Requested int64  // tokens
	Available int64  // tokens, rounded down; negative in debt
	Amount    int64  // tokens per Period
	Period    time.Duration
	Burst     int64         // tokens
	Full      time.Duration // until the bucket is full again if nobody spends
	// Refused is set if the request was refused because of this limit, possibly among others; RetryAfter is how long
	// until this limit would have let it pass.
	Refused    bool
	RetryAfter time.Duration
	// Shadow is set if the limit does not refuse this entity; see [Enforce]. WouldRefuse is then set if it would have
	// refused the request, whether the request was admitted or not; in that case Requested was not debited from it.
	Shadow      bool
	WouldRefuse bool
	// Over is [Decision.Over] for this limit: its burst or, if that is more, a token or the tokens requested at once
	// (at most the burst) for each process. In a degraded decision, Available, Full and RetryAfter are those of this
	// process's share.
	Over int64

	params clock.Params // in millitokens
	level  int64
	at     int64
}

// waitFor returns how long after the decision that many more millitokens will have been issued, regardless of the
// burst.
func (s *LimitStatus) waitFor(milli int64) time.Duration {
	level := max(s.level, s.params.Clock(s.at))
	return time.Duration(max(0, clock.Sub(s.params.At(level, milli), s.at)))
}

// Source is the scope that a limit comes from. The first scope that has limits is used; scopes are not merged.
type Source string

// The scopes in order of precedence. [SourceRequest], the override of one request, comes before all.
const (
	SourceRequest       Source = "request"        // Request.Limits
	SourceEntity        Source = "entity"         // the entity's limits on this resource
	SourceEntityDefault Source = "entity-default" // the entity's limits on all other resources
	SourceResource      Source = "resource"       // the resource's limits
	SourceSystem        Source = "system"         // the namespace's limits
)

// origin is where a limit comes from: the scope, and the manifest that declares it there.
type origin struct {
	source   Source
	manifest string
}

func originIn(t *policy.Target) origin { return origin{Source(t.Source), t.Manifest} }

// statusOf returns a charge's status from its level after the decision.
func statusOf(entity, resource string, from origin, c store.Charge, l store.Level, now int64) LimitStatus {
	p := paramsOf(l.Limit)
	s := LimitStatus{
		Entity: entity, Resource: resource, Limit: l.Limit.Name, Source: from.source, Manifest: from.manifest,
		Requested: c.Amount / 1000,
		Available: clock.MulDivFloor(p.Available(l.Level, p.Clock(now)), 1, 1000),
		Amount:    l.Limit.Amount / 1000, Period: l.Limit.Period, Burst: l.Limit.Burst / 1000,
		Full:    time.Duration(max(0, clock.Sub(p.Full(l.Level), now))),
		Refused: l.Refused && !c.Shadow,
		Shadow:  c.Shadow, WouldRefuse: l.Refused && c.Shadow,
		params: p, level: l.Level, at: now,
	}
	if s.Refused {
		s.RetryAfter, _ = p.RetryAfter(l.Level, now, c.Amount)
	}
	return s
}

// longest returns the RetryAfter that satisfies all statuses.
func longest(ss []LimitStatus) (d time.Duration) {
	for i := range ss {
		d = max(d, ss[i].RetryAfter)
	}
	return d
}

// Cause is the reason why the store did not make a decision.
type Cause string

// The reasons why the store did not make a decision.
const (
	CauseNone    Cause = ""                         // the store made it
	CauseTimeout Cause = Cause(outage.CauseTimeout) // it did not answer in time
	CauseError   Cause = Cause(outage.CauseError)   // it failed
	CauseOpen    Cause = Cause(outage.CauseOpen)    // it has not answered for a while and was not called
)

func causeOf(err error) Cause {
	switch {
	case err == nil:
		return CauseNone
	case errors.Is(err, errOpen):
		return CauseOpen
	case errors.Is(err, context.DeadlineExceeded):
		return CauseTimeout
	}
	return CauseError
}

// errOpen reports that the store was not called.
var errOpen = &StoreError{
	Op: "take", Err: errors.New("the store was not called because it has not answered lately"),
	Hint: "the store is called once every Config.Cooldown until it answers",
}

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
	st.Amount, st.Period, st.Burst = l.Amount/1000, l.Period, l.Burst/1000
	mine := share.Of(l, d.n)
	if st.Refused && st.Requested*1000 > mine.Burst { // it passes once the share is full
		st.RetryAfter, _ = mine.RetryAfter(st.level, st.at, mine.Burst)
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
