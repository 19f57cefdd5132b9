package admin_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

func TestEntity(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	for _, id := range oddIDs {
		want := admin.Entity{ID: id, Name: "n", Cascade: true, Metadata: map[string]string{id: "line\nbreak"}}
		must(t, admin.New(lim).Entities.Create(ctx, want))
		got, err := admin.New(lim).Entities.Get(ctx, id)
		must(t, err)
		if since := time.Since(got.Created); since < 0 || since > time.Minute {
			t.Errorf("created %v ago", since)
		}
		got.Created = time.Time{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: (-want +got)\n%s", id, diff)
		}
		if err := admin.New(lim).Entities.Create(ctx, want); !errors.Is(err, weir.ErrExists) || !strings.Contains(err.Error(), fmt.Sprintf("%q", id)) {
			t.Errorf("%q again: %v", id, err)
		}
	}
}

func TestEntityRefuses(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "e"}))
	for name, id := range badIDs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantConfigError(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: id}), "entity")
			wantConfigError(t, admin.New(lim).Entities.Delete(ctx, id, admin.DeleteOptions{}), "entity")
			_, err := admin.New(lim).Entities.Get(ctx, id)
			wantConfigError(t, err, "entity")
			_, err = admin.New(lim).Entities.Update(ctx, id, admin.EntityUpdate{})
			wantConfigError(t, err, "entity")
			if id == "" {
				return // no parent
			}
			wantConfigError(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "new", Parent: id}), "parent")
			_, err = admin.New(lim).Entities.Update(ctx, "e", admin.EntityUpdate{Parent: &id})
			wantConfigError(t, err, "parent")
			_, err = admin.New(lim).Entities.List(ctx, admin.EntityQuery{Parent: id})
			wantConfigError(t, err, "parent")
		})
	}
	for name, tt := range map[string]struct {
		entity admin.Entity
		field  string
	}{
		"missing parent":     {admin.Entity{Parent: "nobody"}, "parent"},
		"its own parent":     {admin.Entity{Parent: "e"}, "parent"},
		"long name":          {admin.Entity{Name: strings.Repeat("x", 257)}, "name"},
		"name of two lines":  {admin.Entity{Name: "a\nb"}, "name"},
		"invalid name":       {admin.Entity{Name: "\xff"}, "name"},
		"much metadata":      {admin.Entity{Metadata: map[string]string{"k": strings.Repeat("x", 16<<10)}}, "metadata"},
		"empty key":          {admin.Entity{Metadata: map[string]string{"": "v"}}, "metadata"},
		"key with a control": {admin.Entity{Metadata: map[string]string{"\x00": "v"}}, "metadata"},
		"invalid value":      {admin.Entity{Metadata: map[string]string{"k": "\xff"}}, "metadata.k"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := admin.EntityUpdate{Name: &tt.entity.Name, Parent: &tt.entity.Parent, Metadata: tt.entity.Metadata}
			_, err := admin.New(lim).Entities.Update(ctx, "e", u)
			wantConfigError(t, err, tt.field)
			tt.entity.ID = "new"
			if tt.entity.Parent == "e" {
				tt.entity.ID = "e"
			}
			wantConfigError(t, admin.New(lim).Entities.Create(ctx, tt.entity), tt.field)
		})
	}
	t.Cleanup(func() { // after all subtests
		page, err := admin.New(lim).Entities.List(context.Background(), admin.EntityQuery{})
		if err != nil || len(page.Items) != 1 {
			t.Errorf("entities %v, error %v", page.Items, err)
		}
	})
}

func TestEntityMissing(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	for name, l := range map[string]*weir.Limiter{"entity": lim, "namespace": lim.In("nowhere")} {
		_, err := admin.New(l).Entities.Get(ctx, "nobody")
		_, err2 := admin.New(l).Entities.Update(ctx, "nobody", admin.EntityUpdate{Name: new("x")})
		err3 := admin.New(l).Entities.Delete(ctx, "nobody", admin.DeleteOptions{})
		for i, err := range []error{err, err2, err3} {
			if !errors.Is(err, weir.ErrNotFound) {
				t.Errorf("%s, call %d: %v", name, i, err)
			}
		}
	}
	if err := admin.New(lim.In("nowhere")).Entities.Create(ctx, admin.Entity{ID: "e"}); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("create: %v", err)
	}
	if got := events(t, lim, ""); got != nil {
		t.Errorf("events %v", got)
	}
}

