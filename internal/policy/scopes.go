package policy

import (
	"cmp"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Mode is how requests are decided when the store does not answer.
type Mode string

// The modes. A value that a newer version may have set counts as Deny.
const (
	ModeDefault Mode = "" // the next more general setting
	ModeDeny    Mode = "deny"
	ModeAllow   Mode = "allow"
	ModeLocal   Mode = "local"
)

// Stricter returns whichever mode admits less; ModeDefault yields to the other.
func Stricter(a, b Mode) Mode {
	switch {
	case a == ModeDefault || b == ModeDefault:
		return cmp.Or(a, b)
	case a == ModeAllow:
		return b
	case b == ModeAllow || a != ModeLocal:
		return a
	}
	return b
}

// Setting is the mode of an entity on a resource, and where it is set: the source of the scope, or "config".
type Setting struct {
	Mode Mode
	From string
}

// Source is the scope that a limit comes from.
type Source string

// The scopes in order of precedence.
const (
	SourceEntity        Source = "entity"
	SourceEntityDefault Source = "entity-default"
	SourcePlan          Source = "plan"
	SourcePlanDefault   Source = "plan-default"
	SourceResource      Source = "resource"
	SourceSystem        Source = "system"
)

// SourceOf returns the source of a scope's limits.
func SourceOf(sc record.Scope) Source {
	switch {
	case sc.Entity != "" && sc.Resource != "":
		return SourceEntity
	case sc.Entity != "":
		return SourceEntityDefault
	case sc.Plan != "" && sc.Resource != "":
		return SourcePlan
	case sc.Plan != "":
		return SourcePlanDefault
	case sc.Resource != "":
		return SourceResource
	}
	return SourceSystem
}

// The records that concern an entity on a resource, by their place among those that [recordsOf] names. Those of the
// entity's plan follow, which are not known before the plan is.
const (
	slotEntity = iota
	slotSystem
	slotResource
	slotLimits
	slotDefaultLimits
	slotPlan
	slotPlanDefault
	slots
)

// scopes are where limits and settings are looked up, in order of precedence.
var scopes = []struct {
	source Source
	slot   int
}{
	{SourceEntity, slotLimits},
	{SourceEntityDefault, slotDefaultLimits},
	{SourcePlan, slotPlan},
	{SourcePlanDefault, slotPlanDefault},
	{SourceResource, slotResource},
	{SourceSystem, slotSystem},
}

// Scopes returns the scopes of the limits of an entity on a resource, in order of precedence, without those of an
// entity or a plan that is "". The first that has limits applies.
func Scopes(entity, plan, resource string) (all []record.Scope) {
	if store.Aggregate(resource) {
		return aggregateScopes(entity, plan, resource)
	}
	keys := append(recordsOf("", entity, resource), planRecordsOf("", plan, resource)...)
	for _, l := range scopes {
		own := l.slot == slotLimits || l.slot == slotDefaultLimits
		if l.slot < len(keys) && (!own || entity != "") {
			all = append(all, record.ScopeOf(keys[l.slot]))
		}
	}
	return all
}

// aggregateScopes returns the scopes of limits on a group or the total: those that are set for exactly that.
func aggregateScopes(entity, plan, aggregate string) []record.Scope {
	all := []record.Scope{{Entity: entity, Resource: aggregate}}
	if plan != "" {
		all = append(all, record.Scope{Plan: plan, Resource: aggregate})
	}
	return append(all, record.Scope{Resource: aggregate})
}

// recordsOf names the records that concern an entity on a resource.
func recordsOf(namespaceID, entity, resource string) []store.Key {
	return []store.Key{
		slotEntity:        record.EntityKey(namespaceID, entity),
		slotSystem:        record.SystemKey(namespaceID),
		slotResource:      record.Scope{Resource: resource}.Key(namespaceID),
		slotLimits:        record.Scope{Entity: entity, Resource: resource}.Key(namespaceID),
		slotDefaultLimits: record.Scope{Entity: entity}.Key(namespaceID),
	}
}

// planRecordsOf names the records of a plan that concern a resource; none without a plan.
func planRecordsOf(namespaceID, plan, resource string) []store.Key {
	if plan == "" {
		return nil
	}
	return []store.Key{
		record.Scope{Plan: plan, Resource: resource}.Key(namespaceID), record.Scope{Plan: plan}.Key(namespaceID),
	}
}
