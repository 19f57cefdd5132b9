package weir_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// writes is a store whose commits can be made to fail.
type writes struct {
	store.Store

	fails atomic.Pointer[func(apply func() error) error]
}

func (w *writes) Commit(ctx context.Context, ws ...store.Write) error {
	apply := func() error { return w.Store.Commit(ctx, ws...) }
	if f := w.fails.Load(); f != nil {
		return (*f)(apply)
	}
	return apply()
}

// changing runs f with a limiter over a writes store, in a bubble.
func changing(t *testing.T, f func(b *bundle, w *writes), change ...func(*weir.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &writes{Store: memory.New(nil)}
		change = append([]func(*weir.Config){backstopped(1)}, change...)
		f(setupOn(t, &fakeStore{Store: w}, nil, change...), w)
	})
}

// otherwise makes changes through another process.
func otherwise(b *bundle, change func(other *bundle)) {
	other := setupOn(b.t, &fakeStore{Store: b.fake.Store.(*writes).Store}, nil)
	change(other)
}

var scopes = []admin.Scope{{}, {Resource: "api"}, {Entity: "alice"}, {Entity: "alice", Resource: "api"}}

// A process knows what was set through it, also in an outage that begins right afterwards, whether or not it has used it
// in a decision.
func TestNotedPolicy(t *testing.T) {
	t.Parallel()
	for _, scope := range scopes {
		for _, seen := range []bool{false, true} {
			for _, u := range []weir.OnUnavailable{weir.OnUnavailableDeny, weir.OnUnavailableAllow} {
				changing(t, func(b *bundle, _ *writes) {
					b.set("", "", weir.PerMinute("rpm", 1000))
					b.set("", "api", weir.PerMinute("rpm", 1000))
					if seen {
						b.take("alice", nil)
					}
					b.says(scope.Entity, scope.Resource, u)
					b.fake.does(dark)
					if got := b.answer("alice"); got != u {
						t.Errorf("%+v, seen %v: %s, though it says %s", scope, seen, got, u)
					}
					if got := b.answer("bob"); (got == u) != (scope.Entity == "") {
						t.Errorf("%+v, seen %v: %s for another", scope, seen, got)
					}
				})
			}
		}
	}
}

// The same for limits, including limits that are replaced or deleted.
func TestNotedLimits(t *testing.T) {
	t.Parallel()
	for _, scope := range scopes {
		changing(t, func(b *bundle, _ *writes) {
			burst := func(want int64) {
				t.Helper()
				b.fake.does(dark)
				d := b.take("alice", nil).Decision()
				if !d.Degraded || d.Over < 0 || d.Statuses[0].Burst != want {
					t.Errorf("%+v: %+v, want a burst of %d", scope, d, want)
				}
				b.fake.does(recovers)
			}
			b.set("", "", weir.PerHour("rpm", 100))
			b.take("alice", nil)
			b.set(scope.Entity, scope.Resource, weir.PerHour("rpm", 7))
			burst(7)
			was, err := b.admin.Limits.Get(b.ctx, scope)
			must(t, err)
			must(t, b.admin.Limits.If(was).Set(b.ctx, scope, weir.PerHour("rpm", 9)))
			burst(9)
			b.says(scope.Entity, scope.Resource, weir.OnUnavailableLocal) // the record itself stays
			if scope == (admin.Scope{}) {
				return
			}
			must(t, b.admin.Limits.Delete(b.ctx, scope))
			burst(100)
			b.says(scope.Entity, scope.Resource, weir.OnUnavailableDefault)
			burst(100)
			b.set(scope.Entity, scope.Resource, weir.PerHour("rpm", 5))
			burst(5)
		}, func(c *weir.Config) { c.Cooldown = -1 })
	}
}

// declare sets one record, as a manifest does.
func declare(b *bundle, scope admin.Scope, u weir.OnUnavailable, limits ...weir.Limit) error {
	b.t.Helper()
	found, err := b.admin.Manifests.Lookup(b.ctx, admin.RecordID{Scope: scope})
	must(b.t, err)
	after := admin.Declared{Limits: &admin.ScopedLimits{
		Scope: scope, Limits: limits, Managed: &admin.Managed{Manifest: "m", Hash: "h"},
	}}
	after.Limits.OnUnavailable = u
	return b.admin.Manifests.Declare(b.ctx, []admin.DeclaredChange{{Before: found[0], After: after}})[0]
}

