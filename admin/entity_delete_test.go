package admin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// fillTree makes an entity with children, limits and buckets, and an unrelated entity with the same.
func fillTree(tb testing.TB, lim *weir.Limiter, limits int) {
	tb.Helper()
	ctx := tb.Context()
	for _, e := range []admin.Entity{
		{ID: "org"},
		{ID: "team", Parent: "org"},
		{ID: "key", Parent: "team"},
		{ID: "key2", Parent: "team"},
		{ID: "team2", Parent: "org"},
		{ID: "bystander"},
	} {
		must(tb, admin.New(lim).Entities.Create(ctx, e))
		must(tb, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: e.ID}, weir.PerHour("rph", 5)))
		for i := range limits {
			must(tb, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: e.ID, Resource: fmt.Sprint("r", i)}, weir.PerHour("rph", 5)))
		}
		allowed(tb, lim, e.ID, "r0", true)
		allowed(tb, lim, e.ID, "other", true)
	}
}

// remains returns what the store holds for an entity: records, limits, buckets.
func remains(tb testing.TB, st store.Store, id string) (n [3]int) {
	tb.Helper()
	ctx := tb.Context()
	for i, kind := range []store.Kind{store.KindEntity, store.KindEntityLimits} {
		page, err := st.List(ctx, store.Query{Namespace: "default", Kind: kind, ID: id, Max: 1000})
		must(tb, err)
		n[i] = len(page.Records)
	}
	page, err := st.Buckets(ctx, store.BucketQuery{Namespace: "default", Entity: id, Max: 1000})
	must(tb, err)
	n[2] = len(page.States)
	return n
}

func TestDeleteEntity(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim, ctx := limiterOn(t, st), t.Context()
	fillTree(t, lim, 60)
	must(t, admin.New(lim).Entities.Delete(ctx, "key", admin.DeleteOptions{}))
	if got := remains(t, st, "key"); got != [3]int{0, 0, 2} {
		t.Errorf("left of key: %v", got)
	}
	if _, err := admin.New(lim).Entities.Get(ctx, "key"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("key: %v", err)
	}
	for _, id := range []string{"org", "team", "key2", "bystander"} {
		if got := remains(t, st, id); got != [3]int{1, 61, 2} {
			t.Errorf("left of %s: %v", id, got)
		}
	}
	evs := events(t, lim, "entity:key")
	if got := len(evs); got != 1+61+61+1 || evs[got-1].action != "entity.delete" {
		t.Errorf("%d events, the last %v", got, evs[got-1])
	}
	if err := admin.New(lim).Entities.Delete(ctx, "key", admin.DeleteOptions{}); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
}

func TestDeleteEntityWithChildren(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim, ctx := limiterOn(t, st), t.Context()
	fillTree(t, lim, 1)
	before := len(events(t, lim, ""))
	err := admin.New(lim).Entities.Delete(ctx, "org", admin.DeleteOptions{})
	wantConfigError(t, err, "entity")
	if err != nil && !strings.Contains(err.Error(), "team") {
		t.Errorf("names no child: %v", err)
	}
	if got := remains(t, st, "org"); got != [3]int{1, 2, 2} {
		t.Errorf("refused, and left of org: %v", got)
	}
	if got := len(events(t, lim, "")); got != before {
		t.Errorf("refused, and %d events more", got-before)
	}
	must(t, admin.New(lim).Entities.Delete(ctx, "org", admin.DeleteOptions{Children: true}))
	for _, id := range []string{"org", "team", "key", "key2", "team2"} {
		if got := remains(t, st, id); got != [3]int{0, 0, 2} {
			t.Errorf("left of %s: %v", id, got)
		}
		evs := events(t, lim, "entity:"+id)
		if last := evs[len(evs)-1]; last.action != "entity.delete" || last.before == "" {
			t.Errorf("last event of %s: %v", id, last)
		}
	}
	if got := remains(t, st, "bystander"); got != [3]int{1, 2, 2} {
		t.Errorf("left of the bystander: %v", got)
	}
}

// An entity that was never created can have limits and buckets.
func TestDeleteEntityNeverCreated(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim, ctx := limiterOn(t, st), t.Context()
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerHour("rph", 5)))
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "e", Resource: "r"}, weir.PerHour("rph", 2)))
	allowed(t, lim, "e", "r", true, true, false)
	must(t, admin.New(lim).Entities.Delete(ctx, "e", admin.DeleteOptions{}))
	if got := remains(t, st, "e"); got != [3]int{0, 0, 1} {
		t.Errorf("left: %v", got)
	}
	allowed(t, lim, "e", "r", true, true, true, false) // 5, of which 2 are spent
	if err := admin.New(lim).Entities.Delete(ctx, "e", admin.DeleteOptions{}); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("only a bucket: %v", err)
	}
}

