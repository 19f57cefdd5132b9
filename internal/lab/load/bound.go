package load

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/traffic"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Bound compares how many tokens of a limit a run was admitted with how many all buckets together may admit.
type Bound struct {
	Limit    string `json:"limit"`
	Admitted uint64 `json:"admitted"` // at least
	Allowed  uint64 `json:"allowed"`  // at most
}

// Bounds returns the bounds of a run under its scenario's own limits: of each rate that every acquire spends from and
// that no call adjusts. Where several levels have a limit, the widest one counts.
func Bounds(p *traffic.Plan, t *Tally) ([]Bound, error) {
	text, err := p.Manifest(weir.DefaultNamespace)
	if err != nil {
		return nil, err
	}
	src := strictyaml.Source{Name: "scenario " + p.Scenario.Name, Text: text}
	ms, err := manifest.Decode([]strictyaml.Source{src}, strictyaml.Options{})
	if err != nil {
		return nil, err
	}
	acquired := t.Ops[traffic.Acquire]
	took := t.Elapsed + acquired.Response.At(100)
	widest := make(map[string]float64) // of a bucket
	for _, r := range ms[0].Records {
		if r.Limits == nil {
			continue
		}
		if len(r.Limits.Bounded) > 0 {
			return nil, nil
		}
		for _, l := range r.Limits.Limits {
			widest[l.Name] = max(widest[l.Name], most(l, took))
		}
	}
	var all []Bound
	for _, name := range slices.Sorted(maps.Keys(widest)) {
		allowed := widest[name] * float64(p.Buckets())
		if n := least(p.Scenario.Calls, name); n > 0 && allowed < math.MaxInt64 {
			admitted := acquired.Calls - acquired.Refused - acquired.Failed
			all = append(all, Bound{name, uint64(n) * admitted, uint64(allowed)})
		}
	}
	return all, nil
}

// most returns how many tokens a limit admits within a time: infinitely many if it is no rate, or not enforced on all.
func most(l weir.Limit, within time.Duration) float64 {
	if l.Period == 0 || l.Enforce != weir.EnforceOn {
		return math.Inf(1)
	}
	burst := cmp.Or(l.Burst, l.Amount)
	return float64(burst) + math.Ceil(float64(l.Amount)*within.Seconds()/l.Period.Seconds())
}

// least returns how many tokens of a limit each admitted acquire spends and keeps.
func least(kinds []traffic.Kind, limit string) float64 {
	n := math.Inf(1)
	for i := range kinds {
		k := &kinds[i]
		if _, adjusted := k.Adjust[limit]; adjusted {
			return 0
		}
		if k.Op == traffic.Acquire {
			n = min(n, k.Tokens[limit].From)
		}
	}
	return n
}
