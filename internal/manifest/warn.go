package manifest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/clock/nearest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// partial warns of limits that are new or changed, and leave the rest of the entities without them.
func partial(changes []Change) (all []string) {
	for i := range changes {
		for _, l := range changes[i].Set {
			percent := int(l.Enforce)
			if percent > 0 && percent < 100 && l.Former == (weir.Rate{}) && !slices.Contains(changes[i].Was, l) {
				all = append(all, fmt.Sprintf("%s of %s is enforced for %d%% of the entities: the other %d%% are "+
					"without it, also where they had it", strictyaml.Quote(l.Name), changes[i].Target,
					percent, 100-percent))
			}
		}
	}
	return all
}

// warnings warns of what is probably a mistake in what is declared.
func warnings(ctx context.Context, m *Manifest, lv *reading, now time.Time) (all []string) {
	grouped := false
	for _, k := range keysOf(m.Records) {
		r := m.Records[k]
		all = append(all, untimely(k, r, now)...)
		key, _ := within(k.Resource)
		grouped = grouped || key == "groups" || r.Limits != nil && r.Limits.Group != ""
	}
	if !grouped {
		return all
	}
	if lv.Resources(ctx); len(lone(m, lv)) == 0 {
		return all
	}
	lv.All(ctx) // an entity may have limits on the group
	return append(all, lone(m, lv)...)
}

// lone warns of declared limits on groups to which no resource will belong, and of resources in groups on which nothing
// will have limits, as far as the live records were read.
func lone(m *Manifest, lv *reading) (all []string) {
	members, limited := make(map[string]bool), make(map[string]bool)
	note := func(k Key, r *admin.Declared) {
		if r.Limits == nil {
			return
		}
		members[r.Limits.Group] = true
		if key, name := within(k.Resource); key == "groups" && len(r.Limits.Limits)+len(r.Limits.Bounded) > 0 {
			limited[name] = true
		}
	}
	for id, r := range lv.Known() {
		by := r.Managed()
		if m.Records[Key(id)] == nil && (by == nil || by.Manifest != m.Name || m.leaves(Key(id))) { // it stays
			note(Key(id), &r)
		}
	}
	for k, r := range m.Records {
		note(k, &r.Declared)
	}
	groups := slices.Sorted(maps.Keys(limited))
	for _, k := range keysOf(m.Records) {
		r := m.Records[k]
		if key, name := within(k.Resource); key == "groups" && !members[name] {
			members[name] = true // once
			name = strictyaml.Quote(name)
			all = append(all, fmt.Sprintf("limits on group %s (%s) apply to nothing, because no resource belongs to "+
				"it: write group: %s in one", name, r.at, name))
		}
		if r.Limits == nil || r.Limits.Group == "" || limited[r.Limits.Group] {
			continue
		}
		limited[r.Limits.Group] = true // once
		text := fmt.Sprintf("resource %s (%s) belongs to group %s, on which there are no limits",
			strictyaml.Quote(k.Resource), r.at, strictyaml.Quote(r.Limits.Group))
		if near := nearest.To(r.Limits.Group, groups); near != "" {
			text += "; did you mean " + near + "?"
		}
		all = append(all, text)
	}
	return all
}
