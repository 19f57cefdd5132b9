package weir_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// group makes resources members of a group.
func (b *bundle) group(group string, resources ...string) {
	b.t.Helper()
	for _, r := range resources {
		must(b.t, b.admin.Limits.SetGroup(b.ctx, r, group))
	}
}

// cells returns entity/resource/limit of statuses, with the tokens available.
func cells(statuses []weir.LimitStatus) (all []string) {
	for _, s := range statuses {
		text := fmt.Sprintf("%s/%s/%s %d", s.Entity, s.Resource, s.Limit, s.Available)
		if s.Refused {
			text += " refused"
		}
		all = append(all, text)
	}
	return all
}

func wantCells(t *testing.T, statuses []weir.LimitStatus, want ...string) {
	t.Helper()
	if got := cells(statuses); !slices.Equal(got, want) {
		t.Errorf("got %s\nwant %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// grid sets limits of 100 of a key on a resource, its group and the total, and of its team on the group and the total.
func (b *bundle) grid() {
	b.t.Helper()
	b.chain("key", "team")
	b.group("apis", "api", "other")
	for _, sc := range []admin.Scope{
		{Entity: "key", Resource: "api"},
		{Entity: "key", Resource: weir.GroupResource("apis")},
		{Entity: "key", Resource: weir.TotalResource},
		{Entity: "team", Resource: weir.TotalResource},
		{Resource: weir.GroupResource("apis")}, // for each entity
	} {
		b.set(sc.Entity, sc.Resource, weir.PerDay("tpd", 100))
	}
}

func TestGrid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.grid()
	lease := b.take("key", weir.Tokens{"tpd": 60})
	wantCells(t, lease.Decision().Statuses,
		"key/api/tpd 40", "key/_group_apis/tpd 40", "key/_total_/tpd 40", "team/_group_apis/tpd 40", "team/_total_/tpd 40")

	// The other resource of the group has no limits of its own, and shares those of the group and the total.
	other := weir.Request{Entity: "key", Resource: "other", Tokens: weir.Tokens{"tpd": 30}}
	wantCells(t, b.takeFor(other).Decision().Statuses,
		"key/_group_apis/tpd 10", "key/_total_/tpd 10", "team/_group_apis/tpd 10", "team/_total_/tpd 10")
	over := b.refusedFor(other)
	wantCells(t, over.Statuses, "key/_group_apis/tpd 10 refused", "key/_total_/tpd 10 refused",
		"team/_group_apis/tpd 10 refused", "team/_total_/tpd 10 refused")
	if over.RetryAfter != 20*24*time.Hour/100 {
		t.Errorf("retry after %v", over.RetryAfter)
	}

	// A refusal by the team's total, and by nothing else, says so, and nothing is debited anywhere.
	b.set("key", weir.TotalResource, weir.PerDay("tpd", 1000))
	b.set("key", weir.GroupResource("apis"), weir.PerDay("tpd", 1000))
	b.set("team", weir.GroupResource("apis"), weir.PerDay("tpd", 1000))
	over = b.refused("key", weir.Tokens{"tpd": 11})
	wantCells(t, over.Statuses, "key/api/tpd 40", "key/_group_apis/tpd 910", "key/_total_/tpd 910",
		"team/_group_apis/tpd 910", "team/_total_/tpd 10 refused")
	if want := "tpd of team on the total has 10 of"; !strings.Contains(over.Error(), want) {
		t.Errorf("the refusal is %q, want it to name %s", over, want)
	}

	// Adjustments and returns go to all of them.
	balances, err := lease.Adjust(b.ctx, weir.Tokens{"tpd": -20})
	if err != nil || len(balances) != 5 || balances[4].Resource != weir.TotalResource || balances[4].Available != 30 {
		t.Errorf("got %+v, %v", balances, err)
	}
	must(t, lease.Rollback(b.ctx))
	av, err := b.Available(b.ctx, "key", "api")
	must(t, err)
	wantCells(t, av.Statuses, "key/api/tpd 100", "key/_group_apis/tpd 970", "key/_total_/tpd 970",
		"team/_group_apis/tpd 970", "team/_total_/tpd 70")
}

// TestGridLeaseToken: a lease that leaves the process is given back to each of its buckets.
func TestGridLeaseToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.grid()
	token := b.take("key", weir.Tokens{"tpd": 60}).Token("lease-1", noon.Add(time.Hour))
	lease, err := b.peer().LeaseFromToken(b.ctx, token)
	must(t, err)
	must(t, lease.Rollback(b.ctx))
	av, err := b.Available(b.ctx, "key", "api")
	must(t, err)
	wantCells(t, av.Statuses, "key/api/tpd 100", "key/_group_apis/tpd 100", "key/_total_/tpd 100",
		"team/_group_apis/tpd 100", "team/_total_/tpd 100")
}

// TestGridOverride: limits that a request brings replace those on the resource, and no others.
func TestGridOverride(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.grid()
	lease := b.takeFor(weir.Request{
		Entity: "key", Resource: "api", Tokens: weir.Tokens{"tpd": 70}, Limits: []weir.Limit{weir.PerDay("tpd", 500)},
	})
	wantCells(t, lease.Decision().Statuses,
		"key/api/tpd 430", "key/_group_apis/tpd 30", "key/_total_/tpd 30", "team/_group_apis/tpd 30", "team/_total_/tpd 30")
}

// TestGridOfAll: requests of one call that share a total are added up.
func TestGridOfAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.grid()
	b.take("key", weir.Tokens{"tpd": 1})
	reqs := []weir.Request{
		{Entity: "key", Resource: "api", Tokens: weir.Tokens{"tpd": 60}},
		{Entity: "key", Resource: "other", Tokens: weir.Tokens{"tpd": 40}},
	}
	var over *weir.ExceededError
	if _, err := b.AcquireAll(b.ctx, reqs); !errors.As(err, &over) || len(over.Each) != 2 {
		t.Fatalf("got %v, want a refusal", err)
	}
	reqs[1].Tokens["tpd"] = 39
	leases, err := b.AcquireAll(b.ctx, reqs)
	must(t, err)
	wantCells(t, leases[1].Decision().Statuses,
		"key/_group_apis/tpd 0", "key/_total_/tpd 0", "team/_group_apis/tpd 0", "team/_total_/tpd 0")
}

