package weir

import (
	"cmp"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Tokens maps the names of limits to amounts: Tokens{"rpm": 1, "tpm": 500}.
type Tokens map[string]int64

// Request asks for tokens for an entity on a resource.
type Request struct {
	Entity   string
	Resource string
	// Tokens are amounts by limit name. A limit that applies but is not named is debited 0, and refuses while it is in
	// debt. A name that is not a limit of the entity, or of a parent that is charged, is an error.
	Tokens Tokens
	// Requests is the amount to debit from each limit that applies, is not named in Tokens, and counts requests: one
	// named rps, rpm, rph, rpd or requests. If there is none, it is an error. Defaults to 0.
	Requests int64
	// Limits, if not empty, replace the entity's own limits for this call only. They do not replace its parents'
	// limits, and are never stored. Calls that pass an equal limit share its state; a bucket holds at most 16 different
	// ones at a time. Their Enforce must be [EnforceOn].
	Limits []Limit
	// OnUnavailable says how to decide when the store does not answer. Defaults to the setting stored with the limits
	// (see [Limiter.SetOnUnavailable]), then to [Config.OnUnavailable].
	OnUnavailable OnUnavailable
}

// Decision is the result of a request.
type Decision struct {
	Allowed bool
	// Degraded says that the store did not answer and that on_unavailable decided; Reason says why.
	Degraded bool
	Reason   string
	// Over bounds a degraded decision: the most tokens of any one limit that may be admitted beyond what the limit
	// allows until the store answers again, by all processes together, if there are as many as [Config.Instances] says.
	// It is the largest [LimitStatus.Over], or -1 if there is no bound or it is not known which limits apply.
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
	Source    Source // the level that the limit comes from
	Manifest  string // the manifest that declares the limit, as far as is known without a lookup; "" if none
	Requested int64  // tokens
	Available int64  // tokens, rounded down; negative in debt
	Amount    int64  // tokens per Period
	Period    time.Duration
	Burst     int64         // tokens
	Full      time.Duration // until the bucket is full again if nobody spends
	// Refused says that the request was refused because of this limit, possibly among others; RetryAfter is how long
	// until this limit would have let it pass.
	Refused    bool
	RetryAfter time.Duration
	// Shadow says that the limit does not refuse this entity; see [Enforce]. WouldRefuse then says that it would have
	// refused the request, whether the request was admitted or not; in that case Requested was not debited from it.
	Shadow      bool
	WouldRefuse bool
	// Over is [Decision.Over] for this limit: its burst or, if that is more, a token or the tokens requested at once (at
	// most the burst) for each process. In a degraded decision, Available, Full and RetryAfter are those of this
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

// Source is the level that a limit comes from. The first level that has limits is used; levels are not merged.
type Source string

// The levels in order of precedence. [SourceRequest], the override of one request, comes before all.
const (
	SourceRequest       Source = "request"        // Request.Limits
	SourceEntity        Source = "entity"         // the entity's limits on this resource
	SourceEntityDefault Source = "entity-default" // the entity's limits on all other resources
	SourceResource      Source = "resource"       // the resource's limits
	SourceSystem        Source = "system"         // the namespace's limits
)

// origin is where a limit comes from: the level, and the manifest that declares it there.
type origin struct {
	source   Source
	manifest string
}

// OnUnavailable determines how a request is decided when the store does not answer.
type OnUnavailable string

// The ways to decide when the store does not answer.
const (
	OnUnavailableDefault OnUnavailable = ""      // the next more general setting
	OnUnavailableDeny    OnUnavailable = "deny"  // refuse with ErrUnavailable
	OnUnavailableAllow   OnUnavailable = "allow" // admit, marked degraded
	// OnUnavailableLocal admits from this process's share of the limits, marked degraded, and charges the admitted
	// tokens to the store once it answers again; see [Config.Instances]. If nothing is known of an entity, the limits of
	// the resource or the system apply. If those are not known either, the request is refused.
	OnUnavailableLocal OnUnavailable = "local"
)

// stricter returns the one of the two that admits less, or the one that is set.
func stricter(a, b OnUnavailable) OnUnavailable {
	switch {
	case a == OnUnavailableDefault || b == OnUnavailableDefault:
		return cmp.Or(a, b)
	case a == OnUnavailableAllow:
		return b
	case b == OnUnavailableAllow || a != OnUnavailableLocal: // a value that a newer weir may have set counts as Deny
		return a
	}
	return b
}

func (u OnUnavailable) validate(field string) error {
	switch u {
	case OnUnavailableDefault, OnUnavailableDeny, OnUnavailableAllow, OnUnavailableLocal:
		return nil
	}
	return configErr(field, "must be deny, allow or local: %q", string(u))
}

// statusOf returns a charge's status from its level after the decision.
func statusOf(entity, resource string, from origin, c store.Charge, l store.Level, now int64) LimitStatus {
	p := paramsOf(l.Limit)
	s := LimitStatus{
		Entity: entity, Resource: resource, Limit: l.Limit.Name, Source: from.source, Manifest: from.manifest,
		Requested: c.Amount / 1000,
		Available: floorTokens(p.Available(l.Level, p.Clock(now))),
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

func floorTokens(milli int64) int64 {
	t := milli / 1000
	if milli%1000 < 0 {
		t--
	}
	return t
}

// longest returns the RetryAfter that satisfies all statuses.
func longest(ss []LimitStatus) (d time.Duration) {
	for i := range ss {
		d = max(d, ss[i].RetryAfter)
	}
	return d
}

func nanosOf(t time.Time) int64 { return clock.Nanos(t) }
