package admin_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// scopes has a scope of each kind for entity e on resource r.
var scopes = map[weir.Source]admin.Scope{
	weir.SourceEntity:        {Entity: "e", Resource: "r"},
	weir.SourceEntityDefault: {Entity: "e"},
	weir.SourceResource:      {Resource: "r"},
	weir.SourceSystem:        {},
}

func TestLimitsOfEachScope(t *testing.T) {
	t.Parallel()
	for source, scope := range scopes {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			lim, ctx := memoryLimiter(t), t.Context()
			if _, err := admin.New(lim).Limits.Get(ctx, scope); !errors.Is(err, weir.ErrNotFound) {
				t.Errorf("before: %v", err)
			}
			if err := admin.New(lim).Limits.Delete(ctx, scope); !errors.Is(err, weir.ErrNotFound) {
				t.Errorf("delete before: %v", err)
			}
			must(t, admin.New(lim).Limits.Set(ctx, scope, weir.PerMinute("rpm", 1)))
			must(t, admin.New(lim).Limits.Set(ctx, scope, weir.PerMinute("tpm", 9).WithBurst(2), weir.Limit{Name: "x", Amount: 3, Period: time.Second}))
			want := admin.ScopedLimits{Scope: scope, Source: source, Limits: []weir.Limit{
				weir.PerMinute("tpm", 9).WithBurst(2), {Name: "x", Amount: 3, Period: time.Second, Burst: 3},
			}}
			got, err := admin.New(lim).Limits.Get(ctx, scope)
			must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			must(t, admin.New(lim).Limits.Delete(ctx, scope))
			if _, err := admin.New(lim).Limits.Get(ctx, scope); !errors.Is(err, weir.ErrNotFound) {
				t.Errorf("after: %v", err)
			}
			if err := admin.New(lim).Limits.Delete(ctx, scope); !errors.Is(err, weir.ErrNotFound) {
				t.Errorf("delete again: %v", err)
			}
		})
	}
}

// The namespace's limits and its on_unavailable do not affect each other.
func TestSystemKeepsBoth(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	check := func(step string, limits int, u weir.OnUnavailable) {
		t.Helper()
		got, err := admin.New(lim).Limits.Get(ctx, admin.Scope{})
		must(t, err)
		if len(got.Limits) != limits || got.OnUnavailable != u {
			t.Errorf("%s: got %+v, want %d limits and %q", step, got, limits, u)
		}
	}
	must(t, admin.New(lim).Limits.SetOnUnavailable(ctx, admin.Scope{}, weir.OnUnavailableAllow))
	check("on_unavailable", 0, weir.OnUnavailableAllow)
	if err := admin.New(lim).Limits.Delete(ctx, admin.Scope{}); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("no limits to delete: %v", err)
	}
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerMinute("rpm", 1)))
	check("limits", 1, weir.OnUnavailableAllow)
	must(t, admin.New(lim).Limits.SetOnUnavailable(ctx, admin.Scope{}, weir.OnUnavailableDeny))
	check("on_unavailable again", 1, weir.OnUnavailableDeny)
	must(t, admin.New(lim).Limits.Delete(ctx, admin.Scope{}))
	check("limits deleted", 0, weir.OnUnavailableDeny)
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerMinute("rpm", 1)))
	must(t, admin.New(lim).Limits.SetOnUnavailable(ctx, admin.Scope{}, weir.OnUnavailableDefault))
	check("on_unavailable cleared", 1, weir.OnUnavailableDefault)
	must(t, admin.New(lim).Limits.Delete(ctx, admin.Scope{}))
	if _, err := admin.New(lim).Limits.Get(ctx, admin.Scope{}); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("nothing is left: %v", err)
	}
	wantConfigError(t, admin.New(lim).Limits.SetOnUnavailable(ctx, admin.Scope{}, "maybe"), "on_unavailable")
	must(t, admin.New(lim).Limits.SetOnUnavailable(ctx, admin.Scope{}, weir.OnUnavailableLocal))
	check("local", 0, weir.OnUnavailableLocal)
}

