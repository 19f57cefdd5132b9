package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/claims"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/manifest/live"
	"github.com/weirlimits/weir/internal/manifest/reach"
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
	// Givers are the manifests from which records move.
	Givers []Giver `json:"givers,omitempty"`
	// Unmanaged has the records that no manifest manages and this one does not declare, if the whole namespace was
	// read.
	Unmanaged []live.Unmanaged `json:"unmanaged,omitempty"`
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
	managed  []Key // records that the manifest manages, and perhaps others
	before   live.Scopes
	limits   live.Scopes // after the changes
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
	// Whole reads the whole namespace, not only what the manifest declares and manages: for [Plan.Unmanaged], and for
	// [Plan.Scopes] of many entities.
	Whole bool
}

// Make compares a manifest with the live records of its namespace. It writes nothing.
func Make(ctx context.Context, lim *weir.Limiter, m *Manifest, opts PlanOptions) (*Plan, error) {
	lim = lim.In(m.Namespace)
	lv, err := read(ctx, lim, m, opts.Whole || opts.Exact)
	if err != nil {
		return nil, err
	}
	p := &Plan{
		Namespace: m.Namespace, Manifest: m.Name, Hash: m.Hash(), CreateNamespace: lv.missing, Last: lv.last,
		Changes: []Change{}, made: made{manifest: m, managed: lv.managed},
	}
	p.before = lv.Scopes(ctx, time.Now())
	left, err := ongoing(lv.rollout, m.Name, p.Hash)
	if err != nil {
		return nil, err
	}
	if left != nil {
		p.Rollout = &left.Ongoing
		p.Rollout.Terms.GateURL, p.Rollout.Terms.Servers = "", nil // which may be addresses that others need not see
	}
	if err := p.compare(); err != nil {
		return nil, err
	}
	for _, k := range lv.managed {
		p.undeclared(k)
	}
	problems, err := p.givers(ctx, lim, lv)
	if err != nil {
		return nil, err
	}
	if opts.Whole {
		p.unmanaged(lv)
	}
	problems = append(problems, p.checkParents(lv.Below(ctx, p.uprooted()))...)
	problems = append(problems, p.checkPlans(ctx, lv)...)
	if err := lv.Err(); err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return nil, ProblemsError(problems)
	}
	p.order()
	p.State = p.state()
	p.Warnings = warnings(ctx, m, lv, p.before.At)
	limits := p.after()
	if left != nil && left.Same {
		left.match(p.Changes)
	}
	for i := range p.Changes {
		p.Changes[i].describe(p.before, limits)
	}
	p.Warnings = append(p.Warnings, partial(p.Changes)...)
	touched := p.reach(ctx, lv)
	if p.CreateNamespace { // it has no buckets
		return p, lv.Err()
	}
	if err := p.refuse(ctx, lim, lv); err != nil {
		return nil, err
	}
	return p, cmp.Or(touched.Count(ctx, lim, opts.Exact), lv.Err())
}

// reach returns what finds the live buckets that the changes touch.
func (p *Plan) reach(ctx context.Context, lv *reading) *reach.Reach {
	r := &reach.Reach{Before: p.before, After: p.limits, Live: lv.Records}
	for k := range p.manifest.Records {
		if k.Own {
			r.Declared = append(r.Declared, k.Entity)
		}
	}
	var of []*Change
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.key.Own && p.before.Plan(c.key.Entity) == p.limits.Plan(c.key.Entity) ||
			!c.key.Own && !slices.ContainsFunc(c.Fields, func(f delta.Field) bool {
				return f.Limit != "" || f.Name == boundedMember.key
			}) {
			continue
		}
		r.Changes = append(r.Changes, reach.Change{Scope: c.key.Scope, Own: c.key.Own, Begins: c.begins})
		of = append(of, c)
	}
	r.Prepare(ctx)
	for i, c := range of {
		c.Touches = r.Changes[i].Touches
	}
	return r
}

