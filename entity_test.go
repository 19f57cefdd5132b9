package weir_test

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
	"github.com/weirlimits/weir/store/memory"
)

func TestEntity(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	for _, id := range oddIDs {
		want := weir.Entity{ID: id, Name: "n", Cascade: true, Metadata: map[string]string{id: "line\nbreak"}}
		must(t, lim.CreateEntity(ctx, want))
		got, err := lim.Entity(ctx, id)
		must(t, err)
		if since := time.Since(got.Created); since < 0 || since > time.Minute {
			t.Errorf("created %v ago", since)
		}
		got.Created = time.Time{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: (-want +got)\n%s", id, diff)
		}
		if err := lim.CreateEntity(ctx, want); !errors.Is(err, weir.ErrExists) || !strings.Contains(err.Error(), fmt.Sprintf("%q", id)) {
			t.Errorf("%q again: %v", id, err)
		}
	}
}

func TestEntityRefuses(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	must(t, lim.CreateEntity(ctx, weir.Entity{ID: "e"}))
	for name, id := range badIDs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantConfigError(t, lim.CreateEntity(ctx, weir.Entity{ID: id}), "entity")
			wantConfigError(t, lim.DeleteEntity(ctx, id, weir.DeleteOptions{}), "entity")
			_, err := lim.Entity(ctx, id)
			wantConfigError(t, err, "entity")
			_, err = lim.UpdateEntity(ctx, id, weir.EntityUpdate{})
			wantConfigError(t, err, "entity")
			if id == "" {
				return // no parent
			}
			wantConfigError(t, lim.CreateEntity(ctx, weir.Entity{ID: "new", Parent: id}), "parent")
			_, err = lim.UpdateEntity(ctx, "e", weir.EntityUpdate{Parent: &id})
			wantConfigError(t, err, "parent")
			_, err = lim.Entities(ctx, weir.EntityQuery{Parent: id})
			wantConfigError(t, err, "parent")
		})
	}
	for name, tt := range map[string]struct {
		entity weir.Entity
		field  string
	}{
		"missing parent":     {weir.Entity{Parent: "nobody"}, "parent"},
		"its own parent":     {weir.Entity{Parent: "e"}, "parent"},
		"long name":          {weir.Entity{Name: strings.Repeat("x", 257)}, "name"},
		"name of two lines":  {weir.Entity{Name: "a\nb"}, "name"},
		"invalid name":       {weir.Entity{Name: "\xff"}, "name"},
		"much metadata":      {weir.Entity{Metadata: map[string]string{"k": strings.Repeat("x", 16<<10)}}, "metadata"},
		"empty key":          {weir.Entity{Metadata: map[string]string{"": "v"}}, "metadata"},
		"key with a control": {weir.Entity{Metadata: map[string]string{"\x00": "v"}}, "metadata"},
		"invalid value":      {weir.Entity{Metadata: map[string]string{"k": "\xff"}}, "metadata.k"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := weir.EntityUpdate{Name: &tt.entity.Name, Parent: &tt.entity.Parent, Metadata: tt.entity.Metadata}
			_, err := lim.UpdateEntity(ctx, "e", u)
			wantConfigError(t, err, tt.field)
			tt.entity.ID = "new"
			if tt.entity.Parent == "e" {
				tt.entity.ID = "e"
			}
			wantConfigError(t, lim.CreateEntity(ctx, tt.entity), tt.field)
		})
	}
	t.Cleanup(func() { // after all subtests
		page, err := lim.Entities(context.Background(), weir.EntityQuery{})
		if err != nil || len(page.Entities) != 1 {
			t.Errorf("entities %v, error %v", page.Entities, err)
		}
	})
}

func TestEntityMissing(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	for name, l := range map[string]*weir.Limiter{"entity": lim, "namespace": lim.In("nowhere")} {
		_, err := l.Entity(ctx, "nobody")
		_, err2 := l.UpdateEntity(ctx, "nobody", weir.EntityUpdate{Name: new("x")})
		err3 := l.DeleteEntity(ctx, "nobody", weir.DeleteOptions{})
		for i, err := range []error{err, err2, err3} {
			if !errors.Is(err, weir.ErrNotFound) {
				t.Errorf("%s, call %d: %v", name, i, err)
			}
		}
	}
	if err := lim.In("nowhere").CreateEntity(ctx, weir.Entity{ID: "e"}); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("create: %v", err)
	}
	if got := events(t, lim, ""); got != nil {
		t.Errorf("events %v", got)
	}
}

