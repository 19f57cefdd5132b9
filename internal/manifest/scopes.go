package manifest

import (
	"slices"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/policy"
)

// scopes holds limits by scope.
type scopes map[admin.Scope][]weir.Limit

func scopesOf(lv *live) scopes {
	w := make(scopes, len(lv.records))
	for _, r := range lv.records {
		if limits := limitsOf(&r); len(limits) > 0 {
			w[r.Limits.Scope] = limits
		}
	}
	return w
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

// first returns the limits that apply to an entity on a resource, as if some scopes had none.
func (w scopes) first(entity, resource string, without ...admin.Scope) layer {
	for _, level := range policy.Scopes(entity, resource) {
		sc := admin.Scope(level)
		if limits := w[sc]; len(limits) > 0 && !slices.Contains(without, sc) {
			return layer{sc, limits}
		}
	}
	return layer{}
}

// below returns the limits that apply if a scope has none. For an entity's default limits these depend on the
// resource, so there may be several layers, the system's first.
func (w scopes) below(sc admin.Scope) []layer {
	if sc.Entity == "" || sc.Resource != "" {
		return []layer{w.first(sc.Entity, sc.Resource, sc)}
	}
	all := []layer{{limits: w[admin.Scope{}]}}
	for other := range w {
		l := w.first(sc.Entity, other.Resource, sc)
		if l.scope == other && other.Entity == "" && other.Resource != "" {
			all = append(all, l)
		}
	}
	return all
}
