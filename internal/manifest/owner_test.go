package manifest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/gates"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

const sharedText = `namespace: default
plans: {gold: {default: {limits: {rpm: 9/min}}}}
resources: {a: {limits: {rpm: 1/min}}, b: {limits: {rpm: 2/min}}}
entities: {org: {}, ann: {parent: org, plan: gold, resources: {a: {limits: {rpm: 5/min}}}}}
`

// decodeAll decodes files together.
func decodeAll(t testing.TB, texts ...string) map[string]*manifest.Manifest {
	t.Helper()
	sources := make([]strictyaml.Source, len(texts))
	for i, text := range texts {
		sources[i] = strictyaml.Source{Name: fmt.Sprintf("%d.yaml", i), Text: []byte(text)}
	}
	ms, err := manifest.Decode(sources, strictyaml.Options{})
	must(t, err)
	all := make(map[string]*manifest.Manifest)
	for _, m := range ms {
		all[m.Name] = m
	}
	return all
}

// managers lists which manifest manages each record, with its limits.
func managers(t testing.TB, lim *weir.Limiter) string {
	t.Helper()
	page, err := admin.New(lim).Manifests.Declarable(t.Context(), admin.DeclaredQuery{Max: 1000})
	must(t, err)
	var b strings.Builder
	for page.Next != "" || len(page.Items) > 0 {
		for _, d := range page.Items {
			name := "-"
			if by := d.Managed(); by != nil {
				name = by.Manifest
			}
			if d.Entity != nil {
				fmt.Fprintf(&b, "entity %s: %s\n", d.Entity.ID, name)
			} else {
				fmt.Fprintf(&b, "%s%s %s %v: %s\n", d.Limits.Scope.Plan, d.Limits.Scope.Entity, d.Limits.Scope.Resource, d.Limits.Limits, name)
			}
		}
		if page.Next == "" {
			break
		}
		page, err = admin.New(lim).Manifests.Declarable(t.Context(), admin.DeclaredQuery{Max: 1000, After: page.Next})
		must(t, err)
	}
	return b.String()
}

// Records move to another manifest: the plan has them as moves, each is one write, and the manifest that they came from
// deletes none of them, whichever is applied first.
func TestMove(t *testing.T) {
	t.Parallel()
	const rest = "namespace: default\nresources: {a: {limits: {rpm: 1/min}}}\nentities: {org: {}}\n"
	const taken = "namespace: default\nmanifest: team\nmoved: {from: [default]}\nplans: {gold: {default: {limits: {rpm: 9/min}}}}\n" +
		"resources: {b: {limits: {rpm: 3/min}}}\nentities: {ann: {parent: org, plan: gold, resources: {a: {limits: {rpm: 5/min}}}}}\n"
	for _, first := range []string{"team", manifest.DefaultName} {
		onStores(t, func(t *testing.T, lim *weir.Limiter, st *faulty) {
			apply(t, lim, decodeOne(t, sharedText))
			all := decodeAll(t, rest, taken)
			to, from := plan(t, lim, all["team"]), plan(t, lim, all[manifest.DefaultName])
			want := "move plan gold\nmove entity ann\nmove resource b (loosens)\nmove entity ann on a"
			if diff := cmp.Diff(want, changes(to)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]manifest.Giver{{Manifest: "default", Moved: 4, Left: 2}}, to.Givers); diff != "" {
				t.Error(diff)
			}
			if c := to.Changes[0]; c.Manager != "default" || len(from.Changes) > 0 {
				t.Errorf("moves from %q; the other's plan: %s", c.Manager, changes(from))
			}
			ps := []*manifest.Plan{to, from}
			if first != "team" {
				slices.Reverse(ps)
			}
			before := st.written.Load()
			for _, p := range ps {
				_, err := manifest.Apply(t.Context(), lim, p, manifest.ApplyOptions{})
				must(t, err)
			}
			if n := st.written.Load() - before; n != 4 {
				t.Errorf("moving 4 records wrote %d", n)
			}
			after := "gold  [rpm:9/min]: team\n a [rpm:1/min]: default\n b [rpm:3/min]: team\n" +
				"entity ann: team\nentity org: default\nann a [rpm:5/min]: team\n"
			if diff := cmp.Diff(after, managers(t, lim)); diff != "" {
				t.Error(diff)
			}
			// Both are as declared, also by themselves, and the key may stay.
			for _, m := range []*manifest.Manifest{decodeOne(t, rest), decodeOne(t, taken)} {
				if p := plan(t, lim, m); !p.Empty() || len(p.Givers) > 0 {
					t.Error(changes(p))
				}
			}
			// The manifest that gave them away cannot take them back without a word.
			_, err := manifest.Make(t.Context(), lim, decodeOne(t, sharedText), manifest.PlanOptions{})
			if claimed, ok := errors.AsType[*manifest.ClaimedError](err); !ok || len(claimed.Claims) != 4 {
				t.Error(err)
			}
		})
	}
}