func TestUpdateEntity(t *testing.T) {
	t.Parallel()
	base := admin.Entity{ID: "e", Name: "n", Parent: "p", Cascade: true, Metadata: map[string]string{"k": "v"}}
	for name, tt := range map[string]struct {
		update admin.EntityUpdate
		want   func(*admin.Entity)
		events int
	}{
		"nothing":        {admin.EntityUpdate{}, func(*admin.Entity) {}, 0},
		"the same":       {admin.EntityUpdate{Name: new("n"), Parent: new("p"), Cascade: new(true), Metadata: base.Metadata}, func(*admin.Entity) {}, 0},
		"name":           {admin.EntityUpdate{Name: new("m")}, func(e *admin.Entity) { e.Name = "m" }, 1},
		"no name":        {admin.EntityUpdate{Name: new("")}, func(e *admin.Entity) { e.Name = "" }, 1},
		"parent":         {admin.EntityUpdate{Parent: new("q")}, func(e *admin.Entity) { e.Parent = "q" }, 1},
		"no parent":      {admin.EntityUpdate{Parent: new("")}, func(e *admin.Entity) { e.Parent = "" }, 1},
		"cascade":        {admin.EntityUpdate{Cascade: new(false)}, func(e *admin.Entity) { e.Cascade = false }, 1},
		"metadata":       {admin.EntityUpdate{Metadata: map[string]string{"x": "y"}}, func(e *admin.Entity) { e.Metadata = map[string]string{"x": "y"} }, 1},
		"empty metadata": {admin.EntityUpdate{Metadata: map[string]string{}}, func(e *admin.Entity) { e.Metadata = nil }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lim, ctx := memoryLimiter(t), t.Context()
			must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "p"}))
			must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "q"}))
			must(t, admin.New(lim).Entities.Create(ctx, base))
			born, err := admin.New(lim).Entities.Get(ctx, "e")
			must(t, err)
			returned, err := admin.New(lim).Entities.Update(ctx, "e", tt.update)
			must(t, err)
			stored, err := admin.New(lim).Entities.Get(ctx, "e")
			must(t, err)
			want := base
			want.Created = born.Created
			tt.want(&want)
			if len(returned.Metadata) == 0 {
				returned.Metadata = nil
			}
			if diff := cmp.Diff([]admin.Entity{want, want}, []admin.Entity{returned, stored}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if got := len(events(t, lim, "entity:e")) - 1; got != tt.events {
				t.Errorf("%d events, want %d", got, tt.events)
			}
			children := map[string][]string{"p": nil, "q": nil}
			if want.Parent != "" {
				children[want.Parent] = []string{"e"}
			}
			for p, c := range children {
				if got := ids(t, lim, p); !slices.Equal(got, c) {
					t.Errorf("children of %s: %q, want %q", p, got, c)
				}
			}
		})
	}
}

// ids returns the IDs of a parent's children, or of all entities.
func ids(tb testing.TB, lim *weir.Limiter, parent string) []string {
	tb.Helper()
	var out []string
	for q := (admin.EntityQuery{Parent: parent, Max: 2}); ; {
		page, err := admin.New(lim).Entities.List(tb.Context(), q)
		must(tb, err)
		if len(page.Items) > q.Max {
			tb.Errorf("a page of %d", len(page.Items))
		}
		for _, e := range page.Items {
			out = append(out, e.ID)
		}
		if q.After = page.Next; q.After == "" {
			return out
		}
	}
}

func TestEntities(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	for i, id := range oddIDs {
		e := admin.Entity{ID: id}
		if i > 0 {
			e.Parent = oddIDs[0]
		}
		must(t, admin.New(lim).Entities.Create(ctx, e))
	}
	want := slices.Sorted(slices.Values(oddIDs))
	if got := ids(t, lim, ""); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	want = slices.Sorted(slices.Values(oddIDs[1:]))
	if got := ids(t, lim, oddIDs[0]); !slices.Equal(got, want) {
		t.Errorf("children: got %q, want %q", got, want)
	}
	if got := ids(t, lim, "nobody"); got != nil {
		t.Errorf("children of nobody: %q", got)
	}
	for _, prefix := range append([]string{"", "_", "none"}, oddIDs...) { // these are invalid as IDs, but valid as prefixes
		want := slices.DeleteFunc(slices.Sorted(slices.Values(oddIDs)), func(id string) bool { return !strings.HasPrefix(id, prefix) })
		page, err := admin.New(lim).Entities.List(ctx, admin.EntityQuery{Prefix: prefix})
		must(t, err)
		if !slices.EqualFunc(page.Items, want, func(e admin.Entity, id string) bool { return e.ID == id }) {
			t.Errorf("that begin with %q: got %v, want %q", prefix, page.Items, want)
		}
	}
	for _, prefix := range []string{"\x00", "\xff", strings.Repeat("x", 257)} {
		_, err := admin.New(lim).Entities.List(ctx, admin.EntityQuery{Prefix: prefix})
		wantConfigError(t, err, "prefix")
	}
	_, err := admin.New(lim).Entities.List(ctx, admin.EntityQuery{After: "?"})
	if !errors.Is(err, weir.ErrBadCursor) {
		t.Errorf("cursor: %v", err)
	}
	_, err = admin.New(lim).Entities.List(ctx, admin.EntityQuery{Max: -1})
	wantConfigError(t, err, "max")
}