// TestTotalAlone: an entity with nothing but a total has limits on every resource.
func TestTotalAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("team", weir.TotalResource, weir.PerMinute("rpm", 3))
	for _, resource := range []string{"a", "b", "c"} {
		if ok, err := b.Allow(b.ctx, "team", resource); !ok || err != nil {
			t.Fatalf("%s: %t, %v", resource, ok, err)
		}
	}
	if ok, err := b.Allow(b.ctx, "team", "a"); ok || err != nil {
		t.Errorf("the fourth request: %t, %v", ok, err)
	}
	var none *weir.NoLimitsError
	if _, err := b.Allow(b.ctx, "other", "a"); !errors.As(err, &none) {
		t.Errorf("an entity without limits: %v", err)
	}
}

// TestGridScopes: neither default limits nor the system's apply to a group or the total.
func TestGridScopes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.group("apis", "api")
	b.set("", "", weir.PerDay("tpd", 100))
	b.set("key", "", weir.PerDay("tpd", 50))
	b.set("other", weir.TotalResource, weir.PerDay("tpd", 10))
	b.set("other", weir.GroupResource("apis"), weir.PerDay("tpd", 20))
	wantCells(t, b.take("key", weir.Tokens{"tpd": 1}).Decision().Statuses, "key/api/tpd 49")
	wantCells(t, b.take("other", weir.Tokens{"tpd": 1}).Decision().Statuses,
		"other/api/tpd 99", "other/_group_apis/tpd 19", "other/_total_/tpd 9")
}

func TestReservedNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerDay("tpd", 100))
	b.group("apis", "api")
	set := func(entity, resource string) error {
		return b.admin.Limits.Set(b.ctx, admin.Scope{Entity: entity, Resource: resource}, weir.PerDay("tpd", 1))
	}
	acquire := func(entity, resource string) error {
		_, err := b.Acquire(b.ctx, weir.Request{Entity: entity, Resource: resource})
		return err
	}
	total, group := weir.TotalResource, weir.GroupResource("apis")
	for name, c := range map[string]struct {
		err   error
		field string
	}{
		"request for the total":      {acquire("key", total), "resource"},
		"request for a group":        {acquire("key", group), "resource"},
		"request of the total":       {acquire(total, "api"), "entity"},
		"limits of the total":        {set(total, "api"), "entity"},
		"group of a group":           {b.admin.Limits.SetGroup(b.ctx, group, "all"), "group"},
		"group of the total":         {b.admin.Limits.SetGroup(b.ctx, total, "all"), "group"},
		"group as a resource":        {b.admin.Limits.SetGroup(b.ctx, "api", group), "group"},
		"total as a group":           {b.admin.Limits.SetGroup(b.ctx, "api", total), "group"},
		"group of no resource":       {b.admin.Limits.SetGroup(b.ctx, "", "all"), "group"},
		"group with a long name":     {b.admin.Limits.SetGroup(b.ctx, "api", strings.Repeat("g", 250)), "group"},
		"group without a name":       {set("key", weir.GroupResource("")), "resource"},
		"group in a group":           {set("key", weir.GroupResource(group)), "resource"},
		"entity with a group's name": {b.admin.Entities.Create(b.ctx, admin.Entity{ID: group}), "entity"},
	} {
		if bad, ok := errors.AsType[*weir.ConfigError](c.err); !ok || bad.Field != c.field {
			t.Errorf("%s: got %v, want a ConfigError of %s", name, c.err, c.field)
		}
	}
}

// TestGroupElsewhere: another process follows a change of a resource's group, and the first limits on a total.
func TestGroupElsewhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.peer()
	b.set("key", "api", weir.PerDay("tpd", 100))
	other.take("key", weir.Tokens{"tpd": 1})
	changed := func(sc record.Scope) {
		parts.Of(other.Limiter).Policies.Changed(sc.Key(weir.DefaultNamespace))
	}
	b.group("apis", "api")
	b.set("key", weir.GroupResource("apis"), weir.PerDay("tpd", 50))
	changed(record.Scope{Resource: "api"})
	wantCells(t, other.take("key", weir.Tokens{"tpd": 1}).Decision().Statuses, "key/api/tpd 98", "key/_group_apis/tpd 49")
	b.set("key", weir.TotalResource, weir.PerDay("tpd", 30))
	changed(record.Scope{})
	wantCells(t, other.take("key", weir.Tokens{"tpd": 1}).Decision().Statuses,
		"key/api/tpd 97", "key/_group_apis/tpd 48", "key/_total_/tpd 29")
	b.set("key", weir.TotalResource, weir.PerDay("tpd", 20))
	wantCells(t, other.take("key", weir.Tokens{"tpd": 1}).Decision().Statuses,
		"key/api/tpd 96", "key/_group_apis/tpd 47", "key/_total_/tpd 28") // as cached: the bucket is not newer
	b.take("key", weir.Tokens{"tpd": 1})
	wantCells(t, other.take("key", weir.Tokens{"tpd": 1}).Decision().Statuses,
		"key/api/tpd 94", "key/_group_apis/tpd 45", "key/_total_/tpd 16") // the bucket has shown that it is
	b.group("", "api")
	changed(record.Scope{Resource: "api"})
	wantCells(t, other.take("key", weir.Tokens{"tpd": 1}).Decision().Statuses, "key/api/tpd 93", "key/_total_/tpd 15")
}

// TestGridReads: a request reads nothing once its limits are cached, and one of another entity needs one call, as it
// does without groups and totals.
func TestGridReads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.grid()
	b.chain("second")
	for _, c := range []struct {
		name   string
		entity string
		most   int
	}{
		{"cold", "key", 3}, {"warm", "key", 0}, {"another entity", "second", 1}, {"warm", "second", 0},
	} {
		b.fake.reads = 0
		if _, err := b.Available(b.ctx, c.entity, "api"); err != nil {
			t.Fatal(err)
		}
		if b.fake.reads > c.most {
			t.Errorf("%s: %d reads, at most %d", c.name, b.fake.reads, c.most)
		}
	}
}