// unmanaged names the records that no manifest manages.
func (p *Plan) unmanaged(lv *reading) {
	var all []Key
	for id, d := range lv.Known() {
		if d.Managed() == nil && exists(&d) && p.manifest.Records[Key(id)] == nil {
			all = append(all, Key(id))
		}
	}
	slices.SortFunc(all, Key.Compare)
	for _, k := range all {
		p.Unmanaged = append(p.Unmanaged, live.Unmanaged{
			Target: k.String(), Moves: p.before.Moves(admin.RecordID(k)),
		})
	}
}

// refuse marks the changes that would be refused because they hide a balance.
func (p *Plan) refuse(ctx context.Context, lim *weir.Limiter, lv *reading) error {
	var changes []admin.DeclaredChange
	may := false
	for _, r := range lv.Known() {
		may = may || slices.ContainsFunc(limitsOf(&r), func(l weir.Limit) bool { return l.Balance })
	}
	for i := range p.Changes {
		changes = append(changes, p.Changes[i].declared(p.Manifest))
		may = may || p.Changes[i].farther()
	}
	if !may {
		return nil
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

// compare compares all declared records with their declarations.
func (p *Plan) compare() error {
	claimed := &ClaimedError{Manifest: p.Manifest}
	for _, k := range keysOf(p.manifest.Records) {
		r := p.manifest.Records[k]
		if other := p.declared(k, r); other != "" {
			c := claims.Claim{Target: k.String(), Declared: r.at.String(), By: other}
			claimed.Claims = append(claimed.Claims, c)
		}
	}
	if len(claimed.Claims) > 0 {
		return claimed
	}
	return nil
}

// declared compares a record with its declaration. It returns the manifest that keeps this one from declaring it.
func (p *Plan) declared(k Key, r *Record) (other string) {
	old := p.before.Get(admin.RecordID(k))
	set := live.Lasting(r.Declared, p.before.At)
	by, still := old.Managed(), live.Lasting(old, p.before.At)
	c := Change{work: work{key: k, before: old, after: &set}}
	switch {
	case live.Blank(&set): // as if it were not declared
		return ""
	case by != nil && by.Manifest != p.Manifest:
		if !slices.Contains(p.manifest.Moved, by.Manifest) {
			return by.Manifest
		}
		c.Action, c.Manager, c.Outside = Move, by.Manifest, hash(&old) != by.Hash
	case !exists(&old):
		c.Action = Create
	case by == nil:
		c.Action = Adopt
	case old.Deleting || hash(&set) != hash(&still):
		c.Action = Update
		c.Outside = hash(&old) != by.Hash
	default:
		p.Unchanged++
		return ""
	}
	p.Changes = append(p.Changes, c)
	return ""
}

// farther reports whether a change may hide balances that records elsewhere set: on any resource.
func (c *Change) farther() bool {
	if c.key.Own {
		was, is := admin.Entity{}, admin.Entity{}
		if exists(&c.before) {
			was = *c.before.Entity
		}
		if c.after != nil {
			is = *c.after.Entity
		}
		return was.Plan != is.Plan || was.Parent != is.Parent
	}
	return c.key.Entity+c.key.Plan != "" && c.key.Resource == "" && c.after != nil
}

// maxSome is how many problems are listed next to their number.
const maxSome = 5

// undeclared removes or releases a record that the manifest manages, unless it declares it or it moves to another one.
func (p *Plan) undeclared(k Key) {
	old := p.before.Get(admin.RecordID(k))
	if r := p.manifest.Records[k]; r != nil {
		set, still := live.Lasting(r.Declared, p.before.At), live.Lasting(old, p.before.At)
		if !live.Blank(&set) || live.Blank(&still) { // it was handled, or all that was declared has ended
			return
		}
	}
	c := Change{Action: Delete, work: work{key: k, before: old}}
	c.Outside = hash(&old) != old.Managed().Hash
	switch {
	case p.manifest.moving[k] != "":
		return
	case p.manifest.Keep && exists(&old) && !old.Deleting:
		c.Action, c.after = Release, release(old)
	}
	p.Changes = append(p.Changes, c)
}

// entity returns an entity as it will be.
func (p *Plan) entity(id string) *admin.Entity {
	if e := p.manifest.entity(id); e != nil {
		return e
	}
	if e := p.before.Entity(id); e != nil && p.stays(entityKey(id), e.Managed) {
		return e
	}
	return nil
}

// uprooted returns the entities that are removed, or get another parent.
func (p *Plan) uprooted() (ids []string) {
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.key.Own && exists(&c.before) && (c.after == nil || c.after.Entity.Parent != c.before.Entity.Parent) {
			ids = append(ids, c.key.Entity)
		}
	}
	return ids
}

// checkParents checks that the chains of all entities will be complete, short enough and free of cycles: those of the
// declared ones, and of others.
func (p *Plan) checkParents(others []string) (problems []string) {
	check := func(e *admin.Entity, where string) {
		road := ancestry(e, weir.MaxDepth, p.entity)
		n := len(road)
		last, id := road[n-1], strictyaml.Quote(e.ID)
		switch {
		case p.entity(last) == nil:
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
	for _, k := range keysOf(p.manifest.Records) {
		if r := p.manifest.Records[k]; k.Own {
			check(r.Entity, fmt.Sprintf(" (%s)", r.at))
		}
	}
	slices.Sort(others)
	for _, id := range others {
		if e := p.entity(id); e != nil && p.manifest.Records[entityKey(id)] == nil {
			check(e, "")
		}
	}
	return problems
}

// checkPlans checks that the plans of all entities will exist.
func (p *Plan) checkPlans(ctx context.Context, lv *reading) (problems []string) {
	named := make(map[string]bool)
	for k := range p.manifest.Records {
		named[k.Entity] = named[k.Entity] || k.Own
	}
	for i := range p.Changes {
		if c := &p.Changes[i]; c.key.isPlan() && c.Action == Delete {
			for _, id := range lv.OnPlan(ctx, c.key.Plan) {
				named[id] = true
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(named)) {
		e := p.entity(id)
		if e == nil || e.Plan == "" {
			continue
		}
		plan, k := e.Plan, admin.RecordID{Scope: admin.Scope{Plan: e.Plan}}
		old := lv.Get(ctx, k)
		if p.manifest.Records[Key(k)] != nil {
			continue
		}
		switch r, by := p.manifest.Records[entityKey(id)], old.Managed(); {
		case old.Version > 0 && p.stays(Key(k), by):
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
func (p *Plan) order() {
	depth := func(of func(id string) *admin.Entity, id string) int {
		return len(ancestry(of(id), weir.MaxDepth, of))
	}
	for i := range p.Changes {
		switch c := &p.Changes[i]; {
		case c.key.isPlan() && c.Action == Delete:
			c.phase = 500
		case c.key.isPlan():
			c.phase = 0
		case c.key.Own && c.Action != Delete:
			c.phase = depth(p.entity, c.key.Entity)
		case c.Action != Delete:
			c.phase = 100
		case !c.key.Own:
			c.phase = 200
		default:
			c.phase = 400 - depth(p.before.Entity, c.key.Entity)
		}
	}
	slices.SortStableFunc(p.Changes, func(a, b Change) int { return a.phase - b.phase })
}

// after returns the limits that will apply.
func (p *Plan) after() live.Scopes {
	changed := make(map[admin.RecordID]*admin.Declared)
	for i := range p.Changes {
		changed[admin.RecordID(p.Changes[i].key)] = p.Changes[i].after
	}
	p.limits = live.Scopes{
		At: p.before.At, Entity: p.entity,
		Get: func(id admin.RecordID) admin.Declared {
			if d, is := changed[id]; is {
				return *cmp.Or(d, &admin.Declared{})
			}
			return p.before.Get(id)
		},
		Resources: func() []admin.Scope {
			all := p.before.Resources()
			for i := range p.Changes {
				sc := p.Changes[i].key.Scope
				if sc.Entity+sc.Plan == "" && sc.Resource != "" && !slices.Contains(all, sc) {
					all = append(all, sc)
				}
			}
			return all
		},
	}
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

// Scopes returns the records before and after the changes. A plan that was read from JSON does not have them.
func (p *Plan) Scopes() (before, after live.Scopes) { return p.before, p.limits }
