package delta

import (
	"slices"

	"github.com/weirlimits/weir"
)

// Staged returns limits while a change to them is in force for percent of the entities. For the others the limits stay
// as they were, and new ones are in shadow. Removed limits stay.
func Staged(was, to []weir.Limit, percent weir.Enforce) []weir.Limit {
	var out []weir.Limit
	for _, l := range to {
		i, known := slices.BinarySearchFunc(was, l, ByName)
		switch {
		case known && !OfLimit(was[i], l).Tightening(): // at the end
			l = was[i]
		case l.Enforce != weir.EnforceOn: // rolled out by hand
		case !known || was[i].Enforce == weir.EnforceShadow: // it refused no entity
			l.Enforce = percent
		case was[i].Enforce == weir.EnforceOn:
			l.Enforce, l.Former = percent, was[i].Rate()
		default: // already partial, cannot be made partial again: at the end
			l = was[i]
		}
		out = append(out, l)
	}
	for _, l := range was {
		if _, stays := slices.BinarySearchFunc(to, l, ByName); !stays {
			out = append(out, l)
		}
	}
	return Sorted(out)
}
