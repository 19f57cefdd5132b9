package api

import (
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Explanation is how a request would be decided, and why; see docs/integrate/http.md.
type Explanation struct {
	Namespace     string              `json:"namespace"`
	Entity        string              `json:"entity"`
	Resource      string              `json:"resource"`
	Tokens        weir.Tokens         `json:"tokens"`
	At            time.Time           `json:"at"`
	Outcome       string              `json:"outcome"`
	Detail        string              `json:"detail,omitempty"`
	RetryAfter    Seconds             `json:"retry_after"`
	Binding       *Binding            `json:"binding"`
	OnUnavailable ExplainedMode       `json:"on_unavailable"`
	Cached        Seconds             `json:"cached"`
	Chain         []ExplainedEntity   `json:"chain"`
	Manifests     []ExplainedRevision `json:"manifests"`
}

// Binding names the limit that binds.
type Binding struct {
	Entity   string `json:"entity"`
	Resource string `json:"resource,omitempty"` // the group or the total
	Limit    string `json:"limit"`
}

// ExplainedMode is how requests are decided without the store, and where that is set.
type ExplainedMode struct {
	Value weir.OnUnavailable `json:"value"`
	From  string             `json:"from"`
}

// ExplainedEntity is an entity of the chain.
type ExplainedEntity struct {
	Entity   string           `json:"entity"`
	Exists   bool             `json:"exists"`
	Name     string           `json:"name,omitempty"`
	Parent   string           `json:"parent,omitempty"`
	Plan     string           `json:"plan,omitempty"` // that it names, or has from an ancestor
	Cascade  bool             `json:"cascade"`
	Manifest string           `json:"manifest,omitempty"`
	Levels   []ExplainedLevel `json:"levels"`
	// Those of the resource's group and of the total, as far as they are in use.
	Groups []ExplainedLevel `json:"groups,omitempty"`
	Limits []ExplainedLimit `json:"limits"`
	// When limits of these end, or others begin.
	Changes []ExplainedChange `json:"changes,omitempty"`
	Items   int               `json:"items,omitempty"` // that the store has split the bucket into
}

// ExplainedLevel is a level at which limits are looked up.
type ExplainedLevel struct {
	Resource string      `json:"resource,omitempty"` // a group or the total
	Source   weir.Source `json:"source"`
	Set      bool        `json:"set"`
	Applies  bool        `json:"applies"`
	// If set at this level.
	OnUnavailable weir.OnUnavailable `json:"on_unavailable,omitempty"`
}

// ExplainedChange is what applies once limits end or others begin.
type ExplainedChange struct {
	Resource string        `json:"resource,omitempty"` // the group or the total; otherwise the explanation's
	At       admin.Instant `json:"at"`
	Source   weir.Source   `json:"source,omitempty"` // none without limits
	Limits   []weir.Limit  `json:"limits"`
}

// ExplainedLimit uses the names of a status in other answers, and adds to them.
type ExplainedLimit struct {
	Limit      string       `json:"limit"`
	Resource   string       `json:"resource,omitempty"` // the group or the total; otherwise the explanation's
	Source     weir.Source  `json:"source"`
	Manifest   string       `json:"manifest,omitempty"`
	Text       string       `json:"text"`
	Amount     int64        `json:"amount"`
	Period     string       `json:"period"`
	Burst      int64        `json:"burst"`
	Enforce    weir.Enforce `json:"enforce"`
	MaxDebt    int64        `json:"max_debt,omitempty"`
	Returns    string       `json:"returns,omitempty"`
	Shadow     bool         `json:"shadow"`
	Requested  int64        `json:"requested"`
	Available  int64        `json:"available"`
	Used       float64      `json:"used"`
	FullIn     Seconds      `json:"full_in"`
	EndsIn     Seconds      `json:"ends_in,omitempty"` // see [Status]
	Refused    bool         `json:"refused"`
	RetryAfter Seconds      `json:"retry_after"`
	Estimated  bool         `json:"estimated,omitempty"`
	// For a limit in shadow.
	WouldRefuse bool `json:"would_refuse,omitempty"`
	Binds       bool `json:"binds"`
}

// ExplainedRevision is the last revision of a manifest.
type ExplainedRevision struct {
	Manifest string    `json:"manifest"`
	Revision int       `json:"revision"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
}

// explanationOf returns an explanation as it is sent and printed.
func explanationOf(x *weir.Explanation) *Explanation {
	v := &Explanation{
		Namespace: x.Namespace, Entity: x.Entity, Resource: x.Resource, Tokens: x.Tokens, At: x.At.UTC(),
		Outcome: outcome(x.Err), RetryAfter: Seconds(x.RetryAfter()), Cached: Seconds(x.Cached),
		OnUnavailable: ExplainedMode{x.OnUnavailable, x.OnUnavailableFrom},
		Chain:         make([]ExplainedEntity, len(x.Chain)), Manifests: make([]ExplainedRevision, len(x.Manifests)),
	}
	if v.Tokens == nil {
		v.Tokens = weir.Tokens{}
	}
	if x.Err != nil {
		v.Detail = x.Err.Error()
	}
	if n, l := x.Binding(); l != nil {
		v.Binding = &Binding{n.ID, aggregateOf(&l.Status), l.Limit.Name}
	}
	for i := range x.Chain {
		v.Chain[i] = explainedEntity(&x.Chain[i])
	}
	for i, r := range x.Manifests {
		v.Manifests[i] = ExplainedRevision{r.Manifest, r.Revision, r.At.UTC(), r.By}
	}
	return v
}

// Err returns the error of a request that would not be admitted.
func (x *Explanation) Err() error {
	is := outcomes[x.Outcome]
	if is == nil {
		return nil
	}
	return &outcomeError{x.Detail, is}
}

// outcomeError is what an explanation reports about a request that would not be admitted.
type outcomeError struct {
	detail string
	is     error
}

func (e *outcomeError) Error() string { return e.detail }
func (e *outcomeError) Unwrap() error { return e.is }

// The outcomes.
const (
	Allowed      = "allowed"
	Refused      = "refused"
	ExceedsBurst = "exceeds-burst"
	NoLimits     = "no-limits"
)

// outcomes are the errors of requests that would not be admitted.
var outcomes = map[string]error{
	Refused: weir.ErrExceeded, ExceedsBurst: weir.ErrExceedsBurst, NoLimits: weir.ErrNoLimits,
}

// Statuses returns the states of all limits that apply.
func (x *Explanation) Statuses() []Status {
	all := []Status{}
	for i := range x.Chain {
		for _, l := range x.Chain[i].Limits {
			all = append(all, Status{
				x.Chain[i].Entity, cmp.Or(l.Resource, x.Resource), l.Limit, l.Source, l.Manifest, l.Requested,
				l.Available, l.Amount,
				l.Period, l.Burst, l.FullIn, l.EndsIn,
				Refusal{l.Refused, l.RetryAfter, l.Estimated},
				Trial{l.Shadow, l.WouldRefuse},
			})
		}
	}
	return all
}

func outcome(err error) string {
	for name, is := range outcomes {
		if errors.Is(err, is) {
			return name
		}
	}
	if err != nil {
		return Refused
	}
	return Allowed
}

func explainedEntity(n *weir.ExplainedEntity) ExplainedEntity {
	j := ExplainedEntity{
		n.ID, n.Exists, n.Name, n.Parent, n.Plan, n.Cascade, n.Manifest,
		explainedLevels(n.Scopes), explainedLevels(n.Groups), make([]ExplainedLimit, len(n.Limits)), nil, n.Items,
	}
	for _, ch := range n.Next {
		j.Changes = append(j.Changes, ExplainedChange{
			ch.Resource, calendar.InZone(ch.From), ch.Source, append([]weir.Limit{}, ch.Limits...),
		})
	}
	for i := range n.Limits {
		l := &n.Limits[i]
		s := &l.Status
		j.Limits[i] = ExplainedLimit{
			Limit: s.Limit, Resource: aggregateOf(s), Source: s.Source, Manifest: s.Manifest, Text: l.Limit.String(),
			Amount: s.Amount, Period: record.FormatPeriod(s.Period, s.Window, s.Heal), Burst: s.Burst,
			Enforce: l.Limit.Enforce, Shadow: s.Shadow,
			Requested: s.Requested, Available: s.Available, Used: math.Round(l.Used()*1e4) / 1e4,
			FullIn: Seconds(s.Full), EndsIn: Seconds(s.Ends), Refused: s.Refused, RetryAfter: Seconds(s.RetryAfter),
			Estimated: s.Refused && s.Estimated, WouldRefuse: s.WouldRefuse, Binds: l.Binds, MaxDebt: l.Limit.MaxDebt,
		}
		if l.Limit.Strict {
			j.Limits[i].Returns = "strict"
		}
	}
	return j
}

func explainedLevels(scopes []weir.ExplainedScope) []ExplainedLevel {
	levels := make([]ExplainedLevel, len(scopes))
	for i, l := range scopes {
		levels[i] = ExplainedLevel{l.Resource, l.Source, l.Set, l.Applies, l.OnUnavailable}
	}
	return levels
}

// aggregateOf returns the group or the total that a limit is on, or "".
func aggregateOf(s *weir.LimitStatus) string {
	if store.Aggregate(s.Resource) {
		return s.Resource
	}
	return ""
}
