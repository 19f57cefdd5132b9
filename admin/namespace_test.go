package admin_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

func TestNamespace(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	seen := make(map[string]bool)
	for _, name := range oddIDs {
		if name == "default" {
			continue
		}
		ns, err := admin.New(lim).Namespaces.Create(ctx, name)
		must(t, err)
		if seen[ns.ID] || !regexp.MustCompile(`^n[a-z2-7]{16}$`).MatchString(ns.ID) || ns.Name != name || ns.Created.IsZero() || ns.Deleted != nil {
			t.Errorf("created %+v", ns)
		}
		seen[ns.ID] = true
		got, err := admin.New(lim).Namespaces.Get(ctx, name)
		must(t, err)
		if diff := cmp.Diff(ns, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if _, err := admin.New(lim).Namespaces.Create(ctx, name); !errors.Is(err, weir.ErrExists) {
			t.Errorf("%q again: %v", name, err)
		}
		in := lim.In(name)
		must(t, admin.New(in).Limits.Set(ctx, admin.Scope{}, weir.PerHour("rph", 1)))
		allowed(t, in, "e", "r", true, false)
	}
	if _, err := admin.New(lim).Limits.Get(ctx, admin.Scope{}); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("default sees others' limits: %v", err)
	}
}

func TestDefaultNamespace(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	want := admin.Namespace{Name: "default", ID: "default"}
	for name, f := range map[string]func() (admin.Namespace, error){
		"by name": func() (admin.Namespace, error) { return admin.New(lim).Namespaces.Get(ctx, "default") },
		"recover": func() (admin.Namespace, error) { return admin.New(lim).Namespaces.Recover(ctx, "default") },
	} {
		if got, err := f(); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := admin.New(lim).Namespaces.Create(ctx, "default"); !errors.Is(err, weir.ErrExists) {
		t.Errorf("create: %v", err)
	}
	wantConfigError(t, admin.New(lim).Namespaces.Delete(ctx, "default"), "namespace")
	wantConfigError(t, admin.New(lim).Namespaces.Purge(ctx, "default"), "namespace")
	if got := events(t, lim, "namespace:"); got != nil {
		t.Errorf("events %v", got)
	}
}

// The number of buckets that a namespace may have survives a deletion, is audited, and is listed once.
func TestSetMaxBuckets(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	spaces := admin.New(lim).Namespaces
	_, err := spaces.Create(ctx, "shop")
	must(t, err)
	for _, name := range []string{"default", "shop"} {
		ns, err := spaces.SetMaxBuckets(ctx, name, 5)
		must(t, err)
		got, err := spaces.Get(ctx, name)
		must(t, err)
		if got != ns || got.MaxBuckets != 5 {
			t.Errorf("set %+v, got %+v", ns, got)
		}
		must(t, second(spaces.SetMaxBuckets(ctx, name, 5))) // changes nothing
		wantConfigError(t, second(spaces.SetMaxBuckets(ctx, name, -1)), "max_buckets")
	}
	must(t, spaces.Delete(ctx, "shop"))
	if err := second(spaces.SetMaxBuckets(ctx, "shop", 6)); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("a deleted one: %v", err)
	}
	must(t, second(spaces.Recover(ctx, "shop")))
	var listed []string
	for q := (admin.NamespaceQuery{Max: 1}); ; {
		page, err := spaces.List(ctx, q)
		must(t, err)
		for _, ns := range page.Items {
			listed = append(listed, fmt.Sprint(ns.Name, ns.MaxBuckets))
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	if !slices.Equal(listed, []string{"default5", "shop5"}) {
		t.Errorf("listed %v", listed)
	}
	var changed []string
	for _, e := range events(t, lim, "namespace:") {
		if strings.Contains(fmt.Sprint(e), "namespace.max_buckets") {
			changed = append(changed, fmt.Sprint(e))
		}
	}
	if len(changed) != 2 {
		t.Errorf("events %v", changed)
	}
}

func second[T any](_ T, err error) error { return err }

func TestNamespaceRefuses(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	for name, id := range badIDs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := admin.New(lim).Namespaces.Create(ctx, id)
			_, err2 := admin.New(lim).Namespaces.Get(ctx, id)
			_, err3 := admin.New(lim).Namespaces.Recover(ctx, id)
			for _, err := range []error{err, err2, err3, admin.New(lim).Namespaces.Delete(ctx, id), admin.New(lim).Namespaces.Purge(ctx, id)} {
				wantConfigError(t, err, "namespace")
			}
			wantConfigError(t, admin.New(lim.In(id)).Limits.SetOnUnavailable(ctx, admin.Scope{}, weir.OnUnavailableAllow), "namespace")
		})
	}
	_, err := admin.New(lim).Namespaces.Get(ctx, "nowhere")
	_, err2 := admin.New(lim).Namespaces.Recover(ctx, "nowhere")
	_, err3 := lim.In("nowhere").Allow(ctx, "e", "r")
	for i, err := range []error{err, err2, err3, admin.New(lim).Namespaces.Delete(ctx, "nowhere"), admin.New(lim).Namespaces.Purge(ctx, "nowhere")} {
		if !errors.Is(err, weir.ErrNotFound) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	for _, q := range []admin.NamespaceQuery{{After: "?"}} {
		_, err := admin.New(lim).Namespaces.List(ctx, q)
		_, err2 := admin.New(lim).Namespaces.Orphans(ctx, q)
		if !errors.Is(err, weir.ErrBadCursor) || !errors.Is(err2, weir.ErrBadCursor) {
			t.Errorf("cursor: %v; %v", err, err2)
		}
	}
	for _, after := range []string{"", "*"} {
		_, err = admin.New(lim).Namespaces.List(ctx, admin.NamespaceQuery{Max: -1, After: after})
		wantConfigError(t, err, "max")
	}
	_, err = admin.New(lim).Namespaces.Orphans(ctx, admin.NamespaceQuery{Max: -1})
	wantConfigError(t, err, "max")
}

