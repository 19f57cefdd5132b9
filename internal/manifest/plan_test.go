package manifest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
)

func seed(t *testing.T) *manifest.Manifest {
	t.Helper()
	text, err := os.ReadFile("testdata/good/seed.yaml")
	must(t, err)
	return decodeOne(t, string(text))
}

// TestLife takes the first manifest through everything that can happen to it.
func TestLife(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, st *faulty) {
		ctx := admin.WithPrincipal(t.Context(), "ann")
		m := seed(t)
		p := plan(t, lim, m)
		if !p.CreateNamespace || st.commits.Load() != 0 {
			t.Errorf("planning made %d commits", st.commits.Load())
		}
		want := "create system (loosens)\ncreate resource claude-3 (loosens)\ncreate resource gpt-4 (loosens)\n" +
			"create entity user-123 on other resources (loosens)\ncreate entity user-123 on gpt-4 (loosens)" // without limits so far, a decision was an error
		if diff := cmp.Diff(want, changes(p)); diff != "" {
			t.Error(diff)
		}
		res, err := manifest.Apply(ctx, lim, p, manifest.ApplyOptions{})
		must(t, err)
		if res.Created != 5 || !res.CreatedNamespace || res.Revision != 1 {
			t.Errorf("%+v", res)
		}
		alpha := lim.In("tenant-alpha")
		got, err := admin.New(alpha).Limits.Get(ctx, admin.Scope{Resource: "gpt-4"})
		must(t, err)
		if diff := cmp.Diff([]weir.Limit{weir.PerMinute("rpm", 1000), weir.PerMinute("tpm", 50_000).WithBurst(75_000)}, got.Limits); diff != "" {
			t.Error(diff)
		}

		// A second apply writes nothing.
		before := st.commits.Load()
		if res := apply(t, lim, m); res.Unchanged != 5 || st.commits.Load() != before {
			t.Errorf("applied again: %+v, %d commits", res, st.commits.Load()-before)
		}

		// By hand, one record is changed, one removed and one added.
		must(t, admin.New(alpha).Limits.Set(ctx, admin.Scope{Resource: "gpt-4"}, weir.PerMinute("rpm", 2000)))
		must(t, admin.New(alpha).Limits.Delete(ctx, admin.Scope{Resource: "claude-3"}))
		must(t, admin.New(alpha).Limits.Set(ctx, admin.Scope{Resource: "by-hand"}, weir.PerMinute("rpm", 1)))
		p = planWhole(t, lim, m)
		if diff := cmp.Diff("create resource claude-3 (loosens)\nupdate resource gpt-4 (tightens) outside", changes(p)); diff != "" || len(p.Unmanaged) != 1 || p.Unmanaged[0].Target != "resource by-hand" {
			t.Errorf("%s, not managed %q", diff, p.Unmanaged)
		}
		apply(t, lim, m)

		// Records taken out of the manifest are removed; records that were never in it stay.
		smaller := decodeOne(t, "namespace: tenant-alpha\nsystem: {limits: {rpm: {capacity: 10K}}}\n")
		p = plan(t, lim, smaller)
		want = "update system (loosens)\ndelete resource claude-3 (both)\ndelete resource gpt-4 (loosens)\n" +
			"delete entity user-123 on other resources (both)\ndelete entity user-123 on gpt-4 (loosens)"
		if diff := cmp.Diff(want, changes(p)); diff != "" {
			t.Error(diff)
		}
		res, err = manifest.Apply(ctx, lim, p, manifest.ApplyOptions{Keep: true})
		must(t, err)
		if res.Kept != 4 || res.Updated != 1 {
			t.Errorf("%+v", res)
		}
		if res = apply(t, lim, smaller); res.Deleted != 4 {
			t.Errorf("%+v", res)
		}

		// Roll back to the first revision.
		rev, text, err := admin.New(alpha).Manifests.Revision(ctx, "default", 1)
		must(t, err)
		if rev.By != "ann" || rev.Summary != "5 created, 0 updated, 0 deleted" {
			t.Errorf("%+v", rev)
		}
		if res = apply(t, lim, decodeOne(t, string(text))); res.Created != 4 || res.Updated != 1 {
			t.Errorf("%+v", res)
		}
		page, err := admin.New(alpha).Manifests.Revisions(ctx, admin.RevisionQuery{Manifest: "default", Max: 2})
		must(t, err)
		if len(page.Items) != 2 || page.Items[0].Hash != rev.Hash || page.Items[0].Revision <= page.Items[1].Revision {
			t.Errorf("%+v", page)
		}

		// After the manifest is emptied, only records made by hand remain.
		apply(t, lim, decodeOne(t, "namespace: tenant-alpha\n"))
		if diff := cmp.Diff("{\"\" \"by-hand\" \"\"} [rpm:1/min] \"\"\n", strings.Split(state(t, alpha), "default ")[0]); diff != "" {
			t.Error(diff)
		}
		audit, err := admin.New(alpha).Audit.List(ctx, admin.AuditQuery{Subject: "manifest:default", Max: 1})
		must(t, err)
		if len(audit.Items) != 1 || audit.Items[0].Action != "manifest.apply" || audit.Items[0].Principal != "unknown" {
			t.Errorf("%+v", audit)
		}
		audit, err = admin.New(alpha).Audit.List(ctx, admin.AuditQuery{Subject: "resource:claude-3"})
		must(t, err)
		if n := len(audit.Items); n == 0 || audit.Items[n-1].Principal != "ann" || audit.Items[n-1].Action != "limits.set" {
			t.Errorf("%+v", audit)
		}
	})
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, st *faulty) {
		ctx := t.Context()
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "same"}, weir.PerMinute("tpm", 5), weir.PerMinute("rpm", 5)))
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "other"}, weir.PerMinute("rpm", 5)))
		m := decodeOne(t, "namespace: default\nresources:\n  same: {limits: {rpm: {capacity: 5}, tpm: {capacity: 5}}}\n  other: {limits: {rpm: {capacity: 4}}}\n")
		p := plan(t, lim, m)
		if diff := cmp.Diff("adopt resource other (tightens)\nadopt resource same", changes(p)); diff != "" {
			t.Error(diff)
		}
		before := st.commits.Load()
		var config *weir.ConfigError
		if _, err := manifest.Apply(ctx, lim, p, manifest.ApplyOptions{}); !errors.As(err, &config) || st.commits.Load() != before {
			t.Errorf("unasked: %v, %d commits", err, st.commits.Load()-before)
		}
		if res := apply(t, lim, m); res.Adopted != 2 {
			t.Errorf("%+v", res)
		}
		if p := plan(t, lim, m); !p.Empty() {
			t.Error(changes(p))
		}
		// Another manifest cannot have these records.
		other := decodeOne(t, "namespace: default\nmanifest: b\nresources: {same: {limits: {rpm: {capacity: 5}}}}\n")
		_, err := manifest.Make(ctx, lim, other, manifest.PlanOptions{})
		var claimed *manifest.ClaimedError
		want := "resource same (test.yaml:3) is managed by manifest default: declare it in one of the two, or move it here with moved: {from: [default]}"
		if !errors.As(err, &claimed) || err.Error() != want {
			t.Errorf("%v", err)
		}
		var many strings.Builder
		many.WriteString("namespace: default\nmanifest: c\nresources:\n")
		for i := range 300 {
			fmt.Fprintf(&many, "  r%03d: {limits: {rpm: {capacity: 5}}}\n", i)
		}
		taken, lim := decodeOne(t, many.String()), lim.In("many")
		taken.Namespace = "many"
		apply(t, lim, taken)
		taken.Name = "d"
		_, err = manifest.Make(ctx, lim, taken, manifest.PlanOptions{})
		if text := fmt.Sprint(err); len(text) > 1000 || !errors.As(err, &claimed) || len(claimed.Claims) != 300 ||
			!strings.HasPrefix(text, "300 records that manifest d declares are managed by others, such as resource r000 (test.yaml:4) by manifest c: ") {
			t.Errorf("%.2000s", text)
		}
		lim = lim.In("default")
		// An edit by hand keeps the mark of the manifest.
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "same"}, weir.PerMinute("rpm", 9)))
		if got := changes(plan(t, lim, m)); got != "update resource same (tightens) outside" {
			t.Error(got)
		}
	})
}

