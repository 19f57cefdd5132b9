package manifest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Plan lists how a manifest differs from the live records, and what applying it would do. Making it writes nothing.
type Plan struct {
	Namespace string `json:"namespace"`
	Manifest  string `json:"manifest"`
	Hash      string `json:"hash"` // of the manifest
	// CreateNamespace means that the namespace does not exist yet.
	CreateNamespace bool     `json:"create_namespace"`
	Changes         []Change `json:"changes"`
	Unchanged       int      `json:"unchanged"` // records that are as declared
	// LeftAlone counts records that no manifest declares, and Others those of other manifests.
	LeftAlone int            `json:"left_alone"`
	Others    map[string]int `json:"others,omitempty"`
	// Some names some of the records left alone.
	Some []string `json:"left_alone_some,omitempty"`
	// Warnings are what is probably a mistake in what is declared.
	Warnings []string `json:"warnings,omitempty"`
	// Last is the last revision that was fully applied.
	Last admin.Revision `json:"last,omitzero"`
	// Rollout is the unfinished rollout of the manifest, in this version or another one; nil if there is none.
	Rollout *Ongoing `json:"rollout,omitempty"`
	// State is a hash of the changes and of the live records that they would change. It differs once any of these
	// has changed.
	State string `json:"state"`

	made
}

// made is what a plan was made from.
type made struct {
	manifest *Manifest
	before   scopes
	limits   scopes // after the changes
}

// ProblemsError reports why a manifest cannot be applied to the live records.
type ProblemsError []string

// Error lists the problems, or some of many with their number.
func (e ProblemsError) Error() string {
	if len(e) <= maxSome {
		return strings.Join(e, "; ")
	}
	return fmt.Sprintf("%d problems: %s; and %d more", len(e), strings.Join(e[:maxSome], "; "), len(e)-maxSome)
}

// PlanOptions define how to plan.
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
		Changes: []Change{}, made: made{manifest: m, before: scopes{at: time.Now()}},
	}
	left, err := ongoing(lv.rollout, m.Name, p.Hash)
	if err != nil {
		return nil, err
	}
	if left != nil {
		p.Rollout = &left.Ongoing
		p.Rollout.Terms.GateURL, p.Rollout.Terms.Servers = "", nil // which may be addresses that others need not see
	}
	var problems ProblemsError
	for _, k := range keysOf(m.Records) {
		problems = append(problems, p.declared(k, m.Records[k], lv)...)
	}
	for _, k := range keysOf(lv.records) {
		p.undeclared(k, lv)
	}
	before, after := p.entities(lv)
	problems = append(problems, p.checkParents(after)...)
	problems = append(problems, p.checkPlans(lv, after)...)
	if len(problems) > 0 {
		return nil, problems
	}
	p.order(before, after)
	p.State = p.state()
	p.Warnings = warnings(m, lv, p.before.at)
	p.before = scopesOf(lv.records, before, p.before.at)
	limits := p.after(p.before, after)
	for i := range p.Changes {
		p.Changes[i].describe(p.before, limits)
	}
	p.Warnings = append(p.Warnings, partial(p.Changes)...)
	reach := newReach(p.Changes, p.before, limits)
	if p.CreateNamespace { // it has no buckets
		return p, nil
	}
	if err := p.refuse(ctx, lim); err != nil {
		return nil, err
	}
	return p, reach.count(ctx, lim, opts.Exact)
}

// refuse marks the changes that would be refused because they hide a balance.
func (p *Plan) refuse(ctx context.Context, lim *weir.Limiter) error {
	var changes []admin.DeclaredChange
	hasBalance := false
	for _, r := range p.before.records {
		hasBalance = hasBalance || slices.ContainsFunc(limitsOf(&r), func(l weir.Limit) bool { return l.Balance })
	}
	if !hasBalance {
		return nil
	}
	for i := range p.Changes {
		changes = append(changes, p.Changes[i].declared(p.Manifest))
	}
	for i, err := range admin.New(lim).Manifests.Check(ctx, changes) {
		var bad *weir.ConfigError
		if err != nil && !errors.As(err, &bad) {
			return err
		}
		if bad != nil {
			p.Changes[i].Refused = bad.Reason
		}
	}
	return nil
}

// exists reports whether there is a live record. An entity that was never created has one while it is being deleted.
func exists(d *admin.Declared) bool {
	return d.Version != 0 && (d.Entity == nil || !d.Entity.Created.IsZero())
}