func TestLimitsRefuse(t *testing.T) {
	t.Parallel()
	rpm := weir.PerMinute("rpm", 1)
	lim, ctx := memoryLimiter(t), t.Context()
	for name, id := range badIDs {
		if id == "" {
			continue // another scope
		}
		for field, scope := range map[string]admin.Scope{
			"entity":   {Entity: id, Resource: "r"},
			"resource": {Entity: "e", Resource: id},
		} {
			t.Run(name+" "+field, func(t *testing.T) {
				t.Parallel()
				wantConfigError(t, admin.New(lim).Limits.Set(ctx, scope, rpm), field)
				wantConfigError(t, admin.New(lim).Limits.Delete(ctx, scope), field)
				_, err := admin.New(lim).Limits.Get(ctx, scope)
				wantConfigError(t, err, field)
				if id != weir.DefaultResource || field == "entity" {
					_, err = admin.New(lim).Limits.List(ctx, admin.LimitsQuery{Entity: scope.Entity, Resource: scope.Resource})
					wantConfigError(t, err, field)
				}
			})
		}
	}
	for name, tt := range map[string]struct {
		limits []weir.Limit
		field  string
	}{
		"none":        {nil, "limits"},
		"twice":       {[]weir.Limit{rpm, weir.PerDay("rpm", 2)}, "limits"},
		"zero amount": {[]weir.Limit{weir.PerMinute("rpm", 0)}, "limit rpm: amount"},
		"negative":    {[]weir.Limit{rpm.WithBurst(-1)}, "limit rpm: burst"},
		"no period":   {[]weir.Limit{{Name: "rpm", Amount: 1}}, "limit rpm: period"},
		"bad name":    {[]weir.Limit{weir.PerMinute("a\nb", 1)}, "limit name"},
		"too many":    {make([]weir.Limit, 65), "limits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantConfigError(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "e"}, tt.limits...), tt.field)
			wantConfigError(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, tt.limits...), tt.field)
		})
	}
	if err := admin.New(lim.In("nowhere")).Limits.Set(ctx, admin.Scope{}, rpm); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("no namespace: %v", err)
	}
	if _, err := admin.New(lim.In("nowhere")).Limits.Get(ctx, admin.Scope{}); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("no namespace: %v", err)
	}
}

func TestListLimits(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	rpm := weir.PerMinute("rpm", 1)
	for _, e := range oddIDs[:5] {
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: e}, rpm))
		for _, r := range oddIDs[:4] {
			must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: e, Resource: r}, rpm))
		}
	}
	for _, r := range oddIDs {
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: r}, rpm))
	}
	for _, tt := range []struct {
		name  string
		query admin.LimitsQuery
		want  int
		all   func(admin.ScopedLimits) bool
	}{
		{"resources", admin.LimitsQuery{}, len(oddIDs), func(s admin.ScopedLimits) bool { return s.Source == weir.SourceResource }},
		{"an entity", admin.LimitsQuery{Entity: "a#b"}, 5, func(s admin.ScopedLimits) bool { return s.Entity == "a#b" }},
		{"a resource", admin.LimitsQuery{Resource: "a#b"}, 5, func(s admin.ScopedLimits) bool {
			return s.Resource == "a#b" && s.Source == weir.SourceEntity
		}},
		{"defaults", admin.LimitsQuery{Resource: weir.DefaultResource}, 5, func(s admin.ScopedLimits) bool {
			return s.Resource == "" && s.Source == weir.SourceEntityDefault
		}},
		{"both", admin.LimitsQuery{Entity: "a#b", Resource: "<script>"}, 1, func(s admin.ScopedLimits) bool {
			return s.Scope == admin.Scope{Entity: "a#b", Resource: "<script>"}
		}},
		{"nothing", admin.LimitsQuery{Entity: "nobody"}, 0, nil},
	} {
		for _, size := range []int{0, 1, 3} {
			t.Run(fmt.Sprintf("%s by %d", tt.name, size), func(t *testing.T) {
				t.Parallel()
				seen := make(map[admin.Scope]bool)
				q := tt.query
				for q.Max = size; ; {
					page, err := admin.New(lim).Limits.List(t.Context(), q)
					must(t, err)
					if size > 0 && len(page.Items) > size {
						t.Errorf("a page of %d", len(page.Items))
					}
					for _, sl := range page.Items {
						if seen[sl.Scope] || !tt.all(sl) || len(sl.Limits) != 1 {
							t.Errorf("got %+v", sl)
						}
						seen[sl.Scope] = true
					}
					if q.After = page.Next; q.After == "" {
						break
					}
				}
				if len(seen) != tt.want {
					t.Errorf("got %d, want %d", len(seen), tt.want)
				}
			})
		}
	}
	_, err := admin.New(lim).Limits.List(ctx, admin.LimitsQuery{After: "?"})
	if !errors.Is(err, weir.ErrBadCursor) {
		t.Errorf("cursor: %v", err)
	}
	_, err = admin.New(lim).Limits.List(ctx, admin.LimitsQuery{Max: -1})
	wantConfigError(t, err, "max")
}

