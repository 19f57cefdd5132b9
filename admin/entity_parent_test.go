package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// chainOf creates a chain of n entities from the top down, prefix1 to prefixn.
func chainOf(tb testing.TB, lim *weir.Limiter, prefix string, n int) {
	tb.Helper()
	parent := ""
	for i := 1; i <= n; i++ {
		id := fmt.Sprint(prefix, i)
		must(tb, admin.New(lim).Entities.Create(tb.Context(), admin.Entity{ID: id, Parent: parent, Cascade: true}))
		parent = id
	}
}

func TestMaxDepth(t *testing.T) {
	t.Parallel()
	move := func(id, parent string) func(context.Context, *weir.Limiter) error {
		return func(ctx context.Context, l *weir.Limiter) error {
			_, err := admin.New(l).Entities.Update(ctx, id, admin.EntityUpdate{Parent: &parent})
			return err
		}
	}
	create := func(parent string) func(context.Context, *weir.Limiter) error {
		return func(ctx context.Context, l *weir.Limiter) error {
			return admin.New(l).Entities.Create(ctx, admin.Entity{ID: "new", Parent: parent})
		}
	}
	for name, tt := range map[string]struct {
		change func(context.Context, *weir.Limiter) error
		ok     bool
	}{
		"the eighth":                    {create("a7"), true},
		"the ninth":                     {create("a8"), false},
		"three under five":              {move("b1", "a5"), true},
		"three under six":               {move("b1", "a6"), false},
		"two under six":                 {move("b2", "a6"), true},
		"one under seven":               {move("b3", "a7"), true},
		"one under eight":               {move("b3", "a8"), false},
		"a branch higher up":            {move("a5", "b1"), true},
		"a branch to the same depth":    {move("a4", "b3"), true},
		"a branch one deeper":           {move("a4", "c"), true},
		"a whole chain under one":       {move("a1", "b1"), false},
		"a whole chain under nothing":   {move("a1", ""), true},
		"under itself":                  {move("a2", "a2"), false},
		"under its child":               {move("a2", "a3"), false},
		"under its last descendant":     {move("a1", "a8"), false},
		"under what does not exist":     {move("b1", "nobody"), false},
		"create under what is not":      {create("nobody"), false},
		"a wide one that has deep ones": {move("w", "a6"), false},
		"a wide one where it fits":      {move("w", "a5"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := memory.New(nil)
			lim, ctx := limiterOn(t, st), t.Context()
			chainOf(t, lim, "a", 8)
			chainOf(t, lim, "b", 3)
			must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "w"}))
			for i := range 5 {
				must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: fmt.Sprint("w", i), Parent: "w"}))
			}
			must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "ww", Parent: "w3"}))
			must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "c", Parent: "b2"}))
			before := parents(t, st)
			writes := 0
			err := tt.change(ctx, limiterOn(t, &commitSpy{st, func([]store.Write) { writes++ }}))
			if tt.ok {
				must(t, err)
			} else {
				wantConfigError(t, err, "parent")
				if writes > 0 || !maps.Equal(before, parents(t, st)) {
					t.Errorf("refused, and %d commits", writes)
				}
			}
			checkForest(t, parents(t, st))
		})
	}
}

// parents returns the parent of each entity in the store, and fails if one was left half deleted.
func parents(tb testing.TB, st store.Store) map[string]string {
	tb.Helper()
	page, err := st.List(tb.Context(), store.Query{Namespace: "default", Kind: store.KindEntity, Max: 1000})
	must(tb, err)
	out := make(map[string]string)
	for _, r := range page.Records {
		var e struct {
			Parent   string
			Deleting bool
		}
		must(tb, json.Unmarshal(r.Value, &e))
		if e.Deleting || e.Parent != r.Parent {
			tb.Errorf("%s is left as %s, indexed under %q", r.Key.ID, r.Value, r.Parent)
		}
		out[r.Key.ID] = e.Parent
	}
	return out
}