// declared compares a record with its declaration.
func (p *Plan) declared(k Key, r *Record, lv *live) (problems []string) {
	old, set := lv.records[k], lasting(r.Declared, p.before.at)
	by, still := old.Managed(), lasting(old, p.before.at)
	c := Change{work: work{key: k, before: old, after: &set}}
	switch {
	case blank(&set): // as if it were not declared
		return nil
	case by != nil && by.Manifest != p.Manifest:
		return []string{fmt.Sprintf(
			"%s is declared in %s by manifest %s, and managed by manifest %s: declare it in one of them",
			k, r.at, strictyaml.Quote(p.Manifest), strictyaml.Quote(by.Manifest),
		)}
	case !exists(&old):
		c.Action = Create
	case by == nil:
		c.Action = Adopt
	case old.Deleting || hash(&set) != hash(&still):
		c.Action = Update
		c.Outside = hash(&old) != by.Hash
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
	old := lv.records[k]
	if r := p.manifest.Records[k]; r != nil {
		set, still := lasting(r.Declared, p.before.at), lasting(old, p.before.at)
		if !blank(&set) || blank(&still) { // it was handled, or all that was declared has ended
			return
		}
	}
	switch by := old.Managed(); {
	case by != nil && by.Manifest == p.Manifest:
		p.Changes = append(p.Changes, Change{
			Action: Delete, work: work{key: k, before: old}, Outside: hash(&old) != by.Hash,
		})
	case by != nil:
		if p.Others == nil {
			p.Others = make(map[string]int)
		}
		p.Others[by.Manifest]++
	case exists(&old):
		if p.LeftAlone++; len(p.Some) < maxSome {
			p.Some = append(p.Some, k.String())
		}
	}
}

// entities returns the live entities, and those that there will be.
func (p *Plan) entities(lv *live) (before, after map[string]*admin.Entity) {
	before, after = make(map[string]*admin.Entity), make(map[string]*admin.Entity)
	for k, r := range lv.records {
		if by := r.Managed(); k.Own && exists(&r) {
			before[k.Entity] = r.Entity
			if by == nil || by.Manifest != p.Manifest {
				after[k.Entity] = r.Entity
			}
		}
	}
	for k, r := range p.manifest.Records {
		if k.Own {
			after[k.Entity] = r.Entity
		}
	}
	return before, after
}

// checkParents checks that the chains of all entities will be complete, short enough and free of cycles.
func (p *Plan) checkParents(after map[string]*admin.Entity) (problems []string) {
	check := func(e *admin.Entity, where string) {
		road := ancestry(e, weir.MaxDepth, func(id string) *admin.Entity { return after[id] })
		n := len(road)
		last, id := road[n-1], strictyaml.Quote(e.ID)
		switch {
		case after[last] == nil:
			problems = append(problems, fmt.Sprintf("entity %s%s has parent %s, which neither exists nor is declared",
				strictyaml.Quote(road[n-2]), where, strictyaml.Quote(last)))
		case slices.Contains(road[:n-1], last):
			problems = append(problems, fmt.Sprintf("entity %s%s would be its own ancestor: %s",
				id, where, strings.Join(road, " → ")))
		case n > weir.MaxDepth:
			problems = append(problems, fmt.Sprintf("entity %s%s would have a chain of more than %d entities",
				id, where, weir.MaxDepth))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(after)) { // the declared ones first
		if r := p.manifest.Records[entityKey(id)]; r != nil {
			check(r.Entity, fmt.Sprintf(" (%s)", r.at))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(after)) {
		if p.manifest.Records[entityKey(id)] == nil {
			check(after[id], "")
		}
	}
	return problems
}

// checkPlans checks that the plans of all entities will exist.
func (p *Plan) checkPlans(lv *live, after map[string]*admin.Entity) (problems []string) {
	for _, id := range slices.Sorted(maps.Keys(after)) {
		plan := after[id].Plan
		k := Key{Scope: admin.Scope{Plan: plan}}
		old, live := lv.records[k]
		if plan == "" || p.manifest.Records[k] != nil {
			continue
		}
		switch r, by := p.manifest.Records[entityKey(id)], old.Managed(); {
		case live && (by == nil || by.Manifest != p.Manifest): // it stays
		case r != nil:
			problems = append(problems, fmt.Sprintf(
				"entity %s (%s) has plan %s, which neither exists nor is declared: declare it under plans",
				strictyaml.Quote(id), r.at, strictyaml.Quote(plan)))
		default:
			problems = append(problems, fmt.Sprintf(
				"entity %s has plan %s, which is no longer declared: declare it, or give the entity another plan first",
				strictyaml.Quote(id), strictyaml.Quote(plan)))
		}
	}
	return problems
}

// order sorts the changes into the order in which they are made: plans, entities after their parents, then limits, then
// removals, entities before their parents and plans last.
func (p *Plan) order(before, after map[string]*admin.Entity) {
	depth := func(all map[string]*admin.Entity, id string) int {
		return len(ancestry(all[id], weir.MaxDepth, func(id string) *admin.Entity { return all[id] }))
	}
	for i := range p.Changes {
		switch c := &p.Changes[i]; {
		case c.key.isPlan() && c.Action == Delete:
			c.phase = 500
		case c.key.isPlan():
			c.phase = 0
		case c.key.Own && c.Action != Delete:
			c.phase = depth(after, c.key.Entity)
		case c.Action != Delete:
			c.phase = 100
		case !c.key.Own:
			c.phase = 200
		default:
			c.phase = 400 - depth(before, c.key.Entity)
		}
	}
	slices.SortStableFunc(p.Changes, func(a, b Change) int { return a.phase - b.phase })
}

// after returns the limits that will apply.
func (p *Plan) after(before scopes, entities map[string]*admin.Entity) scopes {
	records := maps.Clone(before.records)
	for i := range p.Changes {
		if c := &p.Changes[i]; c.after == nil {
			delete(records, c.key)
		} else {
			records[c.key] = *c.after
		}
	}
	p.limits = scopesOf(records, entities, p.before.at)
	return p.limits
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
		if c := &p.Changes[i]; c.Action != Delete && c.Moves.Tightening() {
			n++
		}
	}
	return n
}

// Limits returns functions for the limits that apply to an entity on a resource before and after the changes, or nil
// if none do. A loaded plan does not have them.
func (p *Plan) Limits() (before, after func(entity, resource string) []weir.Limit) {
	of := func(w scopes) func(entity, resource string) []weir.Limit {
		return func(entity, resource string) []weir.Limit { return w.first(entity, resource).limits }
	}
	return of(p.before), of(p.limits)
}