func TestUpdateEntity(t *testing.T) {
	t.Parallel()
	base := weir.Entity{ID: "e", Name: "n", Parent: "p", Cascade: true, Metadata: map[string]string{"k": "v"}}
	for name, tt := range map[string]struct {
		update weir.EntityUpdate
		want   func(*weir.Entity)
		events int
	}{
		"nothing":        {weir.EntityUpdate{}, func(*weir.Entity) {}, 0},
		"the same":       {weir.EntityUpdate{Name: new("n"), Parent: new("p"), Cascade: new(true), Metadata: base.Metadata}, func(*weir.Entity) {}, 0},
		"name":           {weir.EntityUpdate{Name: new("m")}, func(e *weir.Entity) { e.Name = "m" }, 1},
		"no name":        {weir.EntityUpdate{Name: new("")}, func(e *weir.Entity) { e.Name = "" }, 1},
		"parent":         {weir.EntityUpdate{Parent: new("q")}, func(e *weir.Entity) { e.Parent = "q" }, 1},
		"no parent":      {weir.EntityUpdate{Parent: new("")}, func(e *weir.Entity) { e.Parent = "" }, 1},
		"cascade":        {weir.EntityUpdate{Cascade: new(false)}, func(e *weir.Entity) { e.Cascade = false }, 1},
		"metadata":       {weir.EntityUpdate{Metadata: map[string]string{"x": "y"}}, func(e *weir.Entity) { e.Metadata = map[string]string{"x": "y"} }, 1},
		"empty metadata": {weir.EntityUpdate{Metadata: map[string]string{}}, func(e *weir.Entity) { e.Metadata = nil }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lim, ctx := memoryLimiter(t), t.Context()
			must(t, lim.CreateEntity(ctx, weir.Entity{ID: "p"}))
			must(t, lim.CreateEntity(ctx, weir.Entity{ID: "q"}))
			must(t, lim.CreateEntity(ctx, base))
			born, err := lim.Entity(ctx, "e")
			must(t, err)
			returned, err := lim.UpdateEntity(ctx, "e", tt.update)
			must(t, err)
			stored, err := lim.Entity(ctx, "e")
			must(t, err)
			want := base
			want.Created = born.Created
			tt.want(&want)
			if len(returned.Metadata) == 0 {
				returned.Metadata = nil
			}
			if diff := cmp.Diff([]weir.Entity{want, want}, []weir.Entity{returned, stored}); diff != "" {
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
	for q := (weir.EntityQuery{Parent: parent, Max: 2}); ; {
		page, err := lim.Entities(tb.Context(), q)
		must(tb, err)
		if len(page.Entities) > q.Max {
			tb.Errorf("a page of %d", len(page.Entities))
		}
		for _, e := range page.Entities {
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
		e := weir.Entity{ID: id}
		if i > 0 {
			e.Parent = oddIDs[0]
		}
		must(t, lim.CreateEntity(ctx, e))
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
		page, err := lim.Entities(ctx, weir.EntityQuery{Prefix: prefix})
		must(t, err)
		if !slices.EqualFunc(page.Entities, want, func(e weir.Entity, id string) bool { return e.ID == id }) {
			t.Errorf("that begin with %q: got %v, want %q", prefix, page.Entities, want)
		}
	}
	for _, prefix := range []string{"\x00", "\xff", strings.Repeat("x", 257)} {
		_, err := lim.Entities(ctx, weir.EntityQuery{Prefix: prefix})
		wantConfigError(t, err, "prefix")
	}
	_, err := lim.Entities(ctx, weir.EntityQuery{After: "?"})
	if !errors.Is(err, weir.ErrBadCursor) {
		t.Errorf("cursor: %v", err)
	}
	_, err = lim.Entities(ctx, weir.EntityQuery{Max: -1})
	wantConfigError(t, err, "max")
}

// A change of an entity's parent or cascade affects at once which entities are charged.
func TestCascadeFollowsAtOnce(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	must(t, lim.SetLimits(ctx, weir.Scope{Resource: "r"}, weir.PerHour("rph", 10)))
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
	update := func(id string, u weir.EntityUpdate) {
		t.Helper()
		_, err := lim.UpdateEntity(ctx, id, u)
		must(t, err)
	}
	charged("e") // never created
	must(t, lim.CreateEntity(ctx, weir.Entity{ID: "top"}))
	must(t, lim.CreateEntity(ctx, weir.Entity{ID: "p", Parent: "top"}))
	must(t, lim.CreateEntity(ctx, weir.Entity{ID: "q"}))
	must(t, lim.CreateEntity(ctx, weir.Entity{ID: "e", Parent: "p"}))
	charged("e")
	update("e", weir.EntityUpdate{Cascade: new(true)})
	charged("e", "p")
	update("p", weir.EntityUpdate{Cascade: new(true)})
	charged("e", "p", "top")
	update("e", weir.EntityUpdate{Parent: new("q")})
	charged("e", "q")
	update("e", weir.EntityUpdate{Parent: new("")})
	charged("e")
	update("e", weir.EntityUpdate{Parent: new("p")})
	charged("e", "p", "top")
	must(t, lim.DeleteEntity(ctx, "e", weir.DeleteOptions{}))
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
				err := lim.CreateEntity(t.Context(), weir.Entity{ID: fmt.Sprint("e", j), Name: fmt.Sprint(i)})
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
	must(t, lim.CreateEntity(t.Context(), weir.Entity{ID: "e"}))
	var wg sync.WaitGroup
	for _, u := range []weir.EntityUpdate{{Name: new("n")}, {Cascade: new(true)}, {Metadata: map[string]string{"k": "v"}}} {
		other := limiterOn(t, st)
		wg.Go(func() {
			if _, err := other.UpdateEntity(t.Context(), "e", u); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := lim.Entity(t.Context(), "e")
	must(t, err)
	if got.Name != "n" || !got.Cascade || got.Metadata["k"] != "v" {
		t.Errorf("got %+v", got)
	}
}
