package admin_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

func mark(name string) *admin.Managed { return &admin.Managed{Manifest: name, Hash: "h"} }

// declarable returns all declarable records, by subject.
func declarable(t *testing.T, lim *weir.Limiter, pageSize int) map[string]admin.Declared {
	t.Helper()
	all := make(map[string]admin.Declared)
	q := admin.DeclaredQuery{Max: pageSize}
	for {
		page, err := admin.New(lim).Manifests.Declarable(t.Context(), q)
		must(t, err)
		for _, d := range page.Items {
			var key string
			if d.Entity != nil {
				key = d.Entity.ID
			} else {
				key = fmt.Sprint(d.Limits.Scope)
			}
			if _, twice := all[key]; twice {
				t.Errorf("%s is listed twice", key)
			}
			all[key] = d
		}
		if q.After = page.Next; q.After == "" {
			return all
		}
	}
}

func declaredLimits(sc admin.Scope, by string, limits ...weir.Limit) admin.Declared {
	return admin.Declared{Limits: &admin.ScopedLimits{Scope: sc, Limits: limits, Managed: mark(by)}}
}

func TestDeclare(t *testing.T) {
	t.Parallel()
	lim, ctx := limiterOn(t, memory.New(nil)), admin.WithPrincipal(t.Context(), "ann")
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "r"}, weir.PerHour("rph", 5)))
	allowed(t, lim, "alice", "r", true)
	was := declarable(t, lim, 1)["{ r }"]
	changes := []admin.DeclaredChange{
		{Before: was, After: declaredLimits(admin.Scope{Resource: "r"}, "m", weir.PerHour("rph", 2))},
		{After: declaredLimits(admin.Scope{}, "m", weir.PerHour("rph", 9))},
		{After: declaredLimits(admin.Scope{Resource: "bad"}, "m", weir.PerHour("rph", 0))},
		{After: admin.Declared{Entity: &admin.Entity{ID: "org", Managed: mark("m")}}},
		{},
	}
	for i := range 200 {
		changes = append(changes, admin.DeclaredChange{After: declaredLimits(admin.Scope{Entity: fmt.Sprint("e", i)}, "m", weir.PerHour("rph", 1))})
	}
	for i, err := range admin.New(lim).Manifests.Declare(ctx, changes) {
		var config *weir.ConfigError
		if want := i == 2 || i == 4; errors.As(err, &config) != want || !want && err != nil {
			t.Errorf("change %d: %v", i, err)
		}
	}
	// The live bucket follows the new limits: one of two tokens is already spent.
	allowed(t, lim, "alice", "r", true, false)
	all := declarable(t, lim, 7)
	if len(all) != 203 {
		t.Errorf("%d records", len(all))
	}
	if d := all["{e7  }"]; d.Managed() == nil || *d.Managed() != *mark("m") || d.Version != 1 {
		t.Errorf("%+v", d)
	}
	got := events(t, lim, "resource:r")
	if len(got) != 2 || got[1].action != "limits.set" || got[1].principal != "ann" {
		t.Errorf("%+v", got)
	}
	// A limit changed by hand keeps its mark. A takeover by another manifest is recorded even if nothing else changes.
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "r"}, weir.PerHour("rph", 3)))
	sl, err := admin.New(lim).Limits.Get(ctx, admin.Scope{Resource: "r"})
	must(t, err)
	if sl.Managed == nil || sl.Managed.Manifest != "m" {
		t.Errorf("the mark is gone: %+v", sl)
	}
	now := declarable(t, lim, 0)["{ r }"]
	must(t, admin.New(lim).Manifests.Declare(ctx, []admin.DeclaredChange{{Before: now, After: declaredLimits(admin.Scope{Resource: "r"}, "n", weir.PerHour("rph", 3))}})[0])
	if got := events(t, lim, "resource:r"); got[len(got)-1].action != "limits.adopt" {
		t.Errorf("%+v", got)
	}
	// The first change is based on an outdated read and conflicts; the others are made all the same.
	errs := admin.New(lim).Manifests.Declare(ctx, []admin.DeclaredChange{{Before: now}, {Before: all["{e7  }"]}, {Before: all["org"]}})
	if !errors.Is(errs[0], weir.ErrConflict) || errs[1] != nil || errs[2] != nil {
		t.Errorf("%v", errs)
	}
	if all := declarable(t, lim, 0); len(all) != 201 || all["{ r }"].Version == 0 {
		t.Errorf("%d records", len(all))
	}
	for _, err := range admin.New(lim.In("none")).Manifests.Declare(ctx, changes[:1]) {
		if !errors.Is(err, weir.ErrNotFound) {
			t.Error(err)
		}
	}
	if _, err := admin.New(lim).Manifests.Declarable(ctx, admin.DeclaredQuery{After: "x"}); !errors.Is(err, weir.ErrBadCursor) {
		t.Error(err)
	}
}

