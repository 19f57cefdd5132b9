package manifest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/store/memory"
)

const groupsText = `namespace: ns
plans:
  pro:
    resources:
      gpt-4o:
        limits:
          rpm: {capacity: 50}
    groups:
      openai:
        limits:
          tpd: {capacity: 40, refill_period: 1d}
    total:
      limits:
        tpd: {capacity: 60, refill_period: 1d}
total:
  limits:
    tpd: {capacity: 100, refill_period: 1d}
groups:
  openai:
    limits:
      tpd: {capacity: 50, refill_period: 1d}
resources:
  gpt-4o:
    group: openai
    limits:
      rpm: {capacity: 5}
  o3:
    group: openai
entities:
  alice:
    plan: pro
  team:
    resources:
      o3:
        limits:
          rpm: {capacity: 7}
    groups:
      openai:
        limits:
          tpd: {capacity: 20, refill_period: 1d}
    total:
      limits:
        tpd: {capacity: 30, refill_period: 1d}
`

// charges returns the buckets, with their limits' bursts, that a request is charged to.
func charges(t *testing.T, lim *weir.Limiter, entity, resource string) string {
	t.Helper()
	av, err := lim.Available(t.Context(), entity, resource)
	must(t, err)
	var on []string
	for _, s := range av.Statuses {
		on = append(on, fmt.Sprintf("%s %s %d", s.Resource, s.Limit, s.Burst))
	}
	return strings.Join(on, ", ")
}

// TestGroups: on every store, a manifest with groups and totals is applied, exported as it was, and removed again.
func TestGroups(t *testing.T) {
	t.Parallel()
	onStores(t, testGroups)
}

func testGroups(t *testing.T, lim *weir.Limiter, _ *faulty) {
	m := decodeOne(t, groupsText)
	p := plan(t, lim, m)
	want := `create plan pro
create entity alice (both)
create plan pro on gpt-4o (loosens)
create plan pro on group openai (tightens)
create plan pro on the total (tightens)
create the total (tightens)
create group openai (tightens)
create resource gpt-4o (both)
create resource o3 (tightens)
create entity team on o3 (loosens)
create entity team on group openai (tightens)
create entity team on the total (tightens)`
	if got := changes(p); got != want {
		t.Errorf("got changes\n%s\nwant\n%s", got, want)
	}
	if len(p.Warnings) > 0 {
		t.Error(p.Warnings)
	}
	apply(t, lim, m)
	lim = lim.In("ns")
	exported, elsewhere, err := manifest.Export(t.Context(), lim, "default")
	must(t, err)
	if got := string(exported.Text()); got != groupsText || elsewhere != 0 {
		t.Errorf("left out %d, exported:\n%s", elsewhere, got)
	}
	if p := planWhole(t, lim, m); len(p.Changes) > 0 || len(p.Unmanaged) > 0 {
		t.Errorf("planned again: %+v", p)
	}
	for on, want := range map[[2]string]string{
		{"team", "gpt-4o"}:  "gpt-4o rpm 5, _group_openai tpd 20, _total_ tpd 30",
		{"team", "o3"}:      "o3 rpm 7, _group_openai tpd 20, _total_ tpd 30",
		{"alice", "gpt-4o"}: "gpt-4o rpm 50, _group_openai tpd 40, _total_ tpd 60",
		{"bob", "gpt-4o"}:   "gpt-4o rpm 5, _group_openai tpd 50, _total_ tpd 100",
	} {
		if got := charges(t, lim, on[0], on[1]); got != want {
			t.Errorf("%v: charged to %s, want %s", on, got, want)
		}
	}

	// Tightened limits on a group count those who have spent more on it.
	acquire(t, lim, "team", "gpt-4o", weir.Tokens{"rpm": 1, "tpd": 15})
	acquire(t, lim, "alice", "gpt-4o", weir.Tokens{"rpm": 1, "tpd": 15})
	tight := strings.NewReplacer("capacity: 20", "capacity: 10", "capacity: 40", "capacity: 30").Replace(groupsText)
	if got := touches(plan(t, lim, decodeOne(t, tight))); !slices.Equal(got, []string{
		"plan pro on group openai 1/1/0[]", "entity team on group openai 1/1/1[team]",
	}) {
		t.Errorf("%q", got)
	}

	// A resource's group belongs to the manifest that declares the resource, and a change by hand is drift.
	a := admin.New(lim)
	_, err = manifest.Make(t.Context(), lim, decodeOne(t, "namespace: ns\nmanifest: two\nresources: {o3: {group: other}}"),
		manifest.PlanOptions{})
	const claimed = "resource o3 (test.yaml:3) is managed by manifest default: declare it in one of the two, or move it here with moved: {from: [default]}"
	if fmt.Sprint(err) != claimed {
		t.Error(err)
	}
	must(t, a.Limits.SetGroup(t.Context(), "o3", "other"))
	if p := plan(t, lim, m); changes(p) != "update resource o3 (both) outside" {
		t.Error(changes(p))
	}
	apply(t, lim, m)
	if got := charges(t, lim, "bob", "o3"); got != "_group_openai tpd 50, _total_ tpd 100" {
		t.Errorf("after drift: charged to %s", got)
	}

	// Removing them removes all; the marks in the system's record are nobody's, and no change keeps or removes them.
	apply(t, lim, decodeOne(t, "namespace: ns\nsystem: {limits: {rpm: {capacity: 9}}}\n"))
	apply(t, lim, decodeOne(t, "namespace: ns\nresources: {gpt-4o: {group: openai}}"))
	must(t, a.Limits.Set(t.Context(), admin.Scope{Entity: "team", Resource: weir.TotalResource}, weir.PerDay("tpd", 4)))
	if got := charges(t, lim, "team", "gpt-4o"); got != "_total_ tpd 4" {
		t.Errorf("charged to %s", got)
	}
}