// A change of an entity's parent or cascade affects at once which entities are charged.
func TestCascadeFollowsAtOnce(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "r"}, weir.PerHour("rph", 10)))
	charged := func(want ...string) {
		t.Helper()
		lease, err := lim.Acquire(ctx, weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"rph": 1}})
		must(t, err)
		var got []string
		for _, s := range lease.Decision().Statuses {
			got = append(got, s.Entity)
		}
		if !slices.Equal(got, want) {
			t.Errorf("charged %q, want %q", got, want)
		}
	}
	update := func(id string, u admin.EntityUpdate) {
		t.Helper()
		_, err := admin.New(lim).Entities.Update(ctx, id, u)
		must(t, err)
	}
	charged("e") // never created
	must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "top"}))
	must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "p", Parent: "top"}))
	must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "q"}))
	must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "e", Parent: "p"}))
	charged("e")
	update("e", admin.EntityUpdate{Cascade: new(true)})
	charged("e", "p")
	update("p", admin.EntityUpdate{Cascade: new(true)})
	charged("e", "p", "top")
	update("e", admin.EntityUpdate{Parent: new("q")})
	charged("e", "q")
	update("e", admin.EntityUpdate{Parent: new("")})
	charged("e")
	update("e", admin.EntityUpdate{Parent: new("p")})
	charged("e", "p", "top")
	must(t, admin.New(lim).Entities.Delete(ctx, "e", admin.DeleteOptions{}))
	charged("e")
}

// If several callers create the same ID at once, one succeeds.
func TestConcurrentCreate(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	var mu sync.Mutex
	won := make(map[string]int)
	var wg sync.WaitGroup
	for i := range 8 {
		lim := limiterOn(t, st)
		wg.Go(func() {
			for j := range 20 {
				err := admin.New(lim).Entities.Create(t.Context(), admin.Entity{ID: fmt.Sprint("e", j), Name: fmt.Sprint(i)})
				mu.Lock()
				switch {
				case err == nil:
					won[fmt.Sprint("e", j)]++
				case !errors.Is(err, weir.ErrExists):
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(won) != 20 || slices.Max(slices.Collect(maps.Values(won))) != 1 {
		t.Errorf("created %v", won)
	}
	if got := len(events(t, limiterOn(t, st), "")); got != 20 {
		t.Errorf("%d events", got)
	}
}

// Concurrent updates of different fields both take effect.
func TestConcurrentUpdate(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim := limiterOn(t, st)
	must(t, admin.New(lim).Entities.Create(t.Context(), admin.Entity{ID: "e"}))
	var wg sync.WaitGroup
	for _, u := range []admin.EntityUpdate{{Name: new("n")}, {Cascade: new(true)}, {Metadata: map[string]string{"k": "v"}}} {
		other := limiterOn(t, st)
		wg.Go(func() {
			if _, err := admin.New(other).Entities.Update(t.Context(), "e", u); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := admin.New(lim).Entities.Get(t.Context(), "e")
	must(t, err)
	if got.Name != "n" || !got.Cascade || got.Metadata["k"] != "v" {
		t.Errorf("got %+v", got)
	}
}

// TestEntityWas checks that of several changes that are based on the same state, exactly one is made.
func TestEntityWas(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	entities := admin.New(lim).Entities
	must(t, entities.Create(ctx, admin.Entity{ID: "e"}))
	was, err := entities.Get(ctx, "e")
	must(t, err)
	var made sync.Map
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			_, err := entities.Update(ctx, "e", admin.EntityUpdate{Name: new(fmt.Sprint("n", i)), Was: &was})
			if err == nil {
				made.Store(fmt.Sprint("n", i), true)
			} else if !errors.Is(err, weir.ErrConflict) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	now, err := entities.Get(ctx, "e")
	must(t, err)
	names := maps.Collect(made.Range)
	if len(names) != 1 || names[now.Name] == nil {
		t.Errorf("the name is %q, after successful changes to %v", now.Name, names)
	}
	if err := entities.Delete(ctx, "e", admin.DeleteOptions{Was: &was}); !errors.Is(err, weir.ErrConflict) {
		t.Errorf("deleted what had changed: %v", err)
	}
	if again, err := entities.Get(ctx, "e"); err != nil || again.Name != now.Name {
		t.Errorf("after a deletion that was refused: %+v, %v", again, err)
	}
	must(t, entities.Delete(ctx, "e", admin.DeleteOptions{Was: &now}))
}
