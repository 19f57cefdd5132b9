package admin_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// exampleLimiter returns a limiter with limits for one resource, in memory.
func exampleLimiter() *weir.Limiter {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	lim, err := weir.New(weir.Config{Store: memory.New(&memory.Config{Now: func() time.Time { return now }})})
	if err != nil {
		panic(err)
	}
	limits := []weir.Limit{weir.PerMinute("rpm", 60), weir.PerMinute("tpm", 50_000)}
	if err := admin.New(lim).Limits.Set(context.Background(), admin.Scope{Resource: "gpt-4"}, limits...); err != nil {
		panic(err)
	}
	return lim
}

// A parent is charged together with its children, and refuses for all of them.
func ExampleEntity() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()
	for _, e := range []admin.Entity{
		{ID: "project"},
		{ID: "key-1", Parent: "project", Cascade: true},
		{ID: "key-2", Parent: "project", Cascade: true},
	} {
		if err := admin.New(lim).Entities.Create(ctx, e); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := admin.New(lim).Limits.Set(
		ctx, admin.Scope{Entity: "project", Resource: "gpt-4"}, weir.PerMinute("rpm", 2),
	); err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range []string{"key-1", "key-2", "key-2"} {
		_, err := lim.Acquire(ctx, weir.Request{Entity: key, Resource: "gpt-4", Tokens: weir.Tokens{"rpm": 1}})
		fmt.Println(key, err)
	}
	// Output:
	// key-1 <nil>
	// key-2 <nil>
	// key-2 limit exceeded: rpm of project on gpt-4 has 0 of 2 available, 1 requested; retry in 30s
}

// Make records what a manifest declares, in one step, and mark them as managed.
func ExampleManifests_Declare() {
	ctx := admin.WithPrincipal(context.Background(), "ann")
	lim := exampleLimiter()
	defer lim.Close()

	by := &admin.Managed{Manifest: "team-a", Hash: "5f1c"}
	errs := admin.New(lim).Manifests.Declare(ctx, []admin.DeclaredChange{
		{After: admin.Declared{Entity: &admin.Entity{ID: "key-alice", Managed: by}}},
		{After: admin.Declared{Limits: &admin.ScopedLimits{
			Scope: admin.Scope{Entity: "key-alice"}, Limits: []weir.Limit{weir.PerMinute("rpm", 10)}, Managed: by,
		}}},
	})
	if err := errors.Join(errs...); err != nil {
		fmt.Println(err)
		return
	}
	page, err := admin.New(lim).Manifests.Declarable(ctx, admin.DeclaredQuery{})
	for ; err == nil; page, err = admin.New(lim).Manifests.Declarable(ctx, admin.DeclaredQuery{After: page.Next}) {
		for _, d := range page.Items {
			if m := d.Managed(); m == nil {
				fmt.Println(d.Limits.Scope.Resource, "is managed by hand")
			} else if d.Entity != nil {
				fmt.Println(d.Entity.ID, "is managed by", m.Manifest)
			} else {
				fmt.Println("limits of", d.Limits.Scope.Entity, "are managed by", m.Manifest)
			}
		}
		if page.Next == "" {
			break
		}
	}
	// Output:
	// gpt-4 is managed by hand
	// key-alice is managed by team-a
	// limits of key-alice are managed by team-a
}

// Keep others from applying the same manifest, and record what was applied.
func ExampleManifestLock() {
	ctx := admin.WithPrincipal(context.Background(), "ann")
	lim := exampleLimiter()
	defer lim.Close()

	lock, err := admin.New(lim).Manifests.Lock(ctx, "team-a", 30*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lock.Release(ctx) // after Record, there is nothing left to release
	if _, err := lock.Record(
		ctx, admin.Revision{Hash: "5f1c", Summary: "first limits"}, []byte("namespace: default\n"),
	); err != nil {
		fmt.Println(err)
		return
	}
	rev, text, err := admin.New(lim).Manifests.Revision(ctx, "team-a", 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("revision %d by %s, %s: %s", rev.Revision, rev.By, rev.Summary, text)
	// Output:
	// revision 1 by ann, first limits: namespace: default
}
