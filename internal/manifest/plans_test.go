package manifest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

const plansText = `namespace: default
plans:
  empty: {}
  pro:
    default:
      on_unavailable: deny
      limits:
        rpm: {capacity: 100}
    resources:
      gpt:
        limits:
          rpm: {capacity: 50}
entities:
  alice:
    plan: pro
  bob:
    parent: team
  team:
    plan: pro
`

// burst returns the limit that a decision is made by.
func burst(t *testing.T, lim *weir.Limiter, entity, resource string) int64 {
	t.Helper()
	lease, err := lim.Acquire(t.Context(), weir.Request{Entity: entity, Resource: resource, Tokens: weir.Tokens{"rpm": 1}})
	must(t, err)
	return lease.Decision().Statuses[0].Burst
}

// TestPlans: on every store, a manifest declares plans; a change of one writes one record and reaches everybody on it at
// the next debit, also through a process that has cached the limits of before; and so does another plan of an entity.
func TestPlans(t *testing.T) {
	t.Parallel()
	onStores(t, testPlans)
	onRedis(t, testPlans)
}

// onRedis is onStores for Redis.
func onRedis(t *testing.T, f func(t *testing.T, lim *weir.Limiter, st *faulty)) {
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		s, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + redistest.Start(t).Addr})
		must(t, err)
		st := &faulty{Store: s}
		f(t, limiterOn(t, st), st)
	})
}

func testPlans(t *testing.T, lim *weir.Limiter, st *faulty) {
	m := decodeOne(t, plansText)
	if got := string(m.Text()); got != plansText {
		t.Errorf("written as\n%s", got)
	}
	apply(t, lim, m)
	other := limiterOn(t, st)
	want := func(when string, wants map[[2]string]int64) {
		t.Helper()
		for _, l := range []*weir.Limiter{lim, other} {
			for on, n := range wants {
				if got := burst(t, l, on[0], on[1]); got != n {
					t.Errorf("%s: %s has %d, want %d", when, on, got, n)
				}
			}
		}
	}
	want("first", map[[2]string]int64{{"alice", "gpt"}: 50, {"alice", "x"}: 100, {"bob", "gpt"}: 50, {"team", "x"}: 100})

	m = decodeOne(t, strings.Replace(plansText, "capacity: 50", "capacity: 60", 1))
	p := plan(t, lim, m)
	if len(p.Changes) != 1 || p.Changes[0].Touches.OnPlan != 3 || p.Changes[0].Touches.Buckets != 2 {
		t.Errorf("%+v", p.Changes)
	}
	before := st.written.Load()
	_, err := manifest.Apply(t.Context(), lim, p, manifest.ApplyOptions{})
	must(t, err)
	if got := st.written.Load() - before; got != 1 {
		t.Errorf("%d records of limits and entities were written", got)
	}
	want("plan changed", map[[2]string]int64{{"alice", "gpt"}: 60, {"alice", "x"}: 100, {"bob", "gpt"}: 60})

	a := admin.New(lim)
	must(t, a.Limits.Set(t.Context(), admin.Scope{Plan: "free"}, weir.PerMinute("rpm", 10)))
	_, err = a.Entities.Update(t.Context(), "alice", admin.EntityUpdate{Plan: new("free")})
	must(t, err)
	_, err = a.Entities.Update(t.Context(), "team", admin.EntityUpdate{Plan: new("free")})
	must(t, err)
	want("entities changed", map[[2]string]int64{{"alice", "gpt"}: 10, {"alice", "x"}: 10, {"bob", "gpt"}: 10, {"team", "x"}: 10})
	wantOn(t, a, "free", "alice", "team")
	wantOn(t, a, "pro")

	must(t, a.Entities.Delete(t.Context(), "alice", admin.DeleteOptions{}))
	wantOn(t, a, "free", "team")
	apply(t, lim, decodeOne(t, plansText))
	wantOn(t, a, "pro", "alice", "team")
	apply(t, lim, decodeOne(t, "namespace: default\n"))
	wantOn(t, a, "pro")
	page, err := a.Plans.List(t.Context(), admin.PlanQuery{})
	if must(t, err); len(page.Items) != 1 || page.Items[0].Plan != "free" {
		t.Errorf("plans %+v", page.Items)
	}
}