// A deletion and a recovery through this process take effect at once, also in views that used the namespace before.
func TestDeletedNamespaceAtOnce(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	in, in2 := lim.In("alpha"), lim.In("alpha")
	for _, l := range []*weir.Limiter{in, in2} {
		if _, err := l.Allow(ctx, "e", "r"); !errors.Is(err, weir.ErrNotFound) {
			t.Errorf("before: %v", err)
		}
	}
	born, err := admin.New(lim).Namespaces.Create(ctx, "alpha")
	must(t, err)
	must(t, admin.New(in).Limits.Set(ctx, admin.Scope{}, weir.PerHour("rph", 3)))
	allowed(t, in, "e", "r", true)
	allowed(t, in2, "e", "r", true)

	must(t, admin.New(lim.In("beta")).Namespaces.Delete(ctx, "alpha"))
	for i, l := range []*weir.Limiter{in, in2, lim.In("alpha")} {
		if _, err := l.Allow(ctx, "e", "r"); !errors.Is(err, weir.ErrNotFound) {
			t.Errorf("view %d of a deleted one: %v", i, err)
		}
		if err := admin.New(l).Limits.Set(ctx, admin.Scope{}, weir.PerHour("rph", 9)); !errors.Is(err, weir.ErrNotFound) {
			t.Errorf("view %d of a deleted one: %v", i, err)
		}
	}
	dead, err := admin.New(lim).Namespaces.Get(ctx, "alpha")
	must(t, err)
	if dead.Deleted == nil || dead.ID != born.ID {
		t.Errorf("deleted: %+v", dead)
	}
	if err := admin.New(lim).Namespaces.Delete(ctx, "alpha"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("delete again: %v", err)
	}
	if _, err := admin.New(lim).Namespaces.Create(ctx, "alpha"); !errors.Is(err, weir.ErrExists) || !strings.Contains(err.Error(), "recover") {
		t.Errorf("create over a deleted one: %v", err)
	}

	back, err := admin.New(lim).Namespaces.Recover(ctx, "alpha")
	must(t, err)
	if back != born {
		t.Errorf("recovered %+v, was %+v", back, born)
	}
	allowed(t, in, "e", "r", true, false)
	allowed(t, in2, "e", "r", false)

	must(t, admin.New(lim).Namespaces.Delete(ctx, "alpha"))
	must(t, admin.New(lim).Namespaces.Purge(ctx, "alpha"))
	again, err := admin.New(lim).Namespaces.Create(ctx, "alpha")
	must(t, err)
	if again.ID == born.ID {
		t.Errorf("the id %s is used again", again.ID)
	}
	if _, err := in.Allow(ctx, "e", "r"); !errors.Is(err, weir.ErrNoLimits) {
		t.Errorf("a new one: %v", err)
	}
}

func TestListNamespaces(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	want := []string{"default"}
	for i := range 5 {
		name := fmt.Sprint("a", i)
		_, err := admin.New(lim).Namespaces.Create(ctx, name)
		must(t, err)
		if i%2 == 1 {
			must(t, admin.New(lim).Namespaces.Delete(ctx, name))
			continue
		}
		want = append(want, name)
	}
	all := []string{"default", "a0", "a1", "a2", "a3", "a4"}
	for _, size := range []int{0, 1, 2, 3, 6, 7, 5000} {
		for deleted, want := range map[bool][]string{false: want, true: all} {
			t.Run(fmt.Sprintf("by %d, deleted %v", size, deleted), func(t *testing.T) {
				t.Parallel()
				var got []string
				for q := (admin.NamespaceQuery{Max: size, Deleted: deleted}); ; {
					page, err := admin.New(lim).Namespaces.List(t.Context(), q)
					must(t, err)
					if size > 0 && len(page.Items) > size {
						t.Errorf("a page of %d", len(page.Items))
					}
					for _, ns := range page.Items {
						got = append(got, ns.Name)
					}
					if q.After = page.Next; q.After == "" {
						break
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
	}
}

func TestConcurrentNamespaces(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	var mu sync.Mutex
	created, deleted := 0, 0
	var wg sync.WaitGroup
	for range 8 {
		lim := limiterOn(t, st)
		wg.Go(func() {
			for range 20 {
				_, err := admin.New(lim).Namespaces.Create(t.Context(), "alpha")
				if err != nil && !errors.Is(err, weir.ErrExists) {
					t.Error(err)
				}
				err2 := admin.New(lim).Namespaces.Delete(t.Context(), "alpha")
				if err2 != nil && !errors.Is(err2, weir.ErrNotFound) {
					t.Error(err2)
				}
				_, err3 := admin.New(lim).Namespaces.Recover(t.Context(), "alpha")
				if err3 != nil {
					t.Error(err3)
				}
				mu.Lock()
				if err == nil {
					created++
				}
				if err2 == nil {
					deleted++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	counts := make(map[string]int)
	for _, e := range events(t, limiterOn(t, st), "namespace:alpha") {
		counts[e.action]++
	}
	if created != 1 || counts["namespace.create"] != 1 || counts["namespace.delete"] != deleted {
		t.Errorf("created %d, deleted %d, told %v", created, deleted, counts)
	}
}
