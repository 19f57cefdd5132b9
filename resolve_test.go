package weir_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
)

// Each entity's own flag determines whether its parent is charged.
func TestCascade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 10))
	for _, e := range []admin.Entity{
		{ID: "top"},
		{ID: "mid", Parent: "top", Cascade: true},
		{ID: "leaf", Parent: "mid", Cascade: true},
		{ID: "stop", Parent: "top"},
		{ID: "below", Parent: "stop", Cascade: true},
	} {
		must(t, b.admin.Entities.Create(b.ctx, e))
	}
	chain := func(entity string) (ids []string) {
		for _, s := range b.take(entity, weir.Tokens{"rpm": 1}).Decision().Statuses {
			ids = append(ids, s.Entity)
		}
		return ids
	}
	for entity, want := range map[string][]string{
		"leaf": {"leaf", "mid", "top"}, "below": {"below", "stop"}, "stop": {"stop"}, "top": {"top"}, "stranger": {"stranger"},
	} {
		if got := chain(entity); !slices.Equal(got, want) {
			t.Errorf("%s charges %v, want %v", entity, got, want)
		}
	}
	b.wantLeft("top", weir.Tokens{"rpm": 8})
	b.wantLeft("mid", weir.Tokens{"rpm": 9})
	b.wantLeft("stop", weir.Tokens{"rpm": 8})
}

// The chain is reread after a change: a bucket does not remember which entities it charged when it was created.
func TestCascadeFollowsTheEntity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 10))
	b.take("leaf", weir.Tokens{"rpm": 1}) // leaf is not created yet
	b.child("old", "")
	b.child("new", "")
	b.child("leaf", "old")
	b.take("leaf", weir.Tokens{"rpm": 1})
	b.wantLeft("old", weir.Tokens{"rpm": 9})
	if _, err := b.admin.Entities.Update(b.ctx, "leaf", admin.EntityUpdate{Parent: new("new")}); err != nil {
		t.Fatal(err)
	}
	b.take("leaf", weir.Tokens{"rpm": 1})
	b.wantLeft("old", weir.Tokens{"rpm": 9})
	b.wantLeft("new", weir.Tokens{"rpm": 9})
	if _, err := b.admin.Entities.Update(b.ctx, "leaf", admin.EntityUpdate{Cascade: new(false)}); err != nil {
		t.Fatal(err)
	}
	b.take("leaf", weir.Tokens{"rpm": 1})
	b.wantLeft("new", weir.Tokens{"rpm": 9})
	b.wantLeft("leaf", weir.Tokens{"rpm": 6})
}

func TestDepth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 10))
	var ids []string
	for i := range weir.MaxDepth {
		ids = append(ids, fmt.Sprint("e", i))
	}
	b.chain(ids...)
	lease := b.take("e0", weir.Tokens{"rpm": 4})
	if n := len(lease.Decision().Statuses); n != weir.MaxDepth {
		t.Errorf("%d statuses, want %d", n, weir.MaxDepth)
	}
	for _, id := range ids {
		b.wantLeft(id, weir.Tokens{"rpm": 6})
	}
	must(t, lease.Rollback(b.ctx))
	for _, id := range ids {
		b.wantLeft(id, weir.Tokens{"rpm": 10})
	}
	// A catalog in which other software made a chain too deep, or a cycle, is reported as an error and not followed forever.
	space := func(id, parent string) store.Write {
		return store.Write{Record: store.Record{
			Key:   store.Key{Namespace: "default", Kind: store.KindEntity, ID: id},
			Value: fmt.Appendf(nil, `{"parent":%q,"cascade":true}`, parent), Parent: parent,
		}}
	}
	must(t, b.fake.Commit(b.ctx, space("deep", "e0"), space("ring", "ring2"), space("ring2", "ring")))
	for _, id := range []string{"deep", "ring"} {
		_, err := b.Acquire(b.ctx, weir.Request{Entity: id, Resource: "api"})
		wantConfigError(t, err, "entity")
	}
	b.wantLeft("e0", weir.Tokens{"rpm": 10})
}