// checkForest checks that all parents exist, that there is no cycle, and that no chain is too long.
func checkForest(tb testing.TB, parents map[string]string) {
	tb.Helper()
	for id := range parents {
		if parent := parents[id]; parent != "" {
			if _, ok := parents[parent]; !ok {
				tb.Errorf("%s: the parent %s does not exist", id, parent)
			}
		}
		if depth(parents, id) > weir.MaxDepth {
			tb.Errorf("%s: more than %d in a chain, or a cycle", id, weir.MaxDepth)
		}
	}
}

func depth(parents map[string]string, id string) (n int) {
	for ; id != "" && n <= weir.MaxDepth; id = parents[id] {
		n++
	}
	return n
}

// op is one of two racing changes.
type op func(context.Context, *weir.Limiter) error

func moveOp(id, parent string) op {
	return func(ctx context.Context, l *weir.Limiter) error {
		_, err := admin.New(l).Entities.Update(ctx, id, admin.EntityUpdate{Parent: &parent})
		return err
	}
}

func createOp(id, parent string) op {
	return func(ctx context.Context, l *weir.Limiter) error {
		return admin.New(l).Entities.Create(ctx, admin.Entity{ID: id, Parent: parent})
	}
}

func deleteOp(id string, children bool) op {
	return func(ctx context.Context, l *weir.Limiter) error {
		return admin.New(l).Entities.Delete(ctx, id, admin.DeleteOptions{Children: children})
	}
}

// allOps makes one change after the other, until one fails.
func allOps(ops ...op) op {
	return func(ctx context.Context, l *weir.Limiter) error {
		for _, o := range ops {
			if err := o(ctx, l); err != nil {
				return err
			}
		}
		return nil
	}
}

// Two processes change the tree at once, with their store calls in every possible order: the tree stays valid.
func TestTreeUnderRaces(t *testing.T) {
	t.Parallel()
	for name, ops := range map[string][2]op{
		"two moves that make a cycle":                {moveOp("a1", "b1"), moveOp("b1", "a1")},
		"two moves that make a cycle, further below": {moveOp("b1", "c3"), moveOp("c1", "b3")},
		"a move deeper, a child at the end":          {moveOp("b1", "a5"), createOp("new", "b3")},
		"a move deeper, a subtree to its end":        {moveOp("b1", "a4"), moveOp("c2", "b3")},
		"a move deeper, a longer chain above":        {moveOp("b1", "c3"), moveOp("c1", "a5")},
		"a move deeper, the same within":             {moveOp("b1", "a5"), moveOp("b3", "b1")},
		"a move up, a move below it":                 {moveOp("a4", ""), moveOp("b1", "a7")},
		"a move beside, more fits where it was":      {moveOp("a4", "b3"), allOps(moveOp("a3", ""), createOp("new", "a7"), createOp("newer", "new"))},
		"two moves of one":                           {moveOp("b1", "a5"), moveOp("b1", "c3")},
		"a deletion, a child":                        {deleteOp("b3", false), createOp("new", "b3")},
		"a deletion with children, a child":          {deleteOp("b2", true), createOp("new", "b3")},
		"a deletion, a child moves in":               {deleteOp("b3", false), moveOp("c1", "b3")},
		"a deletion, its only child leaves":          {deleteOp("b2", false), moveOp("b3", "c1")},
		"a deletion, it moves deeper":                {deleteOp("b1", true), moveOp("b1", "a5")},
		"two deletions":                              {deleteOp("b1", true), deleteOp("b1", true)},
		"two deletions, one refuses":                 {deleteOp("b2", true), deleteOp("b2", false)},
		"a deletion, it is created":                  {deleteOp("b3", false), createOp("b3", "c3")},
		"two of one id":                              {createOp("new", "a7"), createOp("new", "b3")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				orders := explore(2, func(swap func() bool) {
					st := memory.New(nil)
					lim := limiterOn(t, st)
					chainOf(t, lim, "a", 7)
					chainOf(t, lim, "b", 3)
					chainOf(t, lim, "c", 3)
					errs := race(t, st, ops, swap)
					for i, err := range errs {
						var ce *weir.ConfigError
						if err != nil && !errors.As(err, &ce) && !errors.Is(err, weir.ErrNotFound) &&
							!errors.Is(err, weir.ErrExists) && !errors.Is(err, weir.ErrConflict) {
							t.Errorf("op %d: %v", i, err)
						}
					}
					if errs[0] != nil && errs[1] != nil {
						t.Errorf("both failed: %v; %v", errs[0], errs[1])
					}
					checkForest(t, parents(t, st))
				})
				t.Logf("%d orders", orders)
			})
		})
	}
}

