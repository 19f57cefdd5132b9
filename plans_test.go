package weir_test

import (
	"errors"
	"fmt"
	"math/bits"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// precedence has all sources of stored limits, in order, with the scope of each for alice on api, who is on plan pro.
var precedence = []struct {
	source weir.Source
	scope  admin.Scope
}{
	{weir.SourceEntity, admin.Scope{Entity: "alice", Resource: "api"}},
	{weir.SourceEntityDefault, admin.Scope{Entity: "alice"}},
	{weir.SourcePlan, admin.Scope{Plan: "pro", Resource: "api"}},
	{weir.SourcePlanDefault, admin.Scope{Plan: "pro"}},
	{weir.SourceResource, admin.Scope{Resource: "api"}},
	{weir.SourceSystem, admin.Scope{}},
}

// TestPlanPrecedence: whichever scopes have limits, and wherever the plan is named, the first of them applies, and so
// does the first that says what happens without the store.
func TestPlanPrecedence(t *testing.T) {
	t.Parallel()
	named := map[string][]admin.Entity{
		"itself":                         {{ID: "alice", Plan: "pro"}},
		"itself, not the parent's":       {{ID: "org", Plan: "free"}, {ID: "alice", Parent: "org", Cascade: true, Plan: "pro"}},
		"by a parent that is charged":    {{ID: "org", Plan: "pro"}, {ID: "alice", Parent: "org", Cascade: true}},
		"by a parent that is not":        {{ID: "org", Plan: "pro"}, {ID: "alice", Parent: "org"}},
		"by the nearest of two":          {{ID: "top", Plan: "free"}, {ID: "org", Parent: "top", Plan: "pro"}, {ID: "alice", Parent: "org"}},
		"far above, through one charged": {{ID: "top", Plan: "pro"}, {ID: "org", Parent: "top"}, {ID: "alice", Parent: "org", Cascade: true}},
		"by nobody":                      {{ID: "org"}, {ID: "alice", Parent: "org"}},
	}
	for where, entities := range named {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			for set := range 1 << len(precedence) {
				b := setup(t)
				scopes := []admin.Scope{{Plan: "pro", Resource: "other"}, {Plan: "free"}, {Plan: "free", Resource: "api"}}
				first := -1
				for i, p := range precedence {
					inPlan := p.scope.Plan != "" && where == "by nobody"
					if set>>i&1 == 0 {
						continue
					}
					if scopes = append(scopes, p.scope); first < 0 && !inPlan {
						first = i
					}
				}
				for i, sc := range scopes {
					must(t, b.admin.Limits.Set(b.ctx, sc, weir.PerDay("rpm", int64(100+i))))
				}
				for _, e := range entities {
					must(t, b.admin.Entities.Create(b.ctx, e))
				}
				lease, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 1}})
				switch {
				case first < 0:
					if !errors.Is(err, weir.ErrNoLimits) {
						t.Errorf("%06b: error %v", set, err)
					}
				case err != nil:
					t.Errorf("%06b: %v", set, err)
				default:
					s := lease.Decision().Statuses[0]
					if want := int64(103 + bits.OnesCount(uint(set)&(1<<first-1))); s.Source != precedence[first].source || s.Burst != want {
						t.Errorf("%06b: %d from %s, want %d from %s", set, s.Burst, s.Source, want, precedence[first].source)
					}
				}
				wantSetting(t, b, where == "by nobody", set)
			}
		})
	}
}