// A saved plan is applied as it was shown, or not at all.
func TestSaved(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		ctx := t.Context()
		again := func(m *manifest.Manifest) (*manifest.Plan, error) {
			return manifest.Make(ctx, lim, m, manifest.PlanOptions{})
		}
		text, err := manifest.Save([]*manifest.Plan{plan(t, lim, seed(t))})
		must(t, err)
		plans, err := manifest.Load(text, "plan.json", again)
		must(t, err)
		_, err = manifest.Apply(ctx, lim, plans[0], manifest.ApplyOptions{})
		must(t, err)
		if _, err := manifest.Load(text, "plan.json", again); !errors.Is(err, weir.ErrConflict) {
			t.Errorf("applied already: %v", err)
		}
		m := decodeOne(t, "namespace: tenant-alpha\nresources: {gpt-4: {limits: {rpm: {capacity: 7}}}}\n")
		text, err = manifest.Save([]*manifest.Plan{plan(t, lim, m)})
		must(t, err)
		must(t, admin.New(lim.In("tenant-alpha")).Limits.Set(ctx, admin.Scope{Resource: "gpt-4"}, weir.PerMinute("rpm", 8)))
		if _, err := manifest.Load(text, "plan.json", again); !errors.Is(err, weir.ErrConflict) {
			t.Errorf("changed by hand: %v", err)
		}
		if _, err := manifest.Load([]byte("namespace: a"), "x.yaml", again); err == nil || !strings.Contains(err.Error(), "not a saved plan") {
			t.Errorf("not a plan: %v", err)
		}
	})
}

