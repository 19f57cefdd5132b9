package api

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy/record"
)

// Question is a request to decide without spending: what an entity would spend on a resource.
type Question struct {
	Entity        string             `json:"entity" in:"query" about:"entity"`
	Resource      string             `json:"resource" in:"query" about:"resource"`
	Tokens        weir.Tokens        `json:"tokens" in:"query" arg:"LIMIT=AMOUNT"`
	Limits        []weir.Limit       `json:"limits" in:"query" flag:"limit,l"`
	OnUnavailable weir.OnUnavailable `json:"on_unavailable" in:"query"`
}

// Demand is what an entity spends on a resource.
type Demand struct {
	Namespace     string             `json:"namespace" flag:"-"`
	Entity        string             `json:"entity"`
	Resource      string             `json:"resource"`
	Tokens        weir.Tokens        `json:"tokens" arg:"LIMIT=AMOUNT"`
	Limits        []weir.Limit       `json:"limits" flag:"limit,l"`
	OnUnavailable weir.OnUnavailable `json:"on_unavailable"`
}

// Request returns the request to a limiter.
func (q *Demand) Request() weir.Request {
	return weir.Request{
		Entity: q.Entity, Resource: q.Resource, Tokens: q.Tokens, Limits: q.Limits, OnUnavailable: q.OnUnavailable,
	}
}

// Adjustment is what an entity has spent more on a resource than was debited, or less.
type Adjustment struct {
	Namespace string      `json:"namespace" flag:"-"`
	Entity    string      `json:"entity"`
	Resource  string      `json:"resource"`
	Tokens    weir.Tokens `json:"tokens" arg:"LIMIT=AMOUNT" range:"-1e18.."`
	ID        string      `json:"id"`
}

// Adjusted is what an adjustment left: of each limit that it changed, the entity's, then its parents'.
type Adjusted struct {
	Limits []Balance `json:"limits"`
}

// Balance is what is left of a limit.
type Balance struct {
	Entity     string  `json:"entity"`
	Resource   string  `json:"resource"`
	Limit      string  `json:"limit"`
	Available  int64   `json:"available"`
	RetryAfter Seconds `json:"retry_after,omitempty"`
}

// Decision is the outcome of a request. A server's answer has no At.
type Decision struct {
	Allowed    bool      `json:"allowed"`
	Degraded   bool      `json:"degraded"`
	Reason     string    `json:"reason,omitempty"` // of the degradation
	At         time.Time `json:"at,omitzero"`
	RetryAfter Seconds   `json:"retry_after"`
	Limits     []Status  `json:"limits"`
}

// DecisionOf returns a decision as it is sent and printed.
func DecisionOf(d *weir.Decision) Decision {
	v := Decision{d.Allowed, d.Degraded, d.Reason, d.At, Seconds(d.RetryAfter), make([]Status, len(d.Statuses))}
	if !d.At.IsZero() {
		v.At = d.At.UTC()
	}
	for i := range d.Statuses {
		v.Limits[i] = statusOf(&d.Statuses[i])
	}
	return v
}

// Status is the state of a limit.
type Status struct {
	Entity    string      `json:"entity"`
	Resource  string      `json:"resource"`
	Limit     string      `json:"limit"`
	Source    weir.Source `json:"source"`
	Manifest  string      `json:"manifest,omitempty"`
	Requested int64       `json:"requested"`
	Available int64       `json:"available"`
	Amount    int64       `json:"amount"`
	Period    string      `json:"period"`
	Burst     int64       `json:"burst"`
	FullIn    Seconds     `json:"full_in"`
	// EndsIn is how long until the window of a quota ends, or, if the question was what is available, until the next
	// slots that are held come back unless they are renewed.
	EndsIn Seconds `json:"ends_in,omitempty"`
	Refusal
	Trial
}

// Refusal is whether a limit refused, and what to do about it.
type Refusal struct {
	Refused    bool    `json:"refused"`
	RetryAfter Seconds `json:"retry_after"`
	Estimated  bool    `json:"estimated,omitempty"` // RetryAfter is a guess
}

// Trial is the state of a limit in shadow.
type Trial struct {
	Shadow      bool `json:"shadow,omitempty"`
	WouldRefuse bool `json:"would_refuse,omitempty"`
}