// A second change of one record in one call was once reported as made, without being made.
func TestDeclareTwice(t *testing.T) {
	t.Parallel()
	lim, ctx := limiterOn(t, memory.New(nil)), t.Context()
	api, both := admin.Scope{Resource: "api"}, admin.Scope{Entity: "alice", Resource: "api"}
	errs := admin.New(lim).Manifests.Declare(ctx, []admin.DeclaredChange{
		{After: declaredLimits(api, "m", weir.PerHour("rph", 1))},
		{After: declaredLimits(api, "m", weir.PerHour("rph", 2))},
		{After: declaredLimits(both, "m", weir.PerHour("rph", 3))},
		entityChange(admin.Declared{}, admin.Entity{ID: "alice"}),
		entityChange(admin.Declared{}, admin.Entity{ID: "alice", Name: "Alice"}),
	})
	for i, err := range errs {
		var config *weir.ConfigError
		if twice := i == 1 || i == 4; errors.As(err, &config) != twice || !twice && err != nil {
			t.Errorf("change %d: %v", i, err)
		}
	}
	all := declarable(t, lim, 0)
	if l := all["{ api }"].Limits; l.Limits[0].Amount != 1 || all["alice"].Entity.Name != "" || len(all) != 3 {
		t.Errorf("%+v", all)
	}
}

func entityChange(before admin.Declared, e admin.Entity) admin.DeclaredChange {
	e.Managed = mark("m")
	return admin.DeclaredChange{Before: before, After: admin.Declared{Entity: &e}}
}

func TestDeclareEntities(t *testing.T) {
	t.Parallel()
	lim, ctx := limiterOn(t, memory.New(nil)), t.Context()
	var changes []admin.DeclaredChange
	must(t, admin.New(lim).Manifests.Declare(ctx, []admin.DeclaredChange{entityChange(admin.Declared{}, admin.Entity{ID: "org"})})[0])
	for i := range 100 {
		changes = append(changes, entityChange(admin.Declared{}, admin.Entity{ID: fmt.Sprint("e", i), Parent: "org"}))
	}
	changes = append(changes, entityChange(admin.Declared{}, admin.Entity{ID: "lost", Parent: "nobody"}))
	for i, err := range admin.New(lim).Manifests.Declare(ctx, changes) {
		if (err != nil) != (i == 100) {
			t.Errorf("change %d: %v", i, err)
		}
	}
	all := declarable(t, lim, 0)
	// A parent whose children stay cannot be removed; a cycle is refused; entities without children are removed.
	cycle := entityChange(all["org"], admin.Entity{ID: "org", Parent: "e3"})
	if err := admin.New(lim).Manifests.Declare(ctx, []admin.DeclaredChange{cycle})[0]; err == nil {
		t.Error("a cycle was made")
	}
	errs := admin.New(lim).Manifests.Declare(ctx, []admin.DeclaredChange{
		{Before: all["org"]},
		{Before: all["e1"]},
		{Before: all["e2"]},
		entityChange(all["e4"], admin.Entity{ID: "e4", Parent: "e5"}),
	})
	if errs[0] == nil || errs[1] != nil || errs[2] != nil || errs[3] != nil {
		t.Errorf("%v", errs)
	}
	if !strings.Contains(fmt.Sprint(errs[0]), "has children that stay") {
		t.Error(errs[0])
	}
	e4, err := admin.New(lim).Entities.Get(ctx, "e4")
	must(t, err)
	if e4.Parent != "e5" || e4.Created != all["e4"].Entity.Created {
		t.Errorf("%+v", e4)
	}
	if _, err := admin.New(lim).Entities.Get(ctx, "e1"); !errors.Is(err, weir.ErrNotFound) {
		t.Error(err)
	}
	must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "more", Parent: "org"})) // the deletion mark has been removed
}

func TestManifestLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := limiterOn(t, memory.New(nil))
		ann, bob := admin.WithPrincipal(t.Context(), "ann"), admin.WithPrincipal(t.Context(), "bob")
		first, err := admin.New(lim).Manifests.Lock(ann, "m", 10*time.Second)
		must(t, err)
		time.Sleep(9 * time.Second)
		must(t, first.Extend(ann))
		time.Sleep(9 * time.Second)
		var held *admin.LockedError
		if _, err := admin.New(lim).Manifests.Lock(bob, "m", 10*time.Second); !errors.As(err, &held) || held.By != "ann" || !errors.Is(err, weir.ErrConflict) {
			t.Errorf("held: %v", err)
		}
		other, err := admin.New(lim).Manifests.Lock(bob, "other", time.Second)
		must(t, err)
		must(t, other.Release(bob))
		time.Sleep(time.Second)
		second, err := admin.New(lim).Manifests.Lock(bob, "m", 10*time.Second)
		must(t, err)
		// A holder that lost the lock gets an error and cannot record.
		if err := first.Extend(ann); !errors.Is(err, weir.ErrConflict) {
			t.Errorf("lost: %v", err)
		}
		if _, err := first.Record(ann, admin.Revision{Hash: "x"}, nil); !errors.Is(err, weir.ErrConflict) {
			t.Errorf("lost: %v", err)
		}
		rev, err := second.Record(bob, admin.Revision{Hash: "y", Summary: "s"}, []byte("text"))
		must(t, err)
		if rev.Revision != 1 || rev.By != "bob" || rev.At.IsZero() {
			t.Errorf("%+v", rev)
		}
		must(t, second.Release(bob)) // the lock ended with Record
		if _, err := second.Record(bob, rev, nil); !errors.Is(err, weir.ErrConflict) {
			t.Errorf("recorded twice: %v", err)
		}
		third, err := admin.New(lim).Manifests.Lock(ann, "m", time.Second)
		must(t, err)
		if third.Last() != rev {
			t.Errorf("%+v, want %+v", third.Last(), rev)
		}
		var config *weir.ConfigError
		if _, err := admin.New(lim).Manifests.Lock(ann, "_", time.Second); !errors.As(err, &config) {
			t.Error(err)
		}
	})
}

// The default limits of a plan are declared together with others of the plan, in either order.
func TestDeclarePlanAtOnce(t *testing.T) {
	t.Parallel()
	for _, first := range []int{0, 1} {
		lim := limiterOn(t, memory.New(nil))
		changes := []admin.DeclaredChange{
			{After: declaredLimits(admin.Scope{Plan: "pro"}, "m", weir.PerMinute("rpm", 1))},
			{After: declaredLimits(admin.Scope{Plan: "pro", Resource: "r"}, "m", weir.PerMinute("rpm", 2))},
		}
		for _, err := range admin.New(lim).Manifests.Declare(t.Context(), []admin.DeclaredChange{changes[first], changes[1-first]}) {
			must(t, err)
		}
		for i := range changes {
			want := changes[i].After.Limits
			if got, err := admin.New(lim).Limits.Get(t.Context(), want.Scope); err != nil || !slices.Equal(got.Limits, want.Limits) {
				t.Errorf("%d first: %+v has %+v, %v", first, want.Scope, got.Limits, err)
			}
		}
	}
}

// A holder that lost the lock writes nothing over what the one after it has recorded, or records now.
func TestLostLockWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim, ctx := limiterOn(t, memory.New(nil)), t.Context()
		var locks [3]*admin.ManifestLock
		for i := range locks {
			var err error
			locks[i], err = admin.New(lim).Manifests.Lock(ctx, "m", time.Second)
			must(t, err)
			time.Sleep(time.Second)
		}
		a, b := admin.RecordID{Scope: admin.Scope{Resource: "a"}}, admin.RecordID{Scope: admin.Scope{Resource: "b"}}
		must(t, locks[2].SetManaged(ctx, []admin.RecordID{a}))
		if err := locks[0].SetManaged(ctx, []admin.RecordID{a, b}); !errors.Is(err, weir.ErrConflict) {
			t.Errorf("listed: %v", err)
		}
		_, err := locks[2].Record(ctx, admin.Revision{Hash: "x"}, []byte("text"))
		must(t, err)
		for _, lost := range locks[:2] {
			if _, err := lost.Record(ctx, admin.Revision{Hash: "y"}, []byte("another text")); !errors.Is(err, weir.ErrConflict) {
				t.Errorf("recorded: %v", err)
			}
		}
		if rev, text, err := admin.New(lim).Manifests.Revision(ctx, "m", 1); err != nil || rev.Hash != "x" || string(text) != "text" {
			t.Errorf("%+v, %q, %v", rev, text, err)
		}
		if s, err := admin.New(lim).Manifests.State(ctx, "m"); err != nil || !slices.Equal(s.Managed, []admin.RecordID{a}) {
			t.Errorf("managed: %v, %v", s.Managed, err)
		}
	})
}