// wantSetting sets on_unavailable in the scopes of a set, and checks which applies.
func wantSetting(t *testing.T, b *bundle, nobody bool, set int) {
	t.Helper()
	must(t, b.admin.Limits.Set(b.ctx, admin.Scope{}, weir.PerDay("rpm", 1000)))
	want := "config"
	for i, p := range precedence {
		if set>>i&1 == 0 {
			continue
		}
		must(t, b.admin.Limits.SetOnUnavailable(b.ctx, p.scope, weir.OnUnavailableAllow))
		if want == "config" && (p.scope.Plan == "" || !nobody) {
			want = string(p.source)
		}
	}
	x, err := b.Explain(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
	must(t, err)
	if len(x.Chain) == 1 && x.OnUnavailableFrom != want { // otherwise the parent's counts, too
		t.Errorf("%06b: on_unavailable from %s, want %s", set, x.OnUnavailableFrom, want)
	}
}

// plansModel is what should apply, computed naively.
type plansModel struct {
	entities map[string]admin.Entity
	limits   map[admin.Scope]int64
}

// plan returns the plan of an entity.
func (m *plansModel) plan(id string) string {
	for ; id != ""; id = m.entities[id].Parent {
		if p := m.entities[id].Plan; p != "" {
			return p
		}
	}
	return ""
}

// burst returns the limit of an entity on a resource; 0 if there is none.
func (m *plansModel) burst(entity, resource string) int64 {
	scopes := []admin.Scope{{Entity: entity, Resource: resource}, {Entity: entity}}
	if p := m.plan(entity); p != "" {
		scopes = append(scopes, admin.Scope{Plan: p, Resource: resource}, admin.Scope{Plan: p})
	}
	for _, sc := range append(scopes, admin.Scope{Resource: resource}, admin.Scope{}) {
		if n := m.limits[sc]; n > 0 {
			return n
		}
	}
	return 0
}

// TestPlansModel makes random changes through one limiter and compares what applies with the model: at once in that
// limiter, in one that caches nothing, and at a bucket's next debit in one that has cached everything for an hour, if
// limits applied before, too.
func TestPlansModel(t *testing.T) {
	t.Parallel()
	ids, plans, resources := []string{"a", "b", "c", "d"}, []string{"", "free", "pro"}, []string{"x", "y"}
	rapid.Check(t, func(rt *rapid.T) {
		st := memory.New(nil)
		open := func(ttl time.Duration) *weir.Limiter {
			lim, err := weir.New(weir.Config{Store: st, CacheTTL: ttl})
			must(t, err)
			return lim
		}
		lim, fresh, stale := open(time.Hour), open(-1), open(time.Hour)
		defer func() { must(t, lim.Close()) }()
		a, m := admin.New(lim), &plansModel{make(map[string]admin.Entity), make(map[admin.Scope]int64)}
		was, follows := make(map[[2]string]int64), make(map[[2]string]bool)
		for next := int64(1001); next < 1016; next++ {
			changePlans(t, rt, a, m, next, ids, plans, resources)
			for _, id := range ids {
				for _, r := range resources {
					want, pair := m.burst(id, r), [2]string{id, r}
					if want == 0 || was[pair] == 0 {
						follows[pair] = false
					} else if was[pair] != want {
						follows[pair] = true
					}
					was[pair] = want
					for i, l := range []*weir.Limiter{lim, fresh, stale} {
						if got := burstOf(t, l, id, r); got != want && (l != stale || follows[pair] && got > 0) {
							rt.Fatalf("limiter %d: %s on %s has %d, want %d\n%+v", i, id, r, got, want, m)
						}
					}
				}
			}
		}
	})
}

// changePlans makes one random change.
func changePlans(
	t *testing.T, rt *rapid.T, a *admin.Admin, m *plansModel, next int64, ids, plans, resources []string,
) {
	ctx := t.Context()
	switch rapid.IntRange(0, 3).Draw(rt, "change") {
	case 0: // a plan must exist before an entity names it
		e := admin.Entity{
			ID: rapid.SampledFrom(ids).Draw(rt, "id"), Plan: rapid.SampledFrom(plans).Draw(rt, "plan"),
			Cascade: rapid.Bool().Draw(rt, "cascade"),
		}
		if i := int(e.ID[0] - 'a'); i > 0 && rapid.Bool().Draw(rt, "child") { // of one before it in the alphabet
			if p := ids[rapid.IntRange(0, i-1).Draw(rt, "parent")]; m.entities[p].ID != "" {
				e.Parent = p
			}
		}
		if _, known := m.entities[e.ID]; known {
			u := admin.EntityUpdate{Parent: &e.Parent, Plan: &e.Plan, Cascade: &e.Cascade}
			if _, err := a.Entities.Update(ctx, e.ID, u); !planMissing(m, e.Plan, err) {
				return
			}
		} else if !planMissing(m, e.Plan, a.Entities.Create(ctx, e)) {
			return
		}
		m.entities[e.ID] = e
	default:
		sc := admin.Scope{Resource: rapid.SampledFrom(append(resources, "")).Draw(rt, "resource")}
		switch rapid.IntRange(0, 2).Draw(rt, "scope") {
		case 0:
			sc.Entity = rapid.SampledFrom(ids).Draw(rt, "entity")
		case 1:
			sc.Plan = rapid.SampledFrom(plans[1:]).Draw(rt, "plan")
		}
		if m.limits[sc] > 0 && rapid.Bool().Draw(rt, "delete") {
			must(t, a.Limits.Delete(ctx, sc))
			m.limits[sc] = 0
			return
		}
		must(t, a.Limits.Set(ctx, sc, weir.PerDay("rpm", next)))
		m.limits[sc] = next
	}
}

// planMissing reports whether a change was made. It fails unless that is so exactly if the plan exists.
func planMissing(m *plansModel, plan string, err error) bool {
	exists := plan == ""
	for sc := range m.limits {
		exists = exists || sc.Plan == plan
	}
	if bad := new(weir.ConfigError); exists != (err == nil) || err != nil && (!errors.As(err, &bad) || bad.Field != "plan") {
		panic(fmt.Sprintf("plan %q: error %v", plan, err))
	}
	return err == nil
}

// burstOf returns the limit that a decision was made by; 0 if there is none.
func burstOf(t *testing.T, l *weir.Limiter, entity, resource string) int64 {
	lease, err := l.Acquire(t.Context(), weir.Request{Entity: entity, Resource: resource, Tokens: weir.Tokens{"rpm": 1}})
	var over *weir.ExceededError
	switch {
	case errors.Is(err, weir.ErrNoLimits):
		return 0
	case errors.As(err, &over): // an ancestor may refuse
		return over.Statuses[0].Burst
	}
	must(t, err)
	return lease.Decision().Statuses[0].Burst
}

// TestPlanNewerThanItsName checks that a process that reads the changed limits of a plan, but not what names the plan, has
// an epoch with which another that has everything else newer does not bring the former limits back.
func TestPlanNewerThanItsName(t *testing.T) {
	t.Parallel()
	st, ctx := memory.New(nil), t.Context()
	open := func() *weir.Limiter {
		lim, err := weir.New(weir.Config{Store: st, CacheTTL: time.Hour})
		must(t, err)
		return lim
	}
	lim, other := open(), open()
	defer func() { must(t, lim.Close()) }()
	a := admin.New(lim)
	set := func(plan string, n int64) {
		must(t, a.Limits.Set(ctx, admin.Scope{Plan: plan, Resource: "x"}, weir.PerDay("rpm", n)))
	}
	want := func(l *weir.Limiter, id string, n int64) {
		t.Helper()
		if got := burstOf(t, l, id, "x"); got != n {
			t.Errorf("%s has %d, want %d", id, got, n)
		}
	}
	set("pro", 1001)
	must(t, a.Entities.Create(ctx, admin.Entity{ID: "a", Plan: "pro"}))
	must(t, a.Entities.Create(ctx, admin.Entity{ID: "b"}))
	must(t, a.Limits.Set(ctx, admin.Scope{Resource: "x"}, weir.PerDay("rpm", 1000)))
	want(lim, "a", 1001)
	want(lim, "b", 1000)
	parent, cascade := "a", true
	_, err := a.Entities.Update(ctx, "b", admin.EntityUpdate{Parent: &parent, Cascade: &cascade})
	must(t, err)
	want(lim, "b", 1001) // its limits change, so lim reads again what it and a have
	set("free", 1002)
	want(other, "a", 1001) // all of it newer than in lim
	set("pro", 1003)
	want(lim, "a", 1003)
	want(other, "a", 1003)
	want(lim, "a", 1003)
}

// TestPlanCosts: what a first decision reads.
func TestPlanCosts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		entity   string
		cold     int // calls of a process that has read nothing
		another  int // for a first decision of an entity like it
		ofPlans  bool
		entities []admin.Entity
	}{
		{"no plan", "a1", 1, 1, true, []admin.Entity{{ID: "a1"}, {ID: "a2"}}},
		{"no plan, a parent", "a1", 2, 1, true, []admin.Entity{{ID: "p"}, {ID: "a1", Parent: "p", Cascade: true}, {ID: "a2", Parent: "p", Cascade: true}}},
		{"no plan, a parent that is not charged", "a1", 1, 1, false, []admin.Entity{{ID: "p"}, {ID: "a1", Parent: "p"}, {ID: "a2", Parent: "p"}}},
		{"the same where others have plans", "a1", 2, 1, true, []admin.Entity{{ID: "p"}, {ID: "a1", Parent: "p"}, {ID: "a2", Parent: "p"}}},
		{"a plan", "a1", 2, 1, true, []admin.Entity{{ID: "a1", Plan: "pro"}, {ID: "a2", Plan: "pro"}}},
		{"a plan, a parent", "a1", 2, 1, true, []admin.Entity{{ID: "p"}, {ID: "a1", Plan: "pro", Parent: "p", Cascade: true}, {ID: "a2", Plan: "pro", Parent: "p", Cascade: true}}},
		{"the parent's plan", "a1", 3, 1, true, []admin.Entity{{ID: "p", Plan: "pro"}, {ID: "a1", Parent: "p", Cascade: true}, {ID: "a2", Parent: "p", Cascade: true}}},
		{"the plan of a parent that is not charged", "a1", 3, 1, true, []admin.Entity{{ID: "p", Plan: "pro"}, {ID: "a1", Parent: "p"}, {ID: "a2", Parent: "p"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.set("", "", weir.PerDay("rpm", 100))
			if tt.ofPlans {
				must(t, b.admin.Limits.Set(b.ctx, admin.Scope{Plan: "pro"}, weir.PerDay("rpm", 50)))
			}
			for _, e := range tt.entities {
				must(t, b.admin.Entities.Create(b.ctx, e))
			}
			peer := b.peer()
			for _, step := range []struct {
				entity string
				want   int
			}{{"a1", tt.cold + ofCell}, {"a1", 0}, {"a2", tt.another}, {"a2", 0}} {
				before := peer.fake.reads
				peer.take(step.entity, weir.Tokens{"rpm": 1})
				if got := peer.fake.reads - before; got != step.want {
					t.Errorf("%s: %d reads, want %d", step.entity, got, step.want)
				}
			}
		})
	}
}