// TestGridIsTrue compares random requests and changes with a model of their own: what is charged to which bucket, and
// that a request is charged to all of them or to none.
func TestGridIsTrue(t *testing.T) {
	t.Parallel()
	chains := map[string][]string{"key": {"key", "team", "org"}, "team": {"team", "org"}, "alone": {"alone"}}
	resources := []string{"a", "b", "c"}
	rapid.Check(t, func(rt *rapid.T) {
		b := setup(t)
		b.chain("key", "team", "org")
		b.chain("alone")
		groups := make(map[string]string)
		limits := make(map[admin.Scope]int64)
		spent := make(map[[2]string]int64) // by entity and resource
		columns := func(resource string) []string {
			if groups[resource] != "" {
				return []string{resource, weir.GroupResource(groups[resource]), weir.TotalResource}
			}
			return []string{resource, weir.TotalResource}
		}
		burst := func(entity, on string) int64 {
			own, on1 := limits[admin.Scope{Entity: entity, Resource: on}], limits[admin.Scope{Resource: on}]
			if store.Aggregate(on) {
				return cmp.Or(own, on1)
			}
			return cmp.Or(own, limits[admin.Scope{Entity: entity}], on1, limits[admin.Scope{}])
		}
		draw := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(rt, label) }
		on := append([]string{"", weir.TotalResource, weir.GroupResource("g"), weir.GroupResource("h")}, resources...)
		type held struct {
			*weir.Lease
			buckets [][2]string
			tokens  int64
		}
		var leases []held
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch draw("step", "set", "delete", "group", "take", "take", "take", "return") {
			case "set":
				sc := admin.Scope{Entity: draw("entity", "", "key", "team", "org", "alone"), Resource: draw("on", on...)}
				n := rapid.Int64Range(1, 60).Draw(rt, "burst")
				if err := b.admin.Limits.Set(b.ctx, sc, weir.PerDay("tpd", n)); err != nil {
					rt.Fatal(err)
				}
				limits[sc] = n
			case "delete":
				sc := admin.Scope{Entity: draw("entity", "", "key", "team", "org", "alone"), Resource: draw("on", on...)}
				err := b.admin.Limits.Delete(b.ctx, sc)
				if _, set := limits[sc]; errors.Is(err, weir.ErrNotFound) == set {
					rt.Fatalf("delete %+v: %v", sc, err)
				}
				delete(limits, sc)
			case "group":
				r, g := draw("resource", resources...), draw("group", "", "g", "h")
				if err := b.admin.Limits.SetGroup(b.ctx, r, g); err != nil {
					rt.Fatal(err)
				}
				groups[r] = g
			case "take":
				entity, r := draw("entity", slices.Sorted(maps.Keys(chains))...), draw("resource", resources...)
				n := rapid.Int64Range(0, 20).Draw(rt, "tokens")
				var buckets [][2]string
				refused, never, first := false, false, 0
				for i, id := range chains[entity] {
					for _, on := range columns(r) {
						if most := burst(id, on); most > 0 {
							buckets = append(buckets, [2]string{id, on})
							refused = refused || spent[[2]string{id, on}]+n > most
							never = never || n > most
						}
					}
					if i == 0 {
						first = len(buckets)
					}
				}
				lease, err := b.Acquire(b.ctx, weir.Request{Entity: entity, Resource: r, Tokens: weir.Tokens{"tpd": n}})
				var want error
				switch {
				case first == 0:
					want = weir.ErrNoLimits
				case never:
					want = weir.ErrExceedsBurst
				case refused:
					want = weir.ErrExceeded
				}
				if !errors.Is(err, want) {
					rt.Fatalf("%s on %s takes %d: got %v, want %v", entity, r, n, err, want)
				}
				if want == nil {
					for _, on := range buckets {
						spent[on] += n
					}
					leases = append(leases, held{lease, buckets, n})
				}
			case "return":
				if len(leases) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(leases)-1).Draw(rt, "lease")
				if err := leases[i].Rollback(b.ctx); err != nil {
					rt.Fatal(err)
				}
				for _, on := range leases[i].buckets {
					spent[on] -= leases[i].tokens
				}
				leases = slices.Delete(leases, i, i+1)
			}
		}
	})
}