// A level without limits is not charged, but the levels above it are.
func TestLinkWithoutLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("leaf", "mid", "top")
	b.set("leaf", "", weir.PerMinute("rpm", 10))
	b.set("top", "", weir.PerMinute("rpm", 2))
	b.take("leaf", weir.Tokens{"rpm": 2})
	over := b.refused("leaf", weir.Tokens{"rpm": 1})
	if len(over.Statuses) != 2 || over.Statuses[1].Entity != "top" || !over.Statuses[1].Refused {
		t.Errorf("statuses %+v", over.Statuses)
	}
}

// Limits that only the parent has can be requested, and belong to the parent.
func TestLimitsOfTheParentOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("leaf", "top")
	b.set("leaf", "", weir.PerMinute("rpm", 10))
	b.set("top", "", weir.PerMinute("tpm", 100))
	lease := b.take("leaf", weir.Tokens{"rpm": 1, "tpm": 30})
	must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"tpm": 10})))
	b.wantLeft("leaf", weir.Tokens{"rpm": 9})
	b.wantLeft("top", weir.Tokens{"tpm": 60})
}

// A refusal by one level of a chain costs the other levels nothing, however often it happens.
func TestRefusalsOfAChain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		child, parent int64
		refuses       string
	}{
		{"the parent refuses", 1000, 10, "parent"},
		{"the child refuses", 5, 15, "child"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.child("parent", "")
			b.child("child", "parent")
			b.child("sibling", "parent")
			b.set("child", "", weir.PerHour("rpm", tt.child))
			b.set("sibling", "", weir.PerHour("rpm", 100))
			b.set("parent", "", weir.PerHour("rpm", tt.parent))
			spent := min(tt.child, tt.parent)
			b.take("child", weir.Tokens{"rpm": spent})
			for range 1000 {
				over := b.refused("child", weir.Tokens{"rpm": 1})
				if over.RetryAfter != over.Statuses[0].RetryAfter+over.Statuses[1].RetryAfter {
					t.Fatalf("%+v", over.Statuses) // one of them is 0
				}
				for _, s := range over.Statuses {
					if s.Source != weir.SourceEntityDefault || s.Refused != (s.Entity == tt.refuses) || s.Requested != 1 {
						t.Fatalf("%+v", s)
					}
				}
			}
			b.wantLeft("child", weir.Tokens{"rpm": tt.child - spent})
			b.wantLeft("parent", weir.Tokens{"rpm": tt.parent - spent})
			if tt.refuses == "child" { // the sibling gets its 10 of 10
				for range 10 {
					b.take("sibling", weir.Tokens{"rpm": 1})
				}
				b.refused("sibling", weir.Tokens{"rpm": 1})
			}
		})
	}
}

// One RetryAfter holds for the whole chain: until then at least one level refuses, after that none does.
func TestRetryAfterOfAChain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("leaf", "mid", "top")
	b.set("leaf", "", weir.PerMinute("rpm", 60), weir.PerHour("rph", 60))
	b.set("mid", "", weir.PerMinute("rpm", 30))
	b.set("top", "api", weir.PerDay("rpm", 24))
	all := weir.Tokens{"rpm": 24, "rph": 60}
	b.take("leaf", all)
	over := b.refused("leaf", weir.Tokens{"rpm": 7, "rph": 1})
	want := map[string]time.Duration{
		"leaf rpm": 0, "leaf rph": time.Minute, "mid rpm": 2 * time.Second, "top rpm": 7 * time.Hour,
	}
	sources := map[string]weir.Source{"leaf": weir.SourceEntityDefault, "mid": weir.SourceEntityDefault, "top": weir.SourceEntity}
	for _, s := range over.Statuses {
		if got := s.RetryAfter; got != want[s.Entity+" "+s.Limit] || s.Source != sources[s.Entity] || s.Refused != (got > 0) {
			t.Errorf("%+v", s)
		}
	}
	if len(over.Statuses) != 4 || over.RetryAfter != 7*time.Hour {
		t.Fatalf("retry after %v, statuses %+v", over.RetryAfter, over.Statuses)
	}
	b.clock.advance(7*time.Hour - 1)
	b.refused("leaf", weir.Tokens{"rpm": 7, "rph": 1})
	b.clock.advance(1)
	b.take("leaf", weir.Tokens{"rpm": 7, "rph": 1})
}

func TestIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 1))
	ns, err := b.admin.Namespaces.Create(b.ctx, "alpha")
	must(t, err)
	alpha := b.In("alpha")
	if alpha.Namespace() != "alpha" || b.Namespace() != "default" || alpha.In("default").Namespace() != "default" {
		t.Error("wrong names")
	}
	req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 1}}
	_, err = alpha.Acquire(b.ctx, req) // limits of the default namespace do not apply in alpha
	wantErr(t, err, weir.ErrNoLimits)
	must(t, admin.New(alpha).Limits.Set(b.ctx, admin.Scope{}, weir.PerMinute("rpm", 2)))
	b.take("alice", weir.Tokens{"rpm": 1})
	for range 2 {
		_, err := alpha.Acquire(b.ctx, req)
		must(t, err)
	}
	_, err = alpha.Acquire(b.ctx, req)
	wantErr(t, err, weir.ErrExceeded)
	b.refused("alice", weir.Tokens{"rpm": 1})

	// A caller that uses the opaque ID sees the same bucket, and never reads the registry.
	pinned := b.peer(func(c *weir.Config) { c.Namespace, c.NamespaceID = "alpha", ns.ID })
	_, err = pinned.Acquire(b.ctx, req)
	wantErr(t, err, weir.ErrExceeded)
	_, _, keys := pinned.fake.counts()
	for _, k := range keys {
		if k.Namespace != ns.ID {
			t.Errorf("read %v", k)
		}
	}
	if len(keys) == 0 {
		t.Error("read nothing")
	}
}

func TestInUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 1))
	ghost := b.In("ghost")
	req := weir.Request{Entity: "alice", Resource: "api", OnUnavailable: weir.OnUnavailableAllow}
	calls := map[string]func() error{
		"Acquire":    func() error { _, err := ghost.Acquire(b.ctx, req); return err },
		"AcquireAll": func() error { _, err := ghost.AcquireAll(b.ctx, []weir.Request{req}); return err },
		"Wait":       func() error { _, err := ghost.Wait(b.ctx, req); return err },
		"Allow":      func() error { _, err := ghost.Allow(b.ctx, "alice", "api"); return err },
		"Available":  func() error { _, err := ghost.Available(b.ctx, "alice", "api"); return err },
		"SetLimits":  func() error { return admin.New(ghost).Limits.Set(b.ctx, admin.Scope{}, weir.PerMinute("rpm", 1)) },
		"Resume": func() error {
			_, err := ghost.LeaseFromToken(b.ctx, weir.LeaseToken{ID: "x", Expires: noon})
			return err
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, weir.ErrNotFound) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, kind := range []store.Kind{store.KindNamespace, store.KindNamespaceID, store.KindAudit} {
		if page, err := b.fake.List(b.ctx, store.Query{Namespace: store.Registry, Kind: kind}); err != nil || len(page.Records) > 0 {
			t.Errorf("%s: %v, %v", kind, page, err)
		}
	}
	_, err := b.In("bad\nname").Acquire(b.ctx, req)
	wantConfigError(t, err, "namespace")

	// Once a namespace is created, every view sees it, including views that were told that it does not exist.
	_, err = b.admin.Namespaces.Create(b.ctx, "ghost")
	must(t, err)
	must(t, admin.New(ghost).Limits.Set(b.ctx, admin.Scope{}, weir.PerMinute("rpm", 1)))
	must(t, calls["Acquire"]())
}
