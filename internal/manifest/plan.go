package manifest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Plan lists how a manifest differs from the live records, and what applying it would do. Making it writes nothing.
type Plan struct {
	Namespace string `json:"namespace"`
	Manifest  string `json:"manifest"`
	Hash      string `json:"hash"` // of the manifest
	// CreateNamespace says that the namespace does not exist yet.
	CreateNamespace bool     `json:"create_namespace"`
	Changes         []Change `json:"changes"`
	Unchanged       int      `json:"unchanged"` // records that are as declared
	// LeftAlone counts records that no manifest declares, and Others those of other manifests.
	LeftAlone int            `json:"left_alone"`
	Others    map[string]int `json:"others,omitempty"`
	// Some names some of the records left alone.
	Some []string `json:"left_alone_some,omitempty"`
	// Last is the last revision that was fully applied.
	Last admin.Revision `json:"last,omitzero"`

	manifest *Manifest
	before   world
	removed  map[string]*admin.Entity // entities that are deleted
}

// ProblemsError reports why a manifest cannot be applied to the live records.
type ProblemsError []string

// Error lists all problems.
func (e ProblemsError) Error() string { return strings.Join(e, "; ") }

// PlanOptions say how to plan.
type PlanOptions struct {
	Exact bool // count all live buckets that a change touches, instead of the first 1,000
}

// Make compares a manifest with the live records of its namespace. It writes nothing.
func Make(ctx context.Context, lim *weir.Limiter, m *Manifest, opts PlanOptions) (*Plan, error) {
	lim = lim.In(m.Namespace)
	lv, err := read(ctx, lim, m.Name)
	if err != nil {
		return nil, err
	}
	p := &Plan{
		Namespace: m.Namespace, Manifest: m.Name, Hash: m.Hash(), CreateNamespace: lv.missing, Last: lv.last,
		Changes: []Change{}, manifest: m,
	}
	var problems ProblemsError
	for _, k := range keysOf(m.Records) {
		problems = append(problems, p.declared(k, m.Records[k], lv)...)
	}
	for _, k := range keysOf(lv.records) {
		p.undeclared(k, lv)
	}
	problems = append(problems, p.checkParents(lv)...)
	if len(problems) > 0 {
		return nil, problems
	}
	p.order()
	before := worldOf(lv)
	p.before = before
	after := p.after(before)
	for i := range p.Changes {
		p.Changes[i].describe(before, after)
	}
	reach := newReach(p.Changes, before, after)
	if p.CreateNamespace { // it has no buckets
		return p, nil
	}
	return p, reach.count(ctx, lim, opts.Exact)
}

// declared compares a record with its declaration.
func (p *Plan) declared(k Key, r *Record, lv *live) (problems []string) {
	old := lv.records[k]
	by := old.Managed()
	c := Change{key: k, before: old, after: r}
	exists := old.Version != 0 && (old.Entity == nil || !old.Entity.Created.IsZero())
	switch {
	case by != nil && by.Manifest != p.Manifest:
		return []string{fmt.Sprintf(
			"%s is declared in %s by manifest %s, and managed by manifest %s: declare it in one of them",
			k, r.at, strictyaml.Quote(p.Manifest), strictyaml.Quote(by.Manifest),
		)}
	case !exists:
		c.Action = Create
	case by == nil:
		c.Action = Adopt
	case !r.equal(&old):
		c.Action = Update
		c.Outside = recordOf(&old).hash() != by.Hash
	default:
		p.Unchanged++
		return nil
	}
	p.Changes = append(p.Changes, c)
	return nil
}

// maxSome is how many names a plan lists next to a count.
const maxSome = 5

// undeclared removes a record that the manifest manages but does not declare, and leaves any other alone.
func (p *Plan) undeclared(k Key, lv *live) {
	if p.manifest.Records[k] != nil {
		return
	}
	old := lv.records[k]
	switch by := old.Managed(); {
	case by != nil && by.Manifest == p.Manifest:
		p.Changes = append(p.Changes, Change{
			Action: Delete, key: k, before: old, Outside: recordOf(&old).hash() != by.Hash,
		})
	case by != nil:
		if p.Others == nil {
			p.Others = make(map[string]int)
		}
		p.Others[by.Manifest]++
	case old.Entity == nil || !old.Entity.Created.IsZero():
		if p.LeftAlone++; len(p.Some) < maxSome {
			p.Some = append(p.Some, k.String())
		}
	}
}

// entityAfter returns an entity as it will be, or nil.
func (p *Plan) entityAfter(lv *live, id string) *admin.Entity {
	k := Key{Scope: admin.Scope{Entity: id}, Own: true}
	if r := p.manifest.Records[k]; r != nil {
		return r.Entity
	}
	old := lv.records[k]
	if by := old.Managed(); old.Entity == nil || old.Entity.Created.IsZero() || by != nil && by.Manifest == p.Manifest {
		return nil
	}
	return old.Entity
}