// A deletion killed before or after any store call, and run again, removes everything but buckets, leaves the rest
// untouched, and records no event twice.
func TestDeleteEntityResumes(t *testing.T) {
	t.Parallel()
	died := errors.New("died")
	for _, applied := range []bool{false, true} {
		for _, created := range []bool{false, true} {
			t.Run(fmt.Sprintf("applied %v, created %v", applied, created), func(t *testing.T) {
				t.Parallel()
				for at := 1; ; at++ {
					h := &hooked{Store: memory.New(nil)}
					fillTree(t, limiterOn(t, h), 1)
					id := "org"
					if !created {
						id = "nobody"
						must(t, admin.New(limiterOn(t, h)).Limits.Set(t.Context(), admin.Scope{Entity: id, Resource: "r"}, weir.PerHour("rph", 1)))
						allowed(t, limiterOn(t, h), id, "r", true)
					}
					stop := h.failAt(at, applied, died)
					first := admin.New(limiterOn(t, h)).Entities.Delete(t.Context(), id, admin.DeleteOptions{Children: true})
					finished := stop()
					lim := limiterOn(t, h)
					if !finished {
						if !errors.Is(first, died) {
							t.Fatalf("call %d: %v", at, first)
						}
						if _, err := admin.New(lim).Entities.Get(t.Context(), id); err != nil && !errors.Is(err, weir.ErrNotFound) {
							t.Errorf("call %d: half deleted: %v", at, err)
						}
						err := admin.New(lim).Entities.Delete(t.Context(), id, admin.DeleteOptions{Children: true})
						if err != nil && !errors.Is(err, weir.ErrNotFound) {
							t.Fatalf("call %d: again: %v", at, err)
						}
					}
					for _, gone := range []string{"org", "team", "key", "key2", "team2"} {
						want := [3]int{0, 0, 2}
						if !created {
							want = [3]int{1, 2, 2}
						}
						if got := remains(t, h, gone); got != want {
							t.Fatalf("call %d: left of %s: %v, want %v", at, gone, got, want)
						}
					}
					if got := remains(t, h, id); got[0] != 0 || got[1] != 0 {
						t.Fatalf("call %d: left of %s: %v", at, id, got)
					}
					if got := remains(t, h, "bystander"); got != [3]int{1, 2, 2} {
						t.Fatalf("call %d: left of the bystander: %v", at, got)
					}
					told := make(map[string]int)
					for _, e := range events(t, lim, "") {
						if strings.HasSuffix(e.action, ".delete") {
							told[e.subject+e.action+e.before]++
						}
					}
					for e, n := range told {
						if n > 1 {
							t.Errorf("call %d: told %d times: %s", at, n, e)
						}
					}
					want := 5 * 3
					if !created {
						want = 2
					}
					if len(told) != want {
						t.Errorf("call %d: %d events, want %d: %v", at, len(told), want, told)
					}
					if finished {
						t.Logf("%d calls", at-1)
						return
					}
				}
			})
		}
	}
}

// An entity that is being deleted can be read but not changed.
func TestHalfDeleted(t *testing.T) {
	t.Parallel()
	died := errors.New("died")
	h := &hooked{Store: memory.New(nil)}
	lim, ctx := limiterOn(t, h), t.Context()
	fillTree(t, lim, 0)
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "ghost"}, weir.PerHour("rph", 1)))
	commits := 0
	h.before = func(_ context.Context, op string) error {
		if op == "commit" {
			commits++
		}
		if commits == 3 { // after the mark, and the deletion of limits
			return died
		}
		return nil
	}
	for _, id := range []string{"key", "ghost"} {
		commits = 0
		if err := admin.New(lim).Entities.Delete(ctx, id, admin.DeleteOptions{}); !errors.Is(err, died) {
			t.Fatal(err)
		}
	}
	h.before = nil

	_, err := admin.New(lim).Entities.Get(ctx, "key")
	must(t, err)
	_, err = admin.New(lim).Entities.Update(ctx, "key", admin.EntityUpdate{Name: new("x")})
	if !errors.Is(err, weir.ErrConflict) || !strings.Contains(err.Error(), "being deleted") {
		t.Errorf("update: %v", err)
	}
	wantConfigError(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "new", Parent: "key"}), "parent")
	_, err = admin.New(lim).Entities.Update(ctx, "bystander", admin.EntityUpdate{Parent: new("key")})
	wantConfigError(t, err, "parent")
	if err := admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "key"}); !errors.Is(err, weir.ErrExists) || !strings.Contains(err.Error(), "being deleted") {
		t.Errorf("create: %v", err)
	}

	if _, err := admin.New(lim).Entities.Get(ctx, "ghost"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("what was never created: %v", err)
	}
	if _, err := admin.New(lim).Entities.Update(ctx, "ghost", admin.EntityUpdate{Name: new("x")}); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("what was never created: %v", err)
	}
	wantConfigError(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "new", Parent: "ghost"}), "parent")
	for _, id := range ids(t, lim, "") {
		if id == "ghost" {
			t.Error("what was never created is listed")
		}
	}
	for _, id := range []string{"key", "ghost"} {
		must(t, admin.New(lim).Entities.Delete(ctx, id, admin.DeleteOptions{}))
		must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: id}))
	}
}

// A cycle written to the catalog by other software does not hang any call.
func TestForeignCycle(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim, ctx := limiterOn(t, st), t.Context()
	for id, parent := range map[string]string{"a": "b", "b": "a"} {
		must(t, st.Commit(ctx, store.Write{Record: store.Record{
			Key: store.Key{Namespace: "default", Kind: store.KindEntity, ID: id}, Parent: parent,
			Value: fmt.Appendf(nil, `{"parent":%q,"cascade":true,"created":"2026-01-02T03:04:05Z"}`, parent),
		}}))
	}
	wantConfigError(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "new", Parent: "a"}), "parent")
	wantConfigError(t, admin.New(lim).Entities.Delete(ctx, "a", admin.DeleteOptions{Children: true}), "parent")
	wantConfigError(t, admin.New(lim).Entities.Delete(ctx, "a", admin.DeleteOptions{}), "entity") // clears its deletion mark
	_, err := admin.New(lim).Entities.Update(ctx, "a", admin.EntityUpdate{Parent: new("")})       // repairs it
	must(t, err)
	must(t, admin.New(lim).Entities.Delete(ctx, "a", admin.DeleteOptions{Children: true}))
}
