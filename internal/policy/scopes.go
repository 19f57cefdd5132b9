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
	SourceResource      Source = "resource"
	SourceSystem        Source = "system"
)

// The records that concern an entity on a resource, by their place among those that [recordsOf] names.
const (
	slotEntity = iota
	slotSystem
	slotResource
	slotLimits
	slotDefaultLimits

	// The records before the entity's own limits are all that a request with overriding limits needs of its entity.
	slotsBeforeOwn = slotLimits
)

// scopes are where limits and settings are looked up, in order of precedence.
var scopes = []struct {
	source Source
	slot   int
}{
	{SourceEntity, slotLimits},
	{SourceEntityDefault, slotDefaultLimits},
	{SourceResource, slotResource},
	{SourceSystem, slotSystem},
}

// Scope is where limits are set: for an entity on a resource, for an entity on all others, for a resource, or, with
// neither, for the namespace.
type Scope struct{ Entity, Resource string }

// Scopes returns the scopes of the limits of an entity on a resource, in order of precedence. The first that has limits
// applies.
func Scopes(entity, resource string) []Scope {
	all, keys := make([]Scope, len(scopes)), recordsOf("", entity, resource)
	for i, l := range scopes {
		all[i].Entity, all[i].Resource = record.LimitsOf(keys[l.slot])
	}
	return all
}

// recordsOf names the records that concern an entity on a resource.
func recordsOf(namespaceID, entity, resource string) []store.Key {
	return []store.Key{
		slotEntity:        record.EntityKey(namespaceID, entity),
		slotSystem:        record.SystemKey(namespaceID),
		slotResource:      record.ResourceKey(namespaceID, resource),
		slotLimits:        record.EntityLimitsKey(namespaceID, entity, resource),
		slotDefaultLimits: record.EntityLimitsKey(namespaceID, entity, record.DefaultResource),
	}
}
