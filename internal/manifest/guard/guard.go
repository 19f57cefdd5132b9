// Package guard refuses plans by rules in a file, whoever wrote the manifests.
package guard

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/manifest/live"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Rules are what plans must keep to.
type Rules struct {
	// AboveTier is by what factor the limits of an entity may be above those that apply to it otherwise: of its plan,
	// the resource, the system. 0 means any.
	AboveTier float64 `yaml:"above_tier"`
	// AtOnce is by how much a limit may be tightened without stages, as a percentage. "" means any.
	AtOnce string `yaml:"tighten_at_once"`

	cut float64 // of AtOnce; 1 for any
}

// Read reads the text of a file of rules.
func Read(name string, text []byte) (*Rules, error) {
	r := &Rules{cut: 1}
	bad := func(format string, args ...any) (*Rules, error) {
		return nil, fmt.Errorf("policy %s: %s: write above_tier: 2, tighten_at_once: 50%%, or both", name,
			fmt.Sprintf(format, args...))
	}
	if err := yaml.Load(text, r, yaml.WithKnownFields()); err != nil {
		short := strings.NewReplacer("\n", " ", " not found in type guard.Rules", " is unknown")
		return bad("%s", short.Replace(err.Error()))
	}
	if r.AtOnce != "" {
		digits, ok := strings.CutSuffix(r.AtOnce, "%")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 0 || n > 99 {
			return bad("tighten_at_once is not a percentage from 0%% to 99%%: %s", strictyaml.Quote(r.AtOnce))
		}
		r.cut = float64(n) / 100
	}
	switch {
	case r.AboveTier == 0 && r.AtOnce == "":
		return bad("has no rule")
	case r.AboveTier != 0 && (r.AboveTier < 1 || math.IsInf(r.AboveTier, 0) || math.IsNaN(r.AboveTier)):
		return bad("above_tier is not a factor of at least 1: %v", r.AboveTier)
	}
	return r, nil
}

// Check returns what a plan breaks: rules that no apply may break, and those that an apply in stages keeps. The plan
// is not one that was read from JSON.
func (r *Rules) Check(p *manifest.Plan) (broken, unstaged []string) {
	before, after := p.Scopes()
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Own || c.Action == manifest.Delete {
			continue
		}
		if text := r.above(c, after); text != "" {
			broken = append(broken, c.Target+": "+text)
		}
		if text := r.sudden(c, before); text != "" {
			unstaged = append(unstaged, c.Target+": "+text)
		}
	}
	return broken, unstaged
}

// above returns how a change puts an entity above its tier, at any time from now on; "" if it does not.
func (r *Rules) above(c *manifest.Change, after live.Scopes) string {
	if c.Entity == "" || r.AboveTier == 0 {
		return ""
	}
	record := after.Get(admin.RecordID{Scope: c.Scope})
	for _, at := range live.Course(after.At, &record) {
		set := live.LimitsAt(&record, at)
		if len(set) == 0 {
			continue
		}
		for _, tier := range after.As(at).Below(c.Scope) {
			for _, t := range tier.Limits {
				if text := r.over(set, t); text != "" {
					return text + when(at, after.At)
				}
			}
		}
	}
	return ""
}

func when(at, now time.Time) string {
	if at.Equal(now) {
		return ""
	}
	return " from " + at.UTC().Format(time.RFC3339)
}

// over returns how limits are above one of the tier.
func (r *Rules) over(set []weir.Limit, tier weir.Limit) string {
	if tier.Enforce != weir.EnforceOn {
		return ""
	}
	name := strictyaml.Quote(tier.Name)
	i, has := slices.BinarySearchFunc(set, tier, delta.ByName)
	if !has || set[i].Enforce != weir.EnforceOn && set[i].Former == (weir.Rate{}) {
		return name + " is not enforced, which the limits that apply otherwise enforce"
	}
	all := []weir.Limit{set[i]}
	if set[i].Enforce != weir.EnforceOn {
		all = append(all, strictyaml.Former(set[i]))
	}
	for _, l := range all {
		switch _, by, ok := ratio(l, tier); {
		case !ok:
			return name + " is of another kind than the limit that applies otherwise"
		case by > r.AboveTier:
			return fmt.Sprintf("%s is %.3g times what applies otherwise, at most %.3g times is allowed", name,
				by, r.AboveTier)
		}
	}
	return ""
}

// sudden returns how a change tightens limits by more than is allowed at once.
func (r *Rules) sudden(c *manifest.Change, before live.Scopes) string {
	all := [][]weir.Limit{c.Was}
	if len(c.Was) == 0 {
		all = nil
		for _, l := range before.Below(c.Scope) {
			all = append(all, l.Limits)
		}
	}
	for _, was := range all {
		if r.cut == 1 || !delta.On(c.Resource, was, c.Set).Tightening() {
			continue
		}
		for _, l := range c.Set {
			i, had := slices.BinarySearchFunc(was, l, delta.ByName)
			name := strictyaml.Quote(l.Name)
			switch {
			case l.Enforce != weir.EnforceOn: // shadow, or staged by hand
			case !had || was[i].Enforce == weir.EnforceShadow:
				return name + " is new, where nothing was refused"
			default:
				if by, _, ok := ratio(l, was[i]); !ok || by < 1-r.cut {
					return fmt.Sprintf("%s is tightened by more than %s", name, r.AtOnce)
				}
			}
		}
	}
	return ""
}

// ratio returns the least and the greatest of the factors by which the rate and the burst of two limits differ; false
// if they are of different kinds.
func ratio(a, b weir.Limit) (least, most float64, ok bool) {
	if a.Window != b.Window || a.Balance != b.Balance || (a.Slots > 0) != (b.Slots > 0) {
		return 0, 0, false
	}
	switch {
	case a.Balance:
		return 1, 1, true
	case a.Slots > 0:
		by := float64(a.Slots) / float64(b.Slots)
		return by, by, true
	}
	// Quotas have no period.
	rate := float64(a.Amount) / float64(b.Amount) * float64(max(1, b.Period)) / float64(max(1, a.Period))
	burst := float64(cmp.Or(a.Burst, a.Amount)) / float64(cmp.Or(b.Burst, b.Amount))
	return min(rate, burst), max(rate, burst), true
}
