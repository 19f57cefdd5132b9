package live

import (
	"cmp"
	"context"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Scopes holds records at a time: limits by scope, and the entities, which name plans.
type Scopes struct {
	Get       func(admin.RecordID) admin.Declared
	Entity    func(id string) *admin.Entity // nil if there is none
	Resources func() []admin.Scope          // see [Records.Resources]
	At        time.Time
}

// Scopes returns the records at a time.
func (r *Records) Scopes(ctx context.Context, at time.Time) Scopes {
	return Scopes{
		Get:       func(id admin.RecordID) admin.Declared { return r.Get(ctx, id) },
		Entity:    func(id string) *admin.Entity { return r.Entity(ctx, id) },
		Resources: func() []admin.Scope { return r.Resources(ctx) }, At: at,
	}
}

// As returns the scopes at another time.
func (w Scopes) As(at time.Time) Scopes {
	w.At = at
	return w
}

// Layer is a set of limits that apply, and the scope they come from.
type Layer struct {
	Scope  admin.Scope
	Limits []weir.Limit
}

// Plan returns the plan of an entity: that it names, or that of its nearest ancestor that names one.
func (w Scopes) Plan(id string) string {
	if id == "" {
		return ""
	}
	for range weir.MaxDepth {
		e := w.Entity(id)
		if e == nil || e.Plan != "" || e.Parent == "" {
			if e != nil {
				return e.Plan
			}
			break
		}
		id = e.Parent
	}
	return ""
}

// First returns the limits that apply to an entity on a resource.
func (w Scopes) First(entity, resource string) Layer {
	return w.among(policy.Scopes(entity, w.Plan(entity), resource), admin.Scope{Entity: "-", Plan: "-"})
}

// Limits returns the limits that apply to an entity on a resource; nil if none do.
func (w Scopes) Limits(entity, resource string) []weir.Limit { return w.First(entity, resource).Limits }

// among returns the first limits, as if a scope had none.
func (w Scopes) among(all []record.Scope, without admin.Scope) Layer {
	for _, level := range all {
		sc := admin.Scope(level)
		r := w.Get(admin.RecordID{Scope: sc})
		if limits := LimitsAt(&r, w.At); len(limits) > 0 && sc != without {
			return Layer{sc, limits}
		}
	}
	return Layer{}
}

// Below returns the limits that apply if a scope has none. For the default limits of an entity or a plan these depend
// on the resource, so there may be several layers, the system's first.
func (w Scopes) Below(sc admin.Scope) []Layer {
	on := func(resource string) Layer {
		return w.among(policy.Scopes(sc.Entity, cmp.Or(sc.Plan, w.Plan(sc.Entity)), resource), sc)
	}
	if sc.Entity+sc.Plan == "" || sc.Resource != "" {
		return []Layer{on(sc.Resource)}
	}
	all := []Layer{on("")}
	for _, other := range w.Resources() {
		if store.Aggregate(other.Resource) {
			continue
		}
		if l := on(other.Resource); l.Scope == other {
			all = append(all, l)
		}
	}
	return all
}

// Deciding returns the records that decide about an entity, or about entities on a plan, on a resource.
func (w Scopes) Deciding(sc admin.Scope) (ids []admin.RecordID) {
	for _, sc := range policy.Scopes(sc.Entity, cmp.Or(sc.Plan, w.Plan(sc.Entity)), sc.Resource) {
		ids = append(ids, admin.RecordID{Scope: admin.Scope(sc)})
	}
	return ids
}

// Unmanaged is a live record that no manifest manages. Moves is how it changes the limits that apply without it.
type Unmanaged struct {
	Target string      `json:"target"`
	Moves  delta.Moves `json:"moves,omitempty"`
}

// Moves returns how a record changes the limits that apply without it.
func (w Scopes) Moves(id admin.RecordID) (m delta.Moves) {
	d := w.Get(id)
	limits := LimitsAt(&d, w.At)
	if id.Own || len(limits) == 0 {
		return m
	}
	for _, below := range w.Below(id.Scope) {
		m = m.And(delta.On(id.Resource, below.Limits, limits))
	}
	return m
}

// With returns records with those that decide about them, except of plans and ancestors.
func With(ids []admin.RecordID) (all []admin.RecordID) {
	for _, id := range ids {
		if all = append(all, id); id.Entity != "" {
			all = append(all, Entity(id.Entity))
		}
		if !id.Own {
			for _, sc := range policy.Scopes(id.Entity, id.Plan, id.Resource) {
				all = append(all, admin.RecordID{Scope: admin.Scope(sc)})
			}
		}
	}
	return all
}

// LoadAround reads what else decides about records: ancestors of their entities, plans, and limits of other scopes.
// declared returns an entity that will be so; nil for others.
func (r *Records) LoadAround(ctx context.Context, ids []admin.RecordID, declared func(id string) *admin.Entity) {
	var entities []string
	for _, id := range ids {
		if id.Entity != "" {
			entities = append(entities, id.Entity)
		}
	}
	r.LoadChains(ctx, entities, declared)
	was := r.Scopes(ctx, time.Time{})
	is := was
	is.Entity = func(id string) *admin.Entity { return cmp.Or(declared(id), was.Entity(id)) }
	var around []admin.RecordID
	for _, id := range ids {
		for _, w := range []Scopes{was, is} {
			if plan := w.Plan(id.Entity); id.Own && plan != "" {
				around = append(around, admin.RecordID{Scope: admin.Scope{Plan: plan}})
			} else if !id.Own {
				around = append(around, w.Deciding(id.Scope)...)
			}
		}
	}
	r.Load(ctx, around...)
}

// many is of how many entities the children are listed apart.
const many = 100

// Below returns the entities below others.
func (r *Records) Below(ctx context.Context, ids []string) (below []string) {
	if len(ids) > many {
		r.All(ctx)
	}
	for seen := make(map[string]bool); len(ids) > 0; ids = ids[1:] {
		for _, id := range r.Children(ctx, ids[0]) {
			if !seen[id] {
				seen[id] = true
				ids, below = append(ids, id), append(below, id)
			}
		}
	}
	return below
}
