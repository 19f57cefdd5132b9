package weir

import (
	"encoding/json"
	"errors"
	"math"
	"time"
)

// explanationJSON is an explanation on the wire, as described in docs/guide/http.md. Durations are in seconds.
type explanationJSON struct {
	Namespace     string              `json:"namespace"`
	Entity        string              `json:"entity"`
	Resource      string              `json:"resource"`
	Tokens        Tokens              `json:"tokens"`
	At            time.Time           `json:"at"`
	Outcome       string              `json:"outcome"`
	Detail        string              `json:"detail,omitempty"`
	RetryAfter    float64             `json:"retry_after"`
	Binding       *bindingJSON        `json:"binding"`
	OnUnavailable onUnavailableJSON   `json:"on_unavailable"`
	Cached        float64             `json:"cached"`
	Chain         []explainedJSON     `json:"chain"`
	Manifests     []explainedRevision `json:"manifests"`
}

type bindingJSON struct {
	Entity string `json:"entity"`
	Limit  string `json:"limit"`
}

type onUnavailableJSON struct {
	Value OnUnavailable `json:"value"`
	From  string        `json:"from"`
}

type explainedJSON struct {
	Entity   string               `json:"entity"`
	Exists   bool                 `json:"exists"`
	Name     string               `json:"name,omitempty"`
	Parent   string               `json:"parent,omitempty"`
	Cascade  bool                 `json:"cascade"`
	Manifest string               `json:"manifest,omitempty"`
	Levels   []explainedLevelJSON `json:"levels"`
	Limits   []explainedLimitJSON `json:"limits"`
}

type explainedLevelJSON struct {
	Source  Source `json:"source"`
	Set     bool   `json:"set"`
	Applies bool   `json:"applies"`
	// If set at this level.
	OnUnavailable OnUnavailable `json:"on_unavailable,omitempty"`
}

// explainedLimitJSON uses the names of a status in other answers, and adds to them.
type explainedLimitJSON struct {
	Limit      string  `json:"limit"`
	Source     Source  `json:"source"`
	Manifest   string  `json:"manifest,omitempty"`
	Text       string  `json:"text"`
	Amount     int64   `json:"amount"`
	Period     string  `json:"period"`
	Burst      int64   `json:"burst"`
	Enforce    Enforce `json:"enforce"`
	Shadow     bool    `json:"shadow"`
	Requested  int64   `json:"requested"`
	Available  int64   `json:"available"`
	Used       float64 `json:"used"`
	FullIn     float64 `json:"full_in"`
	Refused    bool    `json:"refused"`
	RetryAfter float64 `json:"retry_after"`
	// For a limit in shadow.
	WouldRefuse bool `json:"would_refuse,omitempty"`
	Binds       bool `json:"binds"`
}

type explainedRevision struct {
	Manifest string    `json:"manifest"`
	Revision int       `json:"revision"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
}

// MarshalJSON writes the answer of GET /v1/explain. The outcome is allowed, refused, exceeds-burst or no-limits.
func (x Explanation) MarshalJSON() ([]byte, error) {
	j := explanationJSON{
		Namespace: x.Namespace, Entity: x.Entity, Resource: x.Resource, Tokens: x.Tokens, At: x.At.UTC(),
		Outcome: x.outcome(), RetryAfter: inSeconds(x.RetryAfter()), Cached: inSeconds(x.Cached),
		OnUnavailable: onUnavailableJSON{x.OnUnavailable, x.OnUnavailableFrom},
		Chain:         make([]explainedJSON, len(x.Chain)), Manifests: make([]explainedRevision, len(x.Manifests)),
	}
	if j.Tokens == nil {
		j.Tokens = Tokens{}
	}
	if x.Err != nil {
		j.Detail = x.Err.Error()
	}
	if n, l := x.Binding(); l != nil {
		j.Binding = &bindingJSON{n.ID, l.Limit.Name}
	}
	for i := range x.Chain {
		j.Chain[i] = x.Chain[i].json()
	}
	for i, r := range x.Manifests {
		j.Manifests[i] = explainedRevision{r.Manifest, r.Revision, r.At.UTC(), r.By}
	}
	return json.Marshal(j)
}

func (x *Explanation) outcome() string {
	switch {
	case x.Err == nil:
		return "allowed"
	case errors.Is(x.Err, ErrExceedsBurst):
		return "exceeds-burst"
	case errors.Is(x.Err, ErrNoLimits):
		return "no-limits"
	}
	return "refused"
}

func (n *ExplainedEntity) json() explainedJSON {
	j := explainedJSON{
		n.ID, n.Exists, n.Name, n.Parent, n.Cascade, n.Manifest,
		make([]explainedLevelJSON, len(n.Levels)), make([]explainedLimitJSON, len(n.Limits)),
	}
	for i, l := range n.Levels {
		j.Levels[i] = explainedLevelJSON(l)
	}
	for i := range n.Limits {
		l := &n.Limits[i]
		s := &l.Status
		j.Limits[i] = explainedLimitJSON{
			Limit: s.Limit, Source: s.Source, Manifest: s.Manifest, Text: l.Limit.String(),
			Amount: s.Amount, Period: formatPeriod(s.Period), Burst: s.Burst, Enforce: l.Limit.Enforce,
			Shadow:    s.Shadow,
			Requested: s.Requested, Available: s.Available, Used: math.Round(l.Used()*1e4) / 1e4,
			FullIn: inSeconds(s.Full), Refused: s.Refused, RetryAfter: inSeconds(s.RetryAfter),
			WouldRefuse: s.WouldRefuse, Binds: l.Binds,
		}
	}
	return j
}

// inSeconds rounds up to milliseconds, so that waiting for the result is long enough.
func inSeconds(d time.Duration) float64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return float64(ms) / 1000
}