// A record that changes between plan and apply is not overwritten. The rest is applied, and the result shows it.
func TestMoved(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		ctx := t.Context()
		m := decodeOne(t, "namespace: default\nresources: {a: {limits: {rpm: {capacity: 1}}}, b: {limits: {rpm: {capacity: 2}}}}\n")
		p := plan(t, lim, m)
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "a"}, weir.PerMinute("rpm", 9)))
		res, err := manifest.Apply(ctx, lim, p, manifest.ApplyOptions{})
		if failed, ok := errors.AsType[*manifest.FailedError](err); !ok || !errors.Is(err, weir.ErrConflict) || failed.Failed != 1 || res.Created != 1 || res.Failed[0].Target != "resource a" {
			t.Errorf("%+v, %v", res, err)
		}
		state, err := admin.New(lim).Manifests.State(ctx, "default")
		must(t, err)
		if rev := state.Last; rev.Revision != 0 {
			t.Errorf("recorded as done: %+v", rev)
		}
		if got := changes(plan(t, lim, m)); got != "adopt resource a (tightens)" {
			t.Error(got)
		}
	})
}

func TestEntities(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		ctx := t.Context()
		tree := decodeOne(t, "namespace: default\nentities:\n  a: {}\n  b: {parent: a, cascade: true}\n  c: {parent: b}\n  lone: {name: Lone}\n")
		apply(t, lim, tree)
		// Turn the chain upside down in one apply.
		turned := decodeOne(t, "namespace: default\nentities:\n  c: {}\n  b: {parent: c}\n  a: {parent: b, metadata: {x: y}}\n")
		p := plan(t, lim, turned)
		if diff := cmp.Diff("update entity c\nupdate entity b (loosens)\nupdate entity a\ndelete entity lone", changes(p)); diff != "" {
			t.Error(diff)
		}
		apply(t, lim, turned)
		if p := plan(t, lim, turned); !p.Empty() {
			t.Error(changes(p))
		}
		a, err := admin.New(lim).Entities.Get(ctx, "a")
		must(t, err)
		if a.Parent != "b" || a.Metadata["x"] != "y" || a.Created.IsZero() {
			t.Errorf("%+v", a)
		}
		for text, want := range map[string]string{
			"entities: {c: {}, b: {parent: c}, a: {parent: none}}": `entity a (test.yaml:2) has parent none, which neither exists nor is declared`,
			"entities: {b: {}}": "",
		} {
			_, err := manifest.Make(ctx, lim, decodeOne(t, "namespace: default\n"+text), manifest.PlanOptions{})
			if got := errText(err); got != want {
				t.Errorf("%s: %s", text, got)
			}
		}
		// An entity with a child that was added by hand stays.
		must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "hand", Parent: "a"}))
		_, err = manifest.Make(ctx, lim, decodeOne(t, "namespace: default"), manifest.PlanOptions{})
		if got := errText(err); got != "entity hand has parent a, which neither exists nor is declared" {
			t.Error(got)
		}
		must(t, admin.New(lim).Entities.Delete(ctx, "hand", admin.DeleteOptions{}))
		if res := apply(t, lim, decodeOne(t, "namespace: default")); res.Deleted != 3 {
			t.Errorf("%+v", res)
		}
	})
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A parent that gets a child while it is being removed stays, and an apply does not fail over records that it does not
// change.
func TestChildAppears(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		ctx := t.Context()
		apply(t, lim, decodeOne(t, "namespace: default\nentities: {a: {}, b: {}}"))
		p := plan(t, lim, decodeOne(t, "namespace: default"))
		must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "child", Parent: "a"}))
		res, err := manifest.Apply(ctx, lim, p, manifest.ApplyOptions{})
		if err == nil || res.Deleted != 1 || len(res.Failed) != 1 || !strings.Contains(err.Error(), `including "child"`) {
			t.Errorf("%+v %v", res, err)
		}
		if err := admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "child2", Parent: "a"}); err != nil {
			t.Errorf("the parent that stays takes no children: %v", err)
		}
	})
}

func TestLocked(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		ctx := admin.WithPrincipal(t.Context(), "bob")
		_, err := admin.New(lim).Namespaces.Create(ctx, "tenant-alpha")
		must(t, err)
		m := seed(t)
		p := plan(t, lim, m)
		lock, err := admin.New(lim.In("tenant-alpha")).Manifests.Lock(ctx, "default", 30e9)
		must(t, err)
		_, err = manifest.Apply(ctx, lim, p, manifest.ApplyOptions{})
		var held *admin.LockedError
		if !errors.As(err, &held) || held.By != "bob" || !errors.Is(err, manifest.ErrNotBegun) {
			t.Errorf("locked: %v", err)
		}
		must(t, lock.Release(ctx))
		apply(t, lim, m)
		if _, err = manifest.Apply(ctx, lim, p, manifest.ApplyOptions{}); !errors.Is(err, weir.ErrConflict) || !errors.Is(err, manifest.ErrNotBegun) {
			t.Errorf("a plan that another apply overtook: %v", err)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := manifest.Apply(ended, lim, plan(t, lim, decodeOne(t, "namespace: tenant-alpha")), manifest.ApplyOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}