func statusOf(s *weir.LimitStatus) Status {
	return Status{
		s.Entity, s.Resource, s.Limit, s.Source, s.Manifest, s.Requested, s.Available, s.Amount,
		record.FormatPeriod(s.Period, s.Window, s.Heal), s.Burst, Seconds(s.Full), Seconds(s.Ends),
		Refusal{s.Refused, Seconds(s.RetryAfter), s.Refused && s.Estimated},
		Trial{s.Shadow, s.WouldRefuse},
	}
}

// Rate returns the limit. Its enforcement is not known.
func (s *Status) Rate() weir.Limit {
	text := s.Limit + ":1/" + s.Period
	switch {
	case s.Slots():
		text = s.Limit + ":" + strconv.FormatInt(s.Burst, 10) + s.Period
	case s.Amount == 0:
		text = s.Limit + ":" + s.Period
	}
	l, _ := weir.ParseLimit(text) // a server sends no other
	if !s.Slots() {
		l.Amount, l.Burst = s.Amount, s.Burst
	}
	return l
}

// Slots reports whether the limit is one of slots, of which Burst can be held at once.
func (s *Status) Slots() bool { return s.Amount == 0 && s.Burst > 0 }

// Statuses returns statuses as a limiter does.
func Statuses(all []Status) []weir.LimitStatus {
	out := make([]weir.LimitStatus, len(all))
	for i := range all {
		s := &all[i]
		out[i] = weir.LimitStatus{
			Entity: s.Entity, Resource: s.Resource, Limit: s.Limit, Source: s.Source, Manifest: s.Manifest,
			Requested: s.Requested, Available: s.Available, Amount: s.Amount, Burst: s.Burst,
			Full: time.Duration(s.FullIn), Ends: time.Duration(s.EndsIn),
			Refused: s.Refused, RetryAfter: time.Duration(s.RetryAfter),
			Shadow: s.Shadow, WouldRefuse: s.WouldRefuse, Estimated: s.Estimated,
		}
		l := s.Rate()
		out[i].Period, out[i].Window, out[i].Heal = l.Period, l.Window, l.Heal
	}
	return out
}

// Seconds is a duration in JSON: seconds, rounded up to milliseconds so that a caller who waits this long has waited
// enough. The longest duration, until a balance is topped up, is null.
type Seconds time.Duration

// MarshalJSON returns the duration as a number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) {
	d := time.Duration(s)
	if d == math.MaxInt64 {
		return []byte("null"), nil
	}
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return json.Marshal(float64(ms) / 1000)
}

// UnmarshalJSON reads what MarshalJSON writes. What exceeds the longest duration becomes that.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	n := math.Inf(1) // of null
	err := json.Unmarshal(text, &n)
	const most = math.MaxInt64 / int64(time.Millisecond)
	if ms := n*1000 + 0.5; ms < float64(most) {
		*s = Seconds(time.Duration(ms) * time.Millisecond)
	} else {
		*s = math.MaxInt64
	}
	return err
}

// The operations that decide. Explain spends nothing; Acquire spends for good, without a lease; Adjust corrects what
// was spent.
var (
	Explain = declare(Op{Name: "explain", Method: "GET", Path: "/v1/explain"},
		func(ctx context.Context, lim *weir.Limiter, q *Question) (*Explanation, error) {
			x, err := lim.Explain(ctx, weir.Request{
				Entity: q.Entity, Resource: q.Resource, Tokens: q.Tokens, Limits: q.Limits,
				OnUnavailable: q.OnUnavailable,
			})
			if err != nil {
				return nil, err
			}
			return explanationOf(&x), nil
		})
	Acquire = declare(Op{Name: "acquire", Method: "POST", Path: "/v1/acquire", Need: Spend, Raw: true},
		func(ctx context.Context, lim *weir.Limiter, q *Demand) (Decision, error) {
			lease, err := lim.Acquire(ctx, q.Request())
			if err != nil {
				return Decision{}, err
			}
			d := lease.Decision()
			return DecisionOf(&d), lease.Commit(ctx)
		})
	Adjust = declare(Op{Name: "adjustEntity", Method: "POST", Path: "/v1/adjust", Need: Spend, Raw: true},
		func(ctx context.Context, lim *weir.Limiter, q *Adjustment) (a Adjusted, err error) {
			left, err := lim.Adjust(ctx, weir.Request{
				Entity: q.Entity, Resource: q.Resource, Tokens: q.Tokens, ID: q.ID,
			})
			for _, b := range left {
				a.Limits = append(a.Limits, Balance{b.Entity, b.Resource, b.Limit, b.Available, Seconds(b.RetryAfter)})
			}
			return a, err
		})
)
