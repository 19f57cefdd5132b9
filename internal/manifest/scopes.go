package manifest

import (
	"cmp"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// scopes holds records at a time: limits by scope, and the entities, which name plans.
type scopes struct {
	records  map[Key]admin.Declared
	entities map[string]*admin.Entity
	general  []admin.Scope // those of limits on single resources that are not of an entity
	at       time.Time
}

func scopesOf(records map[Key]admin.Declared, entities map[string]*admin.Entity, at time.Time) scopes {
	w := scopes{records: records, entities: entities, at: at}
	for k, r := range records {
		if !k.Own && k.Entity == "" && k.Resource != "" && !store.Aggregate(k.Resource) &&
			len(r.Limits.Limits)+len(r.Limits.Bounded) > 0 {
			w.general = append(w.general, k.Scope)
		}
	}
	return w
}

// as returns the scopes at another time.
func (w scopes) as(at time.Time) scopes {
	w.at = at
	return w
}

// movesOn is [delta.OfLimits] for limits on a resource, or on a group or the total, where none refuse nothing.
func movesOn(resource string, before, after []weir.Limit) delta.Moves {
	if store.Aggregate(resource) {
		return delta.OfEach(before, after)
	}
	return delta.OfLimits(before, after)
}

// layer is a set of limits that apply, and the scope they come from.
type layer struct {
	scope  admin.Scope
	limits []weir.Limit
}

func (l layer) name() string {
	if l.scope == (admin.Scope{}) {
		return "the system defaults"
	}
	return Key{Scope: l.scope}.String()
}

// plan returns the plan of an entity: that it names, or that of its nearest ancestor that names one.
func (w scopes) plan(id string) string {
	for range weir.MaxDepth {
		e := w.entities[id]
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

// first returns the limits that apply to an entity on a resource.
func (w scopes) first(entity, resource string) layer {
	return w.among(policy.Scopes(entity, w.plan(entity), resource), admin.Scope{Entity: "-", Plan: "-"})
}

// among returns the first limits, as if a scope had none.
func (w scopes) among(all []record.Scope, without admin.Scope) layer {
	for _, level := range all {
		sc := admin.Scope(level)
		r := w.records[Key{Scope: sc}]
		if limits := limitsAt(&r, w.at); len(limits) > 0 && sc != without {
			return layer{sc, limits}
		}
	}
	return layer{}
}

// below returns the limits that apply if a scope has none. For the default limits of an entity or a plan these depend
// on the resource, so there may be several layers, the system's first.
func (w scopes) below(sc admin.Scope) []layer {
	on := func(resource string) layer {
		return w.among(policy.Scopes(sc.Entity, cmp.Or(sc.Plan, w.plan(sc.Entity)), resource), sc)
	}
	if sc.Entity+sc.Plan == "" || sc.Resource != "" {
		return []layer{on(sc.Resource)}
	}
	all := []layer{on("")}
	for _, other := range w.general {
		if l := on(other.Resource); l.scope == other {
			all = append(all, l)
		}
	}
	return all
}

// from describes where limits come from.
func from(others []layer) string {
	if len(others) == 1 {
		if len(others[0].limits) == 0 {
			return ""
		}
		return others[0].name()
	}
	text := "each resource that has limits"
	if len(others[0].limits) > 0 {
		return text + ", else the system defaults"
	}
	return text + "; requests on other resources are an error"
}