// A saved plan of both sides of a move is applied as it was made.
func TestMoveSaved(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		apply(t, lim, decodeOne(t, sharedText))
		all := decodeAll(t, "namespace: default\n", strings.Replace(sharedText, "\n", "\nmanifest: new\nmoved: {from: [default]}\n", 1))
		var plans []*manifest.Plan
		for _, name := range []string{"default", "new"} {
			plans = append(plans, plan(t, lim, all[name]))
		}
		text, err := manifest.Save(plans)
		must(t, err)
		loaded, err := manifest.Load(text, "plan.json", func(m *manifest.Manifest) (*manifest.Plan, error) {
			return manifest.Make(t.Context(), lim, m, manifest.PlanOptions{})
		})
		must(t, err)
		for _, p := range loaded {
			_, err := manifest.Apply(t.Context(), lim, p, manifest.ApplyOptions{})
			must(t, err)
		}
		if got := managers(t, lim); strings.Count(got, ": new\n") != 6 || strings.Contains(got, "default") {
			t.Error(got)
		}
	})
}

// What a program plans that read only one side is refused, because it would delete what is to move.
func TestMoveApart(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		apply(t, lim, decodeOne(t, sharedText))
		all := decodeAll(t, "namespace: default\n", "namespace: default\nmanifest: new\nmoved: {from: [default]}\nresources: {a: {limits: {rpm: 1/min}}}\n")
		apart := plan(t, lim, decodeOne(t, "namespace: default\n"))
		_, err := apart.Of(all["default"], "body")
		if err == nil || err.Error() != "resource a moves from manifest default to manifest new: apply new first, by itself" {
			t.Error(err)
		}
		apply(t, lim, all["new"])
		if _, err := plan(t, lim, decodeOne(t, "namespace: default\n")).Of(all["default"], "body"); err != nil {
			t.Error(err)
		}
	})
}

// A manifest is released: its records stay, and no manifest manages them. They can be adopted.
func TestRelease(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		apply(t, lim, decodeOne(t, sharedText))
		before := managers(t, lim)
		p := plan(t, lim, decodeOne(t, "namespace: default\nremoved: keep\nresources: {a: {limits: {rpm: 1/min}}}\n"))
		want := "release plan gold\nrelease entity org\nrelease entity ann\nrelease resource b\nrelease entity ann on a"
		if diff := cmp.Diff(want, changes(p)); diff != "" {
			t.Error(diff)
		}
		res, err := manifest.Apply(t.Context(), lim, p, manifest.ApplyOptions{Keep: true})
		if must(t, err); res.Released != 5 || res.Deleted != 0 || res.Kept != 0 {
			t.Errorf("%+v", res)
		}
		after := strings.ReplaceAll(strings.Replace(before, " a [rpm:1/min]: default", "*", 1), ": default", ": -")
		if diff := cmp.Diff(strings.Replace(after, "*", " a [rpm:1/min]: default", 1), managers(t, lim)); diff != "" {
			t.Error(diff)
		}
		state, err := admin.New(lim).Manifests.State(t.Context(), "default")
		if must(t, err); len(state.Managed) != 1 {
			t.Errorf("it still lists %v", state.Managed)
		}
		audit, err := admin.New(lim).Audit.List(t.Context(), admin.AuditQuery{Subject: "resource:b", Max: 1})
		if must(t, err); audit.Items[0].Action != "limits.release" {
			t.Error(audit.Items[0].Action)
		}
		audit, err = admin.New(lim).Audit.List(t.Context(), admin.AuditQuery{Subject: "entity:org", Max: 1})
		if must(t, err); audit.Items[0].Action != "entity.release" {
			t.Error(audit.Items[0].Action)
		}
		if p := plan(t, lim, decodeOne(t, "namespace: default\nresources: {a: {limits: {rpm: 1/min}}}\n")); !p.Empty() {
			t.Error(changes(p))
		}
		if p := plan(t, lim, decodeOne(t, sharedText)); p.Count(manifest.Adopt) != 5 {
			t.Error(changes(p))
		}
	})
}

