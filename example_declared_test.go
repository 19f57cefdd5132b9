package weir_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir"
)

// Make records what a manifest declares, in one step, and mark them as managed.
func ExampleLimiter_Declare() {
	ctx := weir.WithPrincipal(context.Background(), "ann")
	lim := exampleLimiter()
	defer lim.Close()

	by := &weir.Managed{Manifest: "team-a", Hash: "5f1c"}
	errs := lim.Declare(ctx, []weir.DeclaredChange{
		{After: weir.Declared{Entity: &weir.Entity{ID: "key-alice", Managed: by}}},
		{After: weir.Declared{Limits: &weir.ScopedLimits{
			Scope: weir.Scope{Entity: "key-alice"}, Limits: []weir.Limit{weir.PerMinute("rpm", 10)}, Managed: by,
		}}},
	})
	if err := errors.Join(errs...); err != nil {
		fmt.Println(err)
		return
	}
	page, err := lim.Declarable(ctx, weir.DeclaredQuery{})
	for ; err == nil; page, err = lim.Declarable(ctx, weir.DeclaredQuery{After: page.Next}) {
		for _, d := range page.Records {
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
	ctx := weir.WithPrincipal(context.Background(), "ann")
	lim := exampleLimiter()
	defer lim.Close()

	lock, err := lim.LockManifest(ctx, "team-a", 30*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lock.Release(ctx) // after Record, there is nothing left to release
	if _, err := lock.Record(ctx, weir.Revision{Hash: "5f1c", Summary: "first limits"}, []byte("namespace: default\n")); err != nil {
		fmt.Println(err)
		return
	}
	rev, text, err := lim.Revision(ctx, "team-a", 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("revision %d by %s, %s: %s", rev.Revision, rev.By, rev.Summary, text)
	// Output:
	// revision 1 by ann, first limits: namespace: default
}
