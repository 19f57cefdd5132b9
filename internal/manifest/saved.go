package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Saved is a file of plans: the manifests, and a hash of the live records they were made from.
type Saved struct {
	Format string      `json:"format"` // SavedFormat
	Plans  []SavedPlan `json:"plans"`
}

// SavedPlan is one plan of the file.
type SavedPlan struct {
	Plan  *Plan  `json:"plan"` // for people and programs; the other fields are authoritative
	Text  string `json:"text"` // the manifest
	State string `json:"state"`
}

// SavedFormat is the format of saved plans.
const SavedFormat = "weir-plan-1"

// Save returns plans as a file.
func Save(plans []*Plan) ([]byte, error) {
	s := Saved{Format: SavedFormat}
	for _, p := range plans {
		s.Plans = append(s.Plans, SavedPlan{p, p.Text(), p.State})
	}
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

// Text returns the manifest of the plan, as [Manifest.Source] does.
func (p *Plan) Text() string { return string(p.manifest.Source()) }

// Of sets the manifest of a plan that was read from JSON, from a program that read the manifest under the given name,
// and no other. It fails if the plan would delete what is to move to another manifest.
func (p *Plan) Of(m *Manifest, name string) (*Plan, error) {
	p.manifest = m
	for i := range p.Changes {
		c := &p.Changes[i]
		if to := m.moving[Key(admin.RecordID{Scope: c.Scope, Own: c.Own})]; to != "" && c.Action == Delete {
			return nil, ProblemsError{fmt.Sprintf("%s moves from manifest %s to manifest %s: apply %s first, by itself",
				c.Target, strictyaml.Quote(m.Name), strictyaml.Quote(to), strictyaml.Quote(to))}
		}
	}
	if len(p.Warnings) > 0 {
		p.Warnings = strings.Split(m.Located(strings.Join(p.Warnings, "\n"), name), "\n")
	}
	return p, nil
}

// state returns a hash of everything the plan changes and of what it found.
func (p *Plan) state() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %v %d\n", p.Namespace, p.Hash, p.CreateNamespace, p.Last.Revision)
	for i := range p.Changes {
		c := &p.Changes[i]
		scope := struct{ Entity, Resource string }{c.key.Entity, c.key.Resource}
		fmt.Fprintf(h, "%s %q %v %d\n", c.Action, scope, c.key.Own, c.before.Version)
		if c.key.Plan != "" {
			fmt.Fprintf(h, "plan %q\n", c.key.Plan)
		}
		if c.before.Version > 0 {
			fmt.Fprintf(h, "%s\n", hash(&c.before))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Load makes the plans of a file again, with a function such as [Make]. It fails if any plan is no longer the same,
// because the live records have changed since.
func Load(text []byte, name string, plan func(*Manifest) (*Plan, error)) ([]*Plan, error) {
	var s Saved
	if err := json.Unmarshal(text, &s); err != nil || s.Format != SavedFormat {
		return nil, fmt.Errorf("%s is not a saved plan: make one with plan --out, or apply a manifest with -f", name)
	}
	ms := make([]*Manifest, len(s.Plans))
	for i, saved := range s.Plans {
		read, err := Decode([]strictyaml.Source{{Name: name, Text: []byte(saved.Text)}}, strictyaml.Options{})
		if err == nil && len(read) != 1 {
			err = fmt.Errorf("a plan of %d manifests", len(read))
		}
		if err != nil {
			return nil, fmt.Errorf("%s is not a saved plan: %w", name, err)
		}
		ms[i] = read[0]
	}
	link(ms)
	plans := make([]*Plan, len(ms))
	for i, m := range ms {
		p, err := plan(m)
		if err != nil {
			return nil, err
		}
		if old := &s.Plans[i]; p.State != old.State {
			return nil, fmt.Errorf("plan %s: %s: plan again: %w", name, p.changed(old.Plan), weir.ErrConflict)
		}
		plans[i] = p
	}
	return plans, nil
}

// changed describes how a plan differs from the saved one.
func (p *Plan) changed(old *Plan) string {
	const text = "the live records have changed since it was made"
	if old == nil {
		return text
	}
	has := func(cs []Change, target string) bool {
		return slices.ContainsFunc(cs, func(c Change) bool { return c.Target == target })
	}
	for _, cs := range [][2][]Change{{p.Changes, old.Changes}, {old.Changes, p.Changes}} {
		for i := range cs[0] {
			if !has(cs[1], cs[0][i].Target) {
				return text + ", including " + cs[0][i].Target
			}
		}
	}
	return text
}
