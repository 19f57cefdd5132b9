package manifest

import (
	"cmp"
	"math/bits"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// world holds limits by scope. Those of the first level that has any apply.
type world map[admin.Scope][]weir.Limit

func worldOf(lv *live) world {
	w := make(world, len(lv.records))
	for _, r := range lv.records {
		if r.Limits != nil && len(r.Limits.Limits) > 0 {
			w[r.Limits.Scope] = sorted(r.Limits.Limits)
		}
	}
	return w
}

// levels returns the scopes that may limit an entity on a resource, in order of precedence.
func levels(entity, resource string) [4]admin.Scope {
	return [4]admin.Scope{{Entity: entity, Resource: resource}, {Entity: entity}, {Resource: resource}, {}}
}

// limits returns the limits that apply to an entity on a resource, and the scope they come from.
func (w world) limits(entity, resource string) ([]weir.Limit, admin.Scope, bool) {
	for _, sc := range levels(entity, resource) {
		if ls := w[sc]; len(ls) > 0 {
			return ls, sc, true
		}
	}
	return nil, admin.Scope{}, false
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

func (w world) layer(sc admin.Scope) layer { return layer{sc, w[sc]} }

// below returns the limits that apply if a scope has none. For an entity's default limits these depend on the
// resource, so there may be several layers, the system's first.
func (w world) below(sc admin.Scope) []layer {
	general := func(resource string) layer {
		if l := w.layer(admin.Scope{Resource: resource}); len(l.limits) > 0 {
			return l
		}
		return w.layer(admin.Scope{})
	}
	switch {
	case sc == admin.Scope{}:
		return []layer{{}}
	case sc.Entity == "":
		return []layer{w.layer(admin.Scope{})}
	case sc.Resource != "":
		if l := w.layer(admin.Scope{Entity: sc.Entity}); len(l.limits) > 0 {
			return []layer{l}
		}
		return []layer{general(sc.Resource)}
	}
	all := []layer{w.layer(admin.Scope{})}
	for other, ls := range w {
		if other.Entity == "" && other.Resource != "" &&
			len(w[admin.Scope{Entity: sc.Entity, Resource: other.Resource}]) == 0 {
			all = append(all, layer{other, ls})
		}
	}
	return all
}

// Moves is the direction in which a change moves admission.
type Moves string

// The directions.
const (
	Same     Moves = ""         // no change
	Loosens  Moves = "loosens"  // admits more, never less
	Tightens Moves = "tightens" // admits less, never more
	Both     Moves = "both"     // admits more in one way and less in another
)

// and combines two directions.
func (m Moves) and(o Moves) Moves {
	switch {
	case m == o || o == Same:
		return m
	case m == Same:
		return o
	}
	return Both
}

// inverse returns the opposite direction.
func (m Moves) inverse() Moves {
	switch m {
	case Loosens:
		return Tightens
	case Tightens:
		return Loosens
	case Same, Both:
	}
	return m
}

// way returns the direction of more (c > 0) or fewer (c < 0) tokens.
func way(c int) Moves {
	switch {
	case c > 0:
		return Loosens
	case c < 0:
		return Tightens
	}
	return Same
}

// rate compares what two limits issue over time.
func rate(a, b weir.Limit) int {
	ah, al := bits.Mul64(uint64(a.Amount), uint64(b.Period))
	bh, bl := bits.Mul64(uint64(b.Amount), uint64(a.Period))
	return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl))
}

// movesOf returns the direction of replacing one set of limits by another. A limit that is missing or in shadow
// refuses nothing; without any limits, a request is an error.
func movesOf(before, after []weir.Limit) (m Moves) {
	switch {
	case len(before) == 0 && len(after) == 0:
		return Same
	case len(before) == 0:
		return Loosens
	case len(after) == 0:
		return Tightens
	}
	for b, a := range pairs(before, after) {
		m = m.and(moveOf(b, a))
	}
	return m
}

func moveOf(b, a weir.Limit) Moves {
	is := way(cmp.Compare(share(b), share(a)))
	if share(a) == 0 || share(b) == 0 {
		return is
	}
	return is.and(way(rate(a, b))).and(way(cmp.Compare(a.Burst, b.Burst)))
}