func TestRevisions(t *testing.T) {
	t.Parallel()
	lim, ctx := limiterOn(t, memory.New(nil)), t.Context()
	large := make([]byte, 700<<10) // several parts, because it does not compress
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(large)
	texts := [][]byte{[]byte("one"), large, nil}
	for i, text := range texts {
		lock, err := admin.New(lim).Manifests.Lock(ctx, "m", time.Second)
		must(t, err)
		_, err = lock.Record(ctx, admin.Revision{Hash: fmt.Sprint(i)}, text)
		must(t, err)
	}
	for i, want := range texts {
		rev, text, err := admin.New(lim).Manifests.Revision(ctx, "m", i+1)
		must(t, err)
		if !bytes.Equal(text, want) || rev.Hash != fmt.Sprint(i) || rev.Revision != i+1 {
			t.Errorf("%d: %+v, %d bytes", i, rev, len(text))
		}
	}
	last, _, err := admin.New(lim).Manifests.Revision(ctx, "m", 0)
	must(t, err)
	if again, err := admin.New(lim).Manifests.State(ctx, "m"); err != nil || again.Last != last || last.Revision != 3 {
		t.Errorf("%+v, %+v, %v", last, again, err)
	}
	for _, n := range []int{4, -1} {
		if _, _, err := admin.New(lim).Manifests.Revision(ctx, "m", n); !errors.Is(err, weir.ErrNotFound) {
			t.Errorf("%d: %v", n, err)
		}
	}
	if _, _, err := admin.New(lim).Manifests.Revision(ctx, "none", 0); !errors.Is(err, weir.ErrNotFound) {
		t.Error(err)
	}
	page, err := admin.New(lim).Manifests.Revisions(ctx, admin.RevisionQuery{Manifest: "m", Max: 2})
	must(t, err)
	if len(page.Items) != 2 || page.Items[0].Revision != 3 || page.Next == "" {
		t.Errorf("%+v", page)
	}
	page, err = admin.New(lim).Manifests.Revisions(ctx, admin.RevisionQuery{})
	must(t, err)
	if len(page.Items) != 1 || page.Items[0] != last {
		t.Errorf("%+v", page)
	}
	if got := events(t, lim, "manifest:m"); len(got) != 3 || got[0].action != "manifest.apply" {
		t.Errorf("%+v", got)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		good bool
	}{
		{(&admin.Entity{ID: "a", Parent: "b"}).Validate(), true},
		{(&admin.Entity{ID: "a", Parent: "a"}).Validate(), false},
		{admin.Scope{Entity: "a"}.Validate(), true},
		{admin.Scope{Resource: "_default_"}.Validate(), false},
		{weir.PerMinute("rpm", 1).Validate(), true},
		{weir.PerMinute("rpm", 0).Validate(), false},
		{(&admin.ScopedLimits{OnUnavailable: weir.OnUnavailableAllow}).Validate(), true},
		{(&admin.ScopedLimits{Scope: admin.Scope{Resource: "r"}, OnUnavailable: weir.OnUnavailableAllow}).Validate(), true},
		{(&admin.ScopedLimits{Scope: admin.Scope{Resource: "r"}, OnUnavailable: "maybe"}).Validate(), false},
		{(&admin.ScopedLimits{Scope: admin.Scope{Resource: "r"}, NearLimit: admin.Thresholds{80}}).Validate(), false},
		{(&admin.ScopedLimits{}).Validate(), false},
		{(&admin.ScopedLimits{Limits: []weir.Limit{weir.PerMinute("rpm", 1), weir.PerHour("rpm", 1)}}).Validate(), false},
	} {
		if _, ok := errors.AsType[*weir.ConfigError](tt.err); ok == tt.good {
			t.Errorf("%v, good is %v", tt.err, tt.good)
		}
	}
}

// TestDeclareLargest declares the largest limits there can be, more of them than one commit holds.
func TestDeclareLargest(t *testing.T) {
	t.Parallel()
	lim := limiterOn(t, memory.New(nil))
	var changes []admin.DeclaredChange
	for i := range 40 {
		limits := make([]weir.Limit, 64)
		for j := range limits { // each byte of a name has six in JSON
			limits[j] = weir.Limit{Name: fmt.Sprintf("%02d", j) + strings.Repeat("<", 254), Amount: 1000, Period: time.Hour, Burst: 1000}
		}
		changes = append(changes, admin.DeclaredChange{After: declaredLimits(admin.Scope{Entity: fmt.Sprint("e", i)}, "m", limits...)})
	}
	for range 2 { // first new, then changed, so that each event has both
		for i, err := range admin.New(lim).Manifests.Declare(t.Context(), changes) {
			if err != nil {
				t.Fatalf("change %d: %v", i, err)
			}
		}
		all := declarable(t, lim, 0)
		for i := range changes {
			changes[i].Before = all[fmt.Sprintf("{e%d  }", i)]
			changes[i].After.Limits.Limits[0].Amount--
		}
	}
}