// Of concurrent changes none is lost: each event's before is another event's after.
func TestConcurrentLimits(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim, other := limiterOn(t, st), limiterOn(t, st)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			l := []*weir.Limiter{lim, other}[i%2]
			for j := range 10 {
				err := admin.New(l).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", int64(1+10*i+j)))
				if err != nil && !errors.Is(err, weir.ErrConflict) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	befores := make(map[string]bool)
	evs := events(t, lim, "system")
	for _, e := range evs {
		if befores[e.before] {
			t.Errorf("two changes started from %s", e.before)
		}
		befores[e.before] = true
	}
	left := 0
	for _, e := range evs {
		if !befores[e.after] {
			left++
		}
	}
	if left != 1 {
		t.Errorf("%d changes are the last one", left)
	}
}

func TestForeignRecord(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	must(t, st.Commit(t.Context(), store.Write{Record: store.Record{
		Key: store.Key{Namespace: "default", Kind: store.KindResourceLimits, ID: "r"}, Value: []byte("not JSON"),
	}}))
	_, err := admin.New(limiterOn(t, st)).Limits.Get(t.Context(), admin.Scope{Resource: "r"})
	if se, ok := errors.AsType[*weir.StoreError](err); !ok || se.Hint == "" {
		t.Errorf("got error %v", err)
	}
}

// If several callers that make conditional changes have read the same value, one succeeds and the others get a conflict.
func TestLimitsIf(t *testing.T) {
	t.Parallel()
	lim, ctx, scope := memoryLimiter(t), t.Context(), admin.Scope{Entity: "e", Resource: "r"}
	race := func(was admin.ScopedLimits) (won int64) {
		t.Helper()
		var wins atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				switch err := admin.New(lim).Limits.If(was).Set(ctx, scope, weir.PerHour("rph", int64(100+i))); {
				case err == nil:
					wins.Add(1)
				case !errors.Is(err, weir.ErrConflict):
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		return wins.Load()
	}
	if won := race(admin.ScopedLimits{Scope: scope}); won != 1 {
		t.Errorf("%d made limits where there were none, want 1", won)
	}
	was, err := admin.New(lim).Limits.Get(ctx, scope)
	must(t, err)
	was.Limits = []weir.Limit{weir.PerHour("rph", 100)}
	must(t, admin.New(lim).Limits.Set(ctx, scope, was.Limits...))
	if err := admin.New(lim).Limits.If(admin.ScopedLimits{Scope: scope}).Set(ctx, scope, weir.PerHour("rph", 1)); !errors.Is(err, weir.ErrConflict) {
		t.Errorf("there are limits, and none were read: got %v", err)
	}
	must(t, admin.New(lim).Limits.Set(ctx, scope, weir.PerHour("rph", 7)))
	if err := admin.New(lim).Limits.If(was).Delete(ctx, scope); !errors.Is(err, weir.ErrConflict) {
		t.Errorf("deleting what is not as it was read: got %v", err)
	}
	was, err = admin.New(lim).Limits.Get(ctx, scope)
	must(t, err)
	must(t, admin.New(lim).Limits.If(was).Delete(ctx, scope))
	if err := admin.New(lim).Limits.If(admin.ScopedLimits{Scope: scope}).Delete(ctx, scope); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("nothing to delete: got %v", err)
	}
	wantConfigError(t, admin.New(lim).Limits.If(was).Set(ctx, scope, weir.PerHour("rph", 0)), "limit rph: amount")
}
