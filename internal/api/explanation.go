package api

import (
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy/record"
)

// explanation is an explanation on the wire, as described in docs/guide/http.md. Durations are in seconds.
type explanation struct {
	Namespace     string              `json:"namespace"`
	Entity        string              `json:"entity"`
	Resource      string              `json:"resource"`
	Tokens        weir.Tokens         `json:"tokens"`
	At            time.Time           `json:"at"`
	Outcome       string              `json:"outcome"`
	Detail        string              `json:"detail,omitempty"`
	RetryAfter    float64             `json:"retry_after"`
	Binding       *binding            `json:"binding"`
	OnUnavailable explainedMode       `json:"on_unavailable"`
	Cached        float64             `json:"cached"`
	Chain         []explainedEntity   `json:"chain"`
	Manifests     []explainedRevision `json:"manifests"`
}

type binding struct {
	Entity string `json:"entity"`
	Limit  string `json:"limit"`
}

type explainedMode struct {
	Value weir.OnUnavailable `json:"value"`
	From  string             `json:"from"`
}

type explainedEntity struct {
	Entity   string           `json:"entity"`
	Exists   bool             `json:"exists"`
	Name     string           `json:"name,omitempty"`
	Parent   string           `json:"parent,omitempty"`
	Cascade  bool             `json:"cascade"`
	Manifest string           `json:"manifest,omitempty"`
	Levels   []explainedLevel `json:"levels"`
	Limits   []explainedLimit `json:"limits"`
}

type explainedLevel struct {
	Source  weir.Source `json:"source"`
	Set     bool        `json:"set"`
	Applies bool        `json:"applies"`
	// If set at this level.
	OnUnavailable weir.OnUnavailable `json:"on_unavailable,omitempty"`
}

// explainedLimit uses the names of a status in other answers, and adds to them.
type explainedLimit struct {
	Limit      string       `json:"limit"`
	Source     weir.Source  `json:"source"`
	Manifest   string       `json:"manifest,omitempty"`
	Text       string       `json:"text"`
	Amount     int64        `json:"amount"`
	Period     string       `json:"period"`
	Burst      int64        `json:"burst"`
	Enforce    weir.Enforce `json:"enforce"`
	Shadow     bool         `json:"shadow"`
	Requested  int64        `json:"requested"`
	Available  int64        `json:"available"`
	Used       float64      `json:"used"`
	FullIn     float64      `json:"full_in"`
	Refused    bool         `json:"refused"`
	RetryAfter float64      `json:"retry_after"`
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

// Explanation is the answer of GET /v1/explain. Its outcome is allowed, refused, exceeds-burst or no-limits.
type Explanation struct{ weir.Explanation }

// MarshalJSON writes the explanation.
func (e Explanation) MarshalJSON() ([]byte, error) {
	x := &e.Explanation
	j := explanation{
		Namespace: x.Namespace, Entity: x.Entity, Resource: x.Resource, Tokens: x.Tokens, At: x.At.UTC(),
		Outcome: outcome(x.Err), RetryAfter: inSeconds(x.RetryAfter()), Cached: inSeconds(x.Cached),
		OnUnavailable: explainedMode{x.OnUnavailable, x.OnUnavailableFrom},
		Chain:         make([]explainedEntity, len(x.Chain)), Manifests: make([]explainedRevision, len(x.Manifests)),
	}
	if j.Tokens == nil {
		j.Tokens = weir.Tokens{}
	}
	if x.Err != nil {
		j.Detail = x.Err.Error()
	}
	if n, l := x.Binding(); l != nil {
		j.Binding = &binding{n.ID, l.Limit.Name}
	}
	for i := range x.Chain {
		j.Chain[i] = entityJSON(&x.Chain[i])
	}
	for i, r := range x.Manifests {
		j.Manifests[i] = explainedRevision{r.Manifest, r.Revision, r.At.UTC(), r.By}
	}
	return json.Marshal(j)
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "allowed"
	case errors.Is(err, weir.ErrExceedsBurst):
		return "exceeds-burst"
	case errors.Is(err, weir.ErrNoLimits):
		return "no-limits"
	}
	return "refused"
}

func entityJSON(n *weir.ExplainedEntity) explainedEntity {
	j := explainedEntity{
		n.ID, n.Exists, n.Name, n.Parent, n.Cascade, n.Manifest,
		make([]explainedLevel, len(n.Levels)), make([]explainedLimit, len(n.Limits)),
	}
	for i, l := range n.Levels {
		j.Levels[i] = explainedLevel(l)
	}
	for i := range n.Limits {
		l := &n.Limits[i]
		s := &l.Status
		j.Limits[i] = explainedLimit{
			Limit: s.Limit, Source: s.Source, Manifest: s.Manifest, Text: l.Limit.String(),
			Amount: s.Amount, Period: record.FormatPeriod(s.Period), Burst: s.Burst, Enforce: l.Limit.Enforce,
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