// wantOn checks which entities name a plan.
func wantOn(t *testing.T, a *admin.Admin, plan string, want ...string) {
	t.Helper()
	var got []string
	q := admin.EntityQuery{Plan: plan, Max: 1}
	for {
		page, err := a.Entities.List(t.Context(), q)
		must(t, err)
		for _, e := range page.Items {
			got = append(got, e.ID)
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("on %s: %v, want %v", plan, got, want)
	}
}

// TestPlanProblems: what cannot be is refused, with its place and what to do.
func TestPlanProblems(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		made := func(text string) string {
			_, err := manifest.Make(t.Context(), lim, decodeOne(t, text), manifest.PlanOptions{})
			return fmt.Sprint(err)
		}
		const missing = `entity alice (test.yaml:4) has plan gold, which neither exists nor is declared: declare it under plans`
		if got := made("namespace: default\n\nentities:\n  alice: {plan: gold}\n"); !strings.HasSuffix(got, missing) {
			t.Error(got)
		}
		apply(t, lim, decodeOne(t, plansText))
		a := admin.New(lim)
		must(t, a.Entities.Create(t.Context(), admin.Entity{ID: "carol", Plan: "pro"}))
		const used = `entity carol has plan pro, which is no longer declared: declare it, or give the entity another plan first`
		if got := made("namespace: default\n"); got != used {
			t.Error(got)
		}
		for want, err := range map[string]error{
			`plan: "gold" does not exist: create it: weir plan set gold -l NAME:AMOUNT/PERIOD`:                                   a.Entities.Create(t.Context(), admin.Entity{ID: "dave", Plan: "gold"}),
			`plan: "pro" is the plan of alice, carol, team: give them another one first; list them: weir entity list --plan pro`: a.Plans.Delete(t.Context(), "pro"),
			`plan: cannot be combined with an entity: an entity names its plan`:                                                  a.Limits.Set(t.Context(), admin.Scope{Entity: "a", Plan: "pro"}, weir.PerDay("rpd", 1)),
			`plan "gold": not found`:                          a.Plans.Delete(t.Context(), "gold"),
			`limits of plan "pro" on resource "x": not found`: a.Limits.Delete(t.Context(), admin.Scope{Plan: "pro", Resource: "x"}),
		} {
			if fmt.Sprint(err) != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		// Deleting the plan's default limits leaves the plan, and what names it.
		must(t, a.Limits.Delete(t.Context(), admin.Scope{Plan: "pro"}))
		wantOn(t, a, "pro", "alice", "carol", "team")
	})
}

// BenchmarkPlanOfMany plans and applies a change of a plan with 100,000 entities: of its limits by default, on a group and
// on the total.
func BenchmarkPlanOfMany(b *testing.B) {
	st := memory.New(nil)
	lim := limiterOn(b, st)
	a := admin.New(lim)
	must(b, a.Limits.Set(b.Context(), admin.Scope{Plan: "pro"}, weir.PerMinute("rpm", 100)))
	for i := range 1250 {
		var writes []store.Write
		for j := range 40 {
			id := fmt.Sprintf("user-%d", 40*i+j)
			writes = append(writes, record.Put(record.EntityKey(weir.DefaultNamespace, id), 0, record.Entity{
				Plan: "pro", Created: time.Now(),
			}), record.Put(record.EntityKey(weir.DefaultNamespace, id+"-child"), 0, record.Entity{
				Parent: id, Created: time.Now(),
			}))
		}
		must(b, st.Commit(b.Context(), writes...))
	}
	n := 100
	for b.Loop() {
		n++
		m := decodeOne(b, fmt.Sprintf(`namespace: default
resources: {gpt: {group: all}}
plans: {pro: {default: {limits: &l [rpm:%d/min, tpm:%[1]dK/month@UTC]}, groups: {all: {limits: *l}}, total: {limits: *l}}}
`, n))
		began := time.Now()
		p := plan(b, lim, m)
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "plan-ms")
		for _, c := range p.Changes {
			if c.Plan != "" && c.Touches.OnPlan != 100_000 {
				b.Fatal(c.Target, c.Touches)
			}
		}
		_, err := manifest.Apply(b.Context(), lim, p, manifest.ApplyOptions{Adopt: true})
		must(b, err)
	}
}
