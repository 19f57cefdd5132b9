package manifest

import (
	"cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/manifest/live"
	"github.com/weirlimits/weir/store"
)

// stage is a tightening record that is rolled out in stages.
type stage struct {
	Scope  admin.Scope    `json:"scope"`
	Before admin.Declared `json:"before"` // before the rollout
	// Was holds the limits that applied in its scope before, by name.
	Was []weir.Limit `json:"was"`

	change  *Change
	current admin.Declared // the record now
}

// stagesOf returns the changes that refuse some requests that nothing refused before, or refuse them earlier.
// All other changes loosen or cannot be applied in part, and are made at the end.
func stagesOf(changes []Change, w live.Scopes) (all []stage) {
	fresh := make(map[string]bool) // plans that no entity names yet
	for i := range changes {
		c := &changes[i]
		fresh[c.key.Plan] = fresh[c.key.Plan] || c.Action == Create && c.key.isPlan()
		to := c.Set
		if len(to) == 0 || c.Action == Adopt || fresh[c.key.Plan] {
			continue
		}
		had := w.Get(admin.RecordID(c.key))
		was, free := limitsOf(&had), store.Aggregate(c.key.Resource) // free: without limits, nothing is refused
		if len(was) == 0 {
			below := w.Below(c.key.Scope)
			if len(below) != 1 { // the limits before differ by resource
				continue
			}
			was = below[0].Limits
		}
		if len(was) == 0 && !free || !delta.On(c.key.Resource, was, to).Tightening() {
			continue
		}
		all = append(all, stage{Scope: c.key.Scope, Before: c.before, Was: was, change: c, current: c.before})
	}
	return all
}

// at returns the record while the change applies to percent of the entities. For the others the limits stay as they
// were, and new ones are in shadow. Removed limits stay until the end.
func (s *stage) at(percent int, name string) admin.Declared {
	to := *s.change.after.Limits
	to.Limits = delta.Staged(s.Was, to.Limits, weir.Enforce(percent))
	rest := cmp.Or(s.Before.Limits, &admin.ScopedLimits{}) // cannot be applied in part
	to.OnUnavailable, to.NearLimit, to.Entities = rest.OnUnavailable, rest.NearLimit, rest.Entities
	to.Group, to.Bounded = rest.Group, rest.Bounded
	return marked(admin.Declared{Limits: &to}, name)
}