// Records do not move from a manifest that is being rolled out, and records that move can be rolled out, and back.
func TestMoveInStages(t *testing.T) {
	t.Parallel()
	const old = "namespace: default\nresources: {a: {limits: {rpm: 60/min}}, b: {limits: {rpm: 60/min}}}\n"
	const taken = "namespace: default\nmanifest: new\nmoved: {from: [default]}\nresources: {a: {limits: {rpm: 6/min}}}\n"
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		apply(t, lim, decodeOne(t, old))
		closed := errors.New("too many refused")
		roll := func(m string, check func() error) error {
			_, err := manifest.Rollout(t.Context(), lim, plan(t, lim, decodeOne(t, m)), manifest.RolloutOptions{
				Terms: &manifest.Terms{Stages: []int{10}, Bake: 50 * time.Millisecond},
				Gate: func(context.Context, manifest.Terms) (gates.Gate, error) {
					return checked{check}, nil
				},
			})
			return err
		}
		before := managers(t, lim)
		err := roll(taken, func() error {
			got, err := admin.New(lim).Limits.Get(t.Context(), admin.Scope{Resource: "a"})
			must(t, err)
			if l := got.Limits[0]; got.Managed.Manifest != "new" || l.Enforce != 10 || l.Former != weir.PerMinute("", 60).Rate() {
				t.Errorf("in the stage: %+v", l)
			}
			return closed
		})
		if after := managers(t, lim); !errors.Is(err, closed) || after != before {
			t.Errorf("%v: %s", err, cmp.Diff(before, after))
		}
		err = roll(strings.Replace(old, "60", "6", 2), func() error {
			_, err := manifest.Make(t.Context(), lim, decodeOne(t, taken), manifest.PlanOptions{})
			if err == nil || !strings.Contains(err.Error(), "a rollout of manifest default is unfinished, at 10%: let it end before") {
				t.Error(err)
			}
			return closed
		})
		if !errors.Is(err, closed) {
			t.Error(err)
		}
		must(t, roll(taken, func() error { return nil }))
		if got := managers(t, lim); got != " a [rpm:6/min]: new\n b [rpm:60/min]: default\n" {
			t.Error(got)
		}
	})
}

type checked struct{ check func() error }

func (checked) Open(context.Context, int) (bool, error)            { return true, nil }
func (checked) Begin(context.Context, int) error                   { return nil }
func (g checked) Check(_ context.Context, last bool) (bool, error) { return last, g.check() }

// An interrupted move leaves each record with one manifest, and applying again does the rest.
func TestMoveInterrupted(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, st *faulty) {
		var text strings.Builder
		text.WriteString("namespace: default\nresources:\n")
		for i := range 100 {
			fmt.Fprintf(&text, "  r%d: {limits: {rpm: 1/min}}\n", i)
		}
		apply(t, lim, decodeOne(t, text.String()))
		all := decodeAll(t, "namespace: default\n", strings.Replace(text.String(), "\n", "\nmanifest: new\nmoved: {from: [default]}\n", 1))
		p := plan(t, lim, all["new"])
		st.failAt = st.commits.Load() + 4 // the lock, the list, and one step of it
		_, err := manifest.Apply(t.Context(), lim, p, manifest.ApplyOptions{})
		if err == nil {
			t.Fatal("it did not fail")
		}
		st.failAt = 0
		got := managers(t, lim)
		if moved, left := strings.Count(got, ": new\n"), strings.Count(got, ": default\n"); moved+left != 100 || left == 0 {
			t.Errorf("%d moved, %d did not", moved, left)
		}
		if p := plan(t, lim, all["default"]); !p.Empty() {
			t.Error(changes(p))
		}
		res, err := manifest.Apply(t.Context(), lim, plan(t, lim, all["new"]), manifest.ApplyOptions{Wait: time.Minute})
		must(t, err)
		if got := managers(t, lim); strings.Count(got, ": new\n") != 100 {
			t.Errorf("%+v\n%s", res, got)
		}
	})
}

// A document for several namespaces declares the same in each.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	const text = "namespaces: [blue, green]\nresources: {a: {limits: {rpm: 5/min}}}\n---\nnamespace: green\nresources: {b: {limits: {rpm: 1/min}}}\n"
	ms, err := manifest.Decode([]strictyaml.Source{{Name: "f.yaml", Text: []byte(text)}}, strictyaml.Options{})
	must(t, err)
	got := make([]string, len(ms))
	for i, m := range ms {
		got[i] = string(m.Source())
	}
	want := []string{
		"namespace: blue\nresources:\n  a:\n    limits:\n      rpm: {capacity: 5}\n",
		"namespace: green\nresources:\n  a:\n    limits:\n      rpm: {capacity: 5}\n  b:\n    limits:\n      rpm: {capacity: 1}\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		for _, m := range ms {
			apply(t, lim, m)
		}
		if blue, green := managers(t, lim.In("blue")), managers(t, lim.In("green")); blue != " a [rpm:5/min]: default\n" || green != blue+" b [rpm:1/min]: default\n" {
			t.Errorf("%s\n%s", blue, green)
		}
		// A revision is of one namespace, so that a rollback is, too.
		_, text, err := admin.New(lim.In("blue")).Manifests.Revision(t.Context(), "default", 1)
		if must(t, err); string(text) != want[0] {
			t.Error(string(text))
		}
	})
}

