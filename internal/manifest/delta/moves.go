package delta

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/store"
)

// Moves is the direction in which a change moves admission.
type Moves string

// The directions.
const (
	Same     Moves = ""         // no change
	Loosens  Moves = "loosens"  // admits more, never less
	Tightens Moves = "tightens" // admits less, never more
	Both     Moves = "both"     // admits more in one way and less in another
)

// And combines two directions.
func (m Moves) And(o Moves) Moves {
	switch {
	case m == o || o == Same:
		return m
	case m == Same:
		return o
	}
	return Both
}

// Tightening reports whether something admits less.
func (m Moves) Tightening() bool { return m == Tightens || m == Both }

// Inverse returns the opposite direction.
func (m Moves) Inverse() Moves {
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
	ah, al := bits.Mul64(uint64(a.Amount), uint64(max(1, b.Period))) // quotas of the same windows have no period
	bh, bl := bits.Mul64(uint64(b.Amount), uint64(max(1, a.Period)))
	return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl))
}

// rateMove returns the direction of a change of what a limit issues over time.
func rateMove(b, a weir.Limit) Moves {
	if a.Window != b.Window || a.Balance != b.Balance || (a.Slots > 0) != (b.Slots > 0) {
		return Both
	}
	if a.Slots > 0 {
		return way(cmp.Compare(a.Slots, b.Slots))
	}
	return way(rate(a, b))
}

// OfLimits returns the direction of replacing one set of limits by another. A limit that is missing or in shadow
// refuses nothing; without any limits, a request is an error.
func OfLimits(before, after []weir.Limit) Moves {
	switch {
	case len(before) == 0 && len(after) == 0:
		return Same
	case len(before) == 0:
		return Loosens
	case len(after) == 0:
		return Tightens
	}
	return OfEach(before, after)
}

// On is [OfLimits] for limits on a resource, or on a group or the total, where none refuse nothing.
func On(resource string, before, after []weir.Limit) Moves {
	if store.Aggregate(resource) {
		return OfEach(before, after)
	}
	return OfLimits(before, after)
}

// OfEach is [OfLimits] where requests need no limits.
func OfEach(before, after []weir.Limit) (m Moves) {
	for b, a := range pairs(before, after) {
		m = m.And(OfLimit(b, a))
	}
	return m
}

// OfLimit is [OfLimits] for a single limit.
func OfLimit(b, a weir.Limit) (m Moves) {
	// The entities of a smaller percentage are among those of a larger one.
	bounds := []int64{0, share(b), share(a), 100}
	slices.Sort(bounds)
	for i, from := range bounds[1:] {
		if from > bounds[i] {
			m = m.And(ofEnforced(among(b, bounds[i]), among(a, bounds[i])))
		}
	}
	return m
}

// among returns the limit as it is, on or in shadow, for the entities of which a percentage comes before.
func among(l weir.Limit, before int64) weir.Limit {
	switch {
	case before < share(l):
		l.Enforce, l.Former = weir.EnforceOn, weir.Rate{}
		return l
	case l.Former != (weir.Rate{}):
		return strictyaml.Former(l)
	}
	return none
}

// ofEnforced is OfLimit for limits that are on or in shadow.
func ofEnforced(b, a weir.Limit) Moves {
	is := way(cmp.Compare(share(b), share(a)))
	if share(a) == 0 || share(b) == 0 {
		return is
	}
	return is.And(rateMove(b, a)).And(way(cmp.Compare(a.Burst, b.Burst))).And(debtMove(b, a)).And(returnsMove(b, a))
}

// OfParents returns the direction of charging another parent. Whether that loosens or tightens depends on the
// parents' limits; charging one more can only tighten.
func OfParents(old, set *admin.Declared) Moves {
	charged := func(e *admin.Entity) bool { return e.Cascade && e.Parent != "" }
	before, after := charged(old.Entity), charged(set.Entity)
	switch {
	case after && before && old.Entity.Parent != set.Entity.Parent:
		return Both
	case after && !before:
		return Tightens
	case before && !after:
		return Loosens
	}
	return Same
}