func acquire(t *testing.T, lim *weir.Limiter, entity, resource string, tokens weir.Tokens) {
	t.Helper()
	_, err := lim.Acquire(t.Context(), weir.Request{Entity: entity, Resource: resource, Tokens: tokens})
	must(t, err)
}

// TestGroupWarnings: a plan warns of limits on groups that nothing belongs to, and of groups without limits.
func TestGroupWarnings(t *testing.T) {
	t.Parallel()
	lim := limiterOn(t, memory.New(nil))
	const head = "namespace: ns\n"
	const limits = "{openai: {limits: {tpd: 5/day}}}"
	for text, want := range map[string][]string{
		"groups: " + limits: {"limits on group openai (test.yaml:2) apply to nothing, because no resource belongs to it: write group: openai in one"},
		"groups: " + limits + "\nentities: {team: {groups: " + limits + "}}": {
			"limits on group openai (test.yaml:2) apply to nothing, because no resource belongs to it: write group: openai in one",
		},
		"plans: {pro: {groups: " + limits + "}}\nresources:\n  o3: {group: opnai}\n": {
			"limits on group openai (test.yaml:2) apply to nothing, because no resource belongs to it: write group: openai in one",
			"resource o3 (test.yaml:4) belongs to group opnai, on which there are no limits; did you mean openai?",
		},
		"resources: {o3: {group: x}}":                              {"resource o3 (test.yaml:2) belongs to group x, on which there are no limits"},
		"groups: " + limits + "\nresources: {o3: {group: openai}}": nil,
	} {
		if got := plan(t, lim, decodeOne(t, head+text)).Warnings; !slices.Equal(got, want) {
			t.Errorf("%s\n%q, want %q", text, got, want)
		}
	}
	// What stays live counts, and what will be removed does not.
	apply(t, lim, decodeOne(t, head+"groups: "+limits))
	must(t, admin.New(lim.In("ns")).Limits.SetGroup(t.Context(), "o3", "openai"))
	if got := plan(t, lim, decodeOne(t, head+"groups: "+limits)).Warnings; got != nil {
		t.Error(got)
	}
	if got := plan(t, lim, decodeOne(t, head+"resources: {gpt: {group: openai}}")).Warnings; len(got) != 1 {
		t.Error(got)
	}
}

// TestGroupRollout: limits on a group where there were none are rolled out in stages, and a resource's group changes only
// at the end.
func TestGroupRollout(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		before := "namespace: default\nresources: {gpt: {limits: {rpm: {capacity: 100}}, group: old}}\n"
		after := "namespace: default\nresources: {gpt: {limits: {rpm: {capacity: 50}}, group: new}}\n" +
			"groups: {old: {limits: {tpd: {capacity: 5}}}}\ntotal: {limits: {tpd: {capacity: 9}}}\n"
		apply(t, r.Limiter, decodeOne(t, before))
		var seen []int
		r.gate.check = func(last bool) error {
			if last {
				enforced := make(map[string]int)
				for i := range 200 {
					lease, err := r.Acquire(t.Context(), weir.Request{Entity: fmt.Sprint("e", i), Resource: "gpt", Tokens: weir.Tokens{}})
					must(t, err)
					for _, s := range lease.Decision().Statuses {
						if !s.Shadow {
							enforced[s.Resource]++
						}
					}
				}
				if enforced["_group_new"] > 0 || enforced["gpt"] != 200 || enforced["_total_"] == 0 {
					t.Errorf("enforced: %v", enforced)
				}
				seen = append(seen, enforced["_group_old"])
			}
			return nil
		}
		_, err := r.rollout(after)
		must(t, err)
		if len(seen) != 2 || seen[0] == 0 || seen[0] >= seen[1] || seen[1] >= 200 {
			t.Errorf("entities limited on the group, by stage: %v", seen)
		}
		if got := charges(t, r.Limiter, "a", "gpt"); got != "gpt rpm 50, _total_ tpd 9" {
			t.Errorf("at the end: %s", got)
		}
	})
}