// Namespaces times records is bounded, because a short text can make many.
func TestNamespacesBounded(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("namespaces: [n0")
	for i := range 999 {
		fmt.Fprintf(&text, ", n%d", i+1)
	}
	text.WriteString("]\nresources:\n")
	for i := range 501 {
		fmt.Fprintf(&text, "  r%d: {limits: {rpm: 1/min}}\n", i)
	}
	_, err := manifest.Decode([]strictyaml.Source{{Name: "f.yaml", Text: []byte(text.String())}}, strictyaml.Options{})
	if err == nil || !strings.Contains(err.Error(), "f.yaml:503:3: for 1000 namespaces, there are more than 500000 records") {
		t.Error(err)
	}
}

// Two manifests that take the same records from each other at once lose none: each record is as one of them declares it,
// and managed by that one. What an apply cannot do is a conflict, and who applies last has all.
func TestMoveToAndFro(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		const n = 20
		texts := make(map[string]string)
		for name, from := range map[string]string{"left": "right", "right": "left"} {
			var b strings.Builder
			fmt.Fprintf(&b, "namespace: default\nmanifest: %s\nmoved: {from: [%s]}\nresources:\n", name, from)
			for i := range n {
				fmt.Fprintf(&b, "  r%02d: {limits: {rpm: %d/min}}\n", i, len(name)) // 4 or 5
			}
			texts[name] = b.String()
		}
		declares := map[string]string{"left": "[rpm:4/min]", "right": "[rpm:5/min]"}
		consistent := func() {
			lines := strings.Split(strings.TrimSpace(managers(t, lim)), "\n")
			for _, line := range lines {
				at, by, _ := strings.Cut(line, ": ")
				if _, limits, _ := strings.Cut(at, "["); declares[by] != "["+limits {
					t.Errorf("%s", line)
				}
			}
			if len(lines) != n {
				t.Errorf("%d records", len(lines))
			}
		}
		apply(t, lim, decodeOne(t, texts["left"]))
		var all sync.WaitGroup
		for _, name := range []string{"left", "right", "left", "right"} {
			m := decodeOne(t, texts[name])
			all.Go(func() {
				for range 10 {
					p, err := manifest.Make(t.Context(), lim, m, manifest.PlanOptions{})
					if err == nil {
						_, err = manifest.Apply(t.Context(), lim, p, manifest.ApplyOptions{Wait: time.Minute})
					}
					if err != nil && !errors.Is(err, weir.ErrConflict) {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
		all.Wait()
		consistent()
		for _, name := range []string{"left", "right"} {
			apply(t, lim, decodeOne(t, texts[name]))
			consistent()
			for _, of := range []string{"left", "right"} {
				state, err := admin.New(lim).Manifests.State(t.Context(), of)
				must(t, err)
				p := plan(t, lim, decodeOne(t, texts[of]))
				if want := of == name; p.Empty() != want || want && len(state.Managed) != n {
					t.Errorf("after %s, %s: %d managed, %s", name, of, len(state.Managed), changes(p))
				}
			}
		}
	})
}

// A rename that was planned before a rollout of the old name began takes nothing that is staged: the rollout can still be
// rolled back, and the rename then be done.
func TestRenameInRollout(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		const old = "namespace: default\nresources: {a: {limits: {rpm: 100/min}}, b: {limits: {rpm: 2/min}}}\n"
		apply(t, lim, decodeOne(t, old))
		renamed := decodeOne(t, strings.Replace(old, "\n", "\nmanifest: new\nmoved: {from: [default]}\n", 1))
		rename := plan(t, lim, renamed)
		tightened := decodeOne(t, strings.Replace(old, "100/min", "50/min", 1))
		step := func(s manifest.Step) error {
			s.Terms = manifest.Terms{Stages: []int{10}, Bake: time.Minute}
			_, err := manifest.Rollout(t.Context(), lim, plan(t, lim, tightened), manifest.RolloutOptions{Step: &s})
			return err
		}
		must(t, step(manifest.Step{Percent: 10}))
		if _, err := manifest.Apply(t.Context(), lim, rename, manifest.ApplyOptions{}); !errors.Is(err, weir.ErrConflict) {
			t.Errorf("renamed during the rollout: %v", err)
		}
		if _, err := manifest.Make(t.Context(), lim, renamed, manifest.PlanOptions{}); err == nil || !strings.Contains(err.Error(), "unfinished") {
			t.Errorf("planned during the rollout: %v", err)
		}
		var stopped *manifest.StoppedError
		err := step(manifest.Step{Percent: 10, Begun: true, Abort: "enough"})
		if !errors.As(err, &stopped) || stopped.Restore != nil {
			t.Fatal(err)
		}
		apply(t, lim, renamed)
		if diff := cmp.Diff(" a [rpm:100/min]: new\n b [rpm:2/min]: new\n", managers(t, lim)); diff != "" {
			t.Error(diff)
		}
	})
}
