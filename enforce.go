package weir

import (
	"slices"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// shadows is the set of limits that are in shadow for an entity, one bit for each.
type shadows uint64

const _ = uint(64 - record.MaxLimits) // one bit for each

func (s shadows) has(i int) bool { return s>>i&1 != 0 }

// shadowsOf returns which limits are in shadow for an entity. If all limits are enforced for everybody, enforce is nil.
func shadowsOf(entity string, limits []store.Limit, enforce []Enforce) (s shadows) {
	for i, e := range enforce {
		if !record.Enforce(e).Covers(entity, limits[i].Name) {
			s |= 1 << i
		}
	}
	return s
}

// leaveOut replaces limits by their former rate, if they have one, for an entity outside their percentage.
func (lk *link) leaveOut(former []store.Limit) {
	if former == nil || lk.shadow == 0 {
		return
	}
	lk.limits = slices.Clone(lk.limits)
	for i := range former {
		if lk.shadow.has(i) && former[i].Name != "" {
			lk.limits[i] = former[i]
			lk.shadow &^= 1 << i
		}
	}
	lk.one = oneCharge(lk.limits)
}

// leaveOut removes from a decided lease what the store left out. What was never taken is never given back, and nothing
// is forced on a limit that would have refused the request: if it were enforced, there would be no lease. From here on,
// a charge in shadow is one that was left out.
func (le *Lease) leaveOut() {
	le.decisionLocked() // from the amounts that were requested
	n := 0
	for i := range le.debits {
		for j := range le.debits[i].Charges {
			c := &le.debits[i].Charges[j]
			if c.Shadow = c.Shadow && le.levels[n].Refused; c.Shadow {
				c.Amount = 0
			}
			n++
		}
	}
}
