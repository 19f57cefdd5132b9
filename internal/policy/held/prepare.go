package held

import (
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

// HasSlots reports whether some limit of a policy is one of slots.
func HasSlots(p *policy.Policy) bool {
	for i := range p.Targets {
		for j := range p.Targets[i].Limits {
			if p.Targets[i].Limits[j].IsSlots() {
				return true
			}
		}
	}
	return false
}

// Append appends debits of 0 from all targets of a policy, with the charges in room if it suffices.
func Append(debits []store.Debit, p *policy.Policy, room []store.Charge) []store.Debit {
	for i := range p.Targets {
		t := &p.Targets[i]
		from := len(room)
		for j := range t.Limits {
			room = append(room, t.Charge(j))
		}
		debits = append(debits, store.Debit{
			Bucket: t.Bucket, Charges: room[from:len(room):len(room)], Epoch: t.Epoch, Phase: t.Phase,
		})
	}
	return debits
}