func TestNotedManifest(t *testing.T) {
	t.Parallel()
	for _, scope := range scopes {
		changing(t, func(b *bundle, _ *writes) {
			b.set("", "", weir.PerHour("rpm", 100))
			b.take("alice", nil)
			must(t, declare(b, scope, weir.OnUnavailableLocal, weir.PerHour("rpm", 7)))
			b.fake.does(dark)
			if d := b.take("alice", nil).Decision(); d.Statuses[0].Burst != 7 || d.Statuses[0].Manifest != "m" {
				t.Errorf("%+v: %+v", scope, d)
			}
			b.fake.does(recovers)
			must(t, declare(b, scope, weir.OnUnavailableDeny, weir.PerHour("rpm", 7)))
			b.fake.does(dark)
			if got := b.answer("alice"); got != weir.OnUnavailableDeny {
				t.Errorf("%+v: %s", scope, got)
			}
		}, func(c *weir.Config) { c.Cooldown = -1 })
	}
}

// A change that failed, or may not have been made, changes nothing until it is read.
func TestNotedInDoubt(t *testing.T) {
	t.Parallel()
	conflicts := func(func() error) error {
		return &store.ConflictError{Key: store.Key{Namespace: "default", Kind: store.KindSystem}, Have: 9, Want: 1}
	}
	applied := func(apply func() error) error { return errors.Join(context.DeadlineExceeded, apply()) }
	lost := func(func() error) error { return context.DeadlineExceeded }
	for name, fails := range map[string]func(func() error) error{"conflicts": conflicts, "applied": applied, "lost": lost} {
		for _, scope := range scopes {
			for _, is := range []weir.OnUnavailable{weir.OnUnavailableAllow, weir.OnUnavailableDeny, weir.OnUnavailableDefault} {
				changing(t, func(b *bundle, w *writes) {
					b.set("", "", weir.PerHour("rpm", 1000))
					b.set("", "api", weir.PerHour("rpm", 1000))
					b.says(scope.Entity, scope.Resource, weir.OnUnavailableLocal)
					b.take("alice", nil)
					w.fails.Store(&fails)
					if err := b.admin.Limits.SetOnUnavailable(b.ctx, scope, is); err == nil {
						t.Errorf("%s, %+v: no error", name, scope)
					}
					w.fails.Store(nil)
					b.fake.does(dark)
					if got := b.answer("alice"); got != weir.OnUnavailableLocal {
						t.Errorf("%s, %+v, to %q: %s, want what was known", name, scope, is, got)
					}
					b.fake.does(recovers)
					b.eventually("it is asked", func() bool {
						l, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
						return err == nil && !l.Decision().Degraded
					})
					time.Sleep(3 * time.Second) // real time: none; this is a bubble. The last good record is used for up to two seconds
					if x := b.explained("alice", nil); name == "applied" && is != "" && x.OnUnavailable != is {
						t.Errorf("%+v: in the end %s", scope, x.OnUnavailable)
					}
				})
			}
		}
	}
}

// The same for a parent: it is charged once the change is known.
func TestNotedParents(t *testing.T) {
	t.Parallel()
	changing(t, func(b *bundle, _ *writes) {
		charged := func(want ...string) {
			t.Helper()
			b.fake.does(dark)
			var got []string
			for _, st := range b.take("child", nil).Decision().Statuses {
				got = append(got, st.Entity)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%q are charged, want %q", got, want)
			}
			b.fake.does(recovers)
		}
		b.set("", "", weir.PerHour("rpm", 100))
		b.chain("a", "org")
		b.chain("b", "top")
		for _, e := range []string{"a", "b", "child"} {
			b.take(e, nil)
		}
		must(t, b.admin.Entities.Create(b.ctx, admin.Entity{ID: "child", Parent: "a", Cascade: true}))
		charged("a", "child", "org")
		in := func(parent string, cascade bool) {
			_, err := b.admin.Entities.Update(b.ctx, "child", admin.EntityUpdate{Parent: &parent, Cascade: &cascade})
			must(t, err)
		}
		in("b", true)
		charged("b", "child", "top")
		in("a", false)
		charged("child")
		in("", false)
		charged("child")
	}, func(c *weir.Config) { c.Cooldown = -1 })
}

// A namespace deleted through the process admits nothing more.
func TestNotedNamespace(t *testing.T) {
	t.Parallel()
	changing(t, func(b *bundle, _ *writes) {
		_, err := b.admin.Namespaces.Create(b.ctx, "tenant")
		must(t, err)
		tenant := b.In("tenant")
		must(t, admin.New(tenant).Limits.Set(b.ctx, admin.Scope{}, weir.PerHour("rpm", 10)))
		ask := func() error {
			_, err := b.In("tenant").Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
			return err
		}
		b.fake.does(dark)
		must(t, ask()) // admitted as configured: it was just created
		b.fake.does(recovers)
		time.Sleep(time.Minute) // real time: none; this is a bubble
		must(t, ask())
		must(t, b.admin.Namespaces.Delete(b.ctx, "tenant"))
		b.fake.does(dark)
		wantErr(t, ask(), weir.ErrUnavailable)
		time.Sleep(time.Hour) // real time: none; this is a bubble
		wantErr(t, ask(), weir.ErrUnavailable)
	}, func(c *weir.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
}