// race runs two ops at once, each on its own limiter. Before each store call, swap decides whether the other op runs next.
func race(t *testing.T, st store.Store, ops [2]op, swap func() bool) [2]error {
	t.Helper()
	type runner struct {
		asks  chan struct{} // the op is about to make a call
		turns chan struct{} // the op may go on
		ends  chan struct{}
	}
	var runners [2]runner
	var errs [2]error
	for i := range ops {
		r := runner{make(chan struct{}), make(chan struct{}), make(chan struct{})}
		runners[i] = r
		lim := limiterOn(t, &hooked{Store: st, before: func(context.Context, string) error {
			r.asks <- struct{}{}
			<-r.turns
			return nil
		}})
		go func() {
			defer close(r.ends)
			errs[i] = ops[i](context.Background(), lim)
		}()
	}
	var waits, ended [2]bool
	for at := 0; ; {
		for i, r := range runners {
			if !waits[i] && !ended[i] {
				select {
				case <-r.asks:
					waits[i] = true
				case <-r.ends:
					ended[i] = true
				}
			}
		}
		switch {
		case ended[0] && ended[1]:
			return errs
		case ended[at], !ended[1-at] && swap():
			at = 1 - at
		}
		waits[at] = false
		runners[at].turns <- struct{}{}
	}
}

// explore calls run repeatedly, until swap has returned true at every combination of at most that many positions. It
// returns the number of runs.
func explore(swaps int, run func(swap func() bool)) int {
	var path []bool
	for n := 1; ; n++ {
		at, swapped := 0, 0
		run(func() bool {
			if at == len(path) {
				path = append(path, false)
			}
			at++
			if path[at-1] {
				swapped++
			}
			return path[at-1]
		})
		for path = path[:at]; ; path = path[:len(path)-1] {
			if len(path) == 0 {
				return n
			}
			if last := len(path) - 1; path[last] {
				swapped--
			} else if swapped < swaps {
				path[last] = true
				break
			}
		}
	}
}

// The mark of a move that never finished does no harm.
func TestLeftMark(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim, ctx := limiterOn(t, st), t.Context()
	chainOf(t, lim, "a", 4)
	chainOf(t, lim, "b", 3)
	commits := 0
	died := errors.New("died")
	h := &hooked{Store: st, before: func(_ context.Context, op string) error {
		if op == "commit" {
			if commits++; commits == 2 {
				return died
			}
		}
		return nil
	}}
	if err := moveOp("b1", "a4")(ctx, limiterOn(t, h)); !errors.Is(err, died) {
		t.Fatalf("the move: %v", err)
	}
	must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "new", Parent: "b3"}))
	must(t, moveOp("b3", "a4")(ctx, lim))
	must(t, moveOp("b1", "a4")(ctx, lim))
	checkForest(t, parents(t, st))
	must(t, admin.New(lim).Entities.Delete(ctx, "a1", admin.DeleteOptions{Children: true}))
	if left := parents(t, st); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A short cycle is reported as a cycle, not as too deep a chain.
func TestCycle(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	defer lim.Close()
	entities := admin.New(lim).Entities
	must(t, entities.Create(ctx, admin.Entity{ID: "p"}))
	must(t, entities.Create(ctx, admin.Entity{ID: "e", Parent: "p", Cascade: true}))
	_, err := entities.Update(ctx, "p", admin.EntityUpdate{Parent: new("e")})
	wantConfigError(t, err, "parent")
}
