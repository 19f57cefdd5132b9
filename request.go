package weir

import (
	"cmp"
	"time"

	"github.com/weirlimits/weir/internal/bucket"
	"github.com/weirlimits/weir/store"
)

// Tokens are amounts by the names of limits: Tokens{"rpm": 1, "tpm": 500}.
type Tokens map[string]int64

// Request asks for tokens of an entity on a resource.
type Request struct {
	Entity   string
	Resource string
	// Tokens by limit name. Limits that apply and are not named are debited 0, and refuse while they are in debt.
	// A name that no limit of the entity or of a parent that is charged has is an error.
	Tokens Tokens
	// Requests is debited of each limit that applies, is not named in Tokens, and counts requests: those named rps, rpm,
	// rph, rpd or requests. It is an error if there is none. Defaults to 0.
	Requests int64
	// Limits, if not empty, take the place of the entity's own for this call only: not for its parents, never
	// stored. Calls that pass an equal limit share its state; at most 16 different ones per bucket at a time. They are
	// enforced.
	Limits []Limit
	// OnUnavailable says what to do when the store does not answer. Defaults to what is set with the limits, see
	// [Limiter.SetOnUnavailable], then to [Config.OnUnavailable].
	OnUnavailable Unavailable
}

// Decision is what a request came to.
type Decision struct {
	Allowed bool
	// Degraded says that the store did not answer, and that on_unavailable decided; Reason says why.
	Degraded bool
	Reason   string
	// Over is, of a degraded decision, how many tokens of any one limit may be admitted at most beyond what it allows
	// until the store answers again, by all processes together, if they are as many as [Config.Instances] says: the
	// largest over the limits, see [LimitStatus.Over]. It is -1 if there is no bound, or it is not known which limits apply.
	Over int64
	At   time.Time // the store's time of the decision
	// RetryAfter is when the refused request would pass if nobody else spent: the longest over its limits.
	RetryAfter time.Duration
	Statuses   []LimitStatus // every limit that was looked at: the entity's, then its parents'

	cause Cause
}

// LimitStatus is a limit as a decision saw it, after the decision.
type LimitStatus struct {
	Entity    string
	Resource  string
	Limit     string
	Source    Source // the level that the limit comes from
	Manifest  string // that declares the limit, as far as is known without asking; "" if none does
	Requested int64  // tokens
	Available int64  // tokens, rounded down; negative in debt
	Amount    int64  // tokens per Period
	Period    time.Duration
	Burst     int64         // tokens
	Full      time.Duration // until the bucket is full again, if nobody spends
	// Refused says that this limit is why, or one of the limits why, the request was refused; RetryAfter is when
	// this limit would have let it pass.
	Refused    bool
	RetryAfter time.Duration
	// Shadow says that the limit does not refuse this entity; see [Enforce]. WouldRefuse then says that it would have
	// refused the request, whatever became of it. Requested was not debited of it in that case.
	Shadow      bool
	WouldRefuse bool
	// Over is [Decision.Over] of this limit: its burst, or a token for each process or what each may be asked for at once
	// if that is more. Available, Full and RetryAfter of a degraded decision are those of this process's share.
	Over int64

	params bucket.Params // in millitokens
	level  int64
	at     int64
}

// waitFor returns how long after the decision so many more millitokens will have been issued, whatever the burst.
func (s *LimitStatus) waitFor(milli int64) time.Duration {
	level := max(s.level, s.params.Clock(s.at))
	return time.Duration(max(0, saturatingSub(s.params.At(level, milli), s.at)))
}

// Source is where a limit comes from. The first level that has limits is used; levels are not merged.
type Source string

// The levels, in the order of preference, and the override of one request, which comes before all.
const (
	SourceRequest       Source = "request"        // Request.Limits
	SourceEntity        Source = "entity"         // the entity's limits on this resource
	SourceEntityDefault Source = "entity-default" // the entity's limits on resources without their own
	SourceResource      Source = "resource"       // the resource's limits
	SourceSystem        Source = "system"         // the namespace's limits
)

// origin is where a limit comes from: the level, and the manifest that declares it there.
type origin struct {
	source   Source
	manifest string
}

// Unavailable says what to answer when the store does not.
type Unavailable string

// What to answer when the store does not.
const (
	UnavailableDefault Unavailable = ""      // the next more general setting
	Deny               Unavailable = "deny"  // refuse with ErrUnavailable
	Allow              Unavailable = "allow" // admit, marked degraded
	// Local admits this process's share of the limits, marked degraded, and charges it to the store when that answers
	// again; see [Config.Instances]. An entity of which nothing is known goes by the limits of the resource or the
	// system. Where those are not known either, it is Deny.
	Local Unavailable = "local"
)

// stricter returns the one of two that admits less, or the one that is set.
func stricter(a, b Unavailable) Unavailable {
	switch {
	case a == UnavailableDefault || b == UnavailableDefault:
		return cmp.Or(a, b)
	case a == Allow:
		return b
	case b == Allow || a != Local: // what a newer weir may have set is taken for Deny
		return a
	}
	return b
}

func (u Unavailable) validate(field string) error {
	switch u {
	case UnavailableDefault, Deny, Allow, Local:
		return nil
	}
	return configErr(field, "%q is none of deny, allow, local", string(u))
}

// statusOf makes a charge's status of its level after the decision.
func statusOf(entity, resource string, from origin, c store.Charge, l store.Level, now int64) LimitStatus {
	p := paramsOf(l.Limit)
	s := LimitStatus{
		Entity: entity, Resource: resource, Limit: l.Limit.Name, Source: from.source, Manifest: from.manifest,
		Requested: c.Amount / 1000,
		Available: floorTokens(p.Available(l.Level, p.Clock(now))),
		Amount:    l.Limit.Amount / 1000, Period: l.Limit.Period, Burst: l.Limit.Burst / 1000,
		Full:    time.Duration(max(0, saturatingSub(p.Full(l.Level), now))),
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

func saturatingSub(a, b int64) int64 {
	if d := a - b; (d < a) == (b > 0) {
		return d
	}
	if b < 0 {
		return 1<<63 - 1
	}
	return -1 << 63
}

// longest returns the one RetryAfter that is true for all statuses.
func longest(ss []LimitStatus) (d time.Duration) {
	for i := range ss {
		d = max(d, ss[i].RetryAfter)
	}
	return d
}

func nanosOf(t time.Time) int64 { return bucket.Nanos(t) }