// checkParents checks that the chains of all entities will be complete, short enough and free of cycles.
func (p *Plan) checkParents(lv *live) (problems []string) {
	check := func(e *admin.Entity, where string) {
		road := []string{e.ID}
		for at := e; at.Parent != ""; {
			next := p.entityAfter(lv, at.Parent)
			road = append(road, at.Parent)
			switch {
			case next == nil:
				problems = append(
					problems,
					fmt.Sprintf(
						"entity %s%s has parent %s, which neither exists nor is declared",
						strictyaml.Quote(at.ID), where, strictyaml.Quote(at.Parent),
					),
				)
				return
			case next.ID == e.ID || len(road) > weir.MaxDepth && slices.Contains(road[:len(road)-1], next.ID):
				problems = append(
					problems,
					fmt.Sprintf(
						"entity %s%s would be its own ancestor: %s", strictyaml.Quote(e.ID), where,
						strings.Join(road, " → "),
					),
				)
				return
			case len(road) > weir.MaxDepth:
				problems = append(
					problems,
					fmt.Sprintf(
						"entity %s%s would have a chain of more than %d entities", strictyaml.Quote(e.ID), where,
						weir.MaxDepth,
					),
				)
				return
			}
			at = next
		}
	}
	for _, k := range keysOf(p.manifest.Records) {
		if r := p.manifest.Records[k]; r.Entity != nil {
			check(r.Entity, fmt.Sprintf(" (%s)", r.at))
		}
	}
	for _, k := range keysOf(lv.records) {
		if e := lv.records[k].Entity; e != nil && p.manifest.Records[k] == nil && p.entityAfter(lv, e.ID) != nil {
			check(e, "")
		}
	}
	return problems
}

// order sorts the changes into the order in which they are made: entities after their parents, then limits, then
// removals, entities before their parents.
func (p *Plan) order() {
	depth := make(map[string]int)
	p.removed = make(map[string]*admin.Entity)
	for i := range p.Changes {
		if c := &p.Changes[i]; c.key.Own && c.Action == Delete {
			p.removed[c.key.Entity] = c.before.Entity
		}
	}
	for i := range p.Changes {
		if c := &p.Changes[i]; c.key.Own {
			depth[c.key.Entity] = p.depth(c)
		}
	}
	phase := func(c *Change) int {
		switch {
		case c.key.Own && c.Action != Delete:
			return depth[c.key.Entity]
		case c.Action != Delete:
			return 100
		case !c.key.Own:
			return 200
		}
		return 400 - depth[c.key.Entity]
	}
	for i := range p.Changes {
		p.Changes[i].phase = phase(&p.Changes[i])
	}
	slices.SortStableFunc(p.Changes, func(a, b Change) int { return a.phase - b.phase })
}

// depth counts an entity's parents: its future ones, or the former ones of an entity that is removed.
func (p *Plan) depth(c *Change) (n int) {
	e := c.before.Entity
	if c.after != nil {
		e = c.after.Entity
	}
	for ; e != nil && e.Parent != "" && n < weir.MaxDepth; n++ {
		e = p.entity(c.after != nil, e.Parent)
	}
	return n
}

// entity returns an entity after or before the changes.
func (p *Plan) entity(after bool, id string) *admin.Entity {
	k := Key{Scope: admin.Scope{Entity: id}, Own: true}
	if after {
		if r := p.manifest.Records[k]; r != nil {
			return r.Entity
		}
		return nil
	}
	return p.removed[id]
}

// after returns the limits that will apply.
func (p *Plan) after(before world) world {
	after := make(world, len(before))
	maps.Copy(after, before)
	for i := range p.Changes {
		switch c := &p.Changes[i]; {
		case c.key.Own:
		case c.after == nil || len(c.after.Limits.Limits) == 0:
			delete(after, c.key.Scope)
		default:
			after[c.key.Scope] = c.after.Limits.Limits
		}
	}
	return after
}

// Empty reports whether there is nothing to change.
func (p *Plan) Empty() bool { return len(p.Changes) == 0 && !p.CreateNamespace }

// Count returns the number of changes with an action.
func (p *Plan) Count(a Action) (n int) {
	for i := range p.Changes {
		if p.Changes[i].Action == a {
			n++
		}
	}
	return n
}

// Tightening returns how many changes other than deletions admit less in some way.
func (p *Plan) Tightening() (n int) {
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Action != Delete && (c.Moves == Tightens || c.Moves == Both) {
			n++
		}
	}
	return n
}

// Limits returns functions for the limits that apply to an entity on a resource before and after the changes, or nil
// if none do. A loaded plan does not know them.
func (p *Plan) Limits() (before, after func(entity, resource string) []weir.Limit) {
	of := func(w world) func(entity, resource string) []weir.Limit {
		return func(entity, resource string) []weir.Limit {
			limits, _, _ := w.limits(entity, resource)
			return limits
		}
	}
	return of(p.before), of(p.after(p.before))
}
