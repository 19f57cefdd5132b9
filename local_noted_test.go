package weir_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// writes is a store whose commits can be made to fail.
type writes struct {
	store.Store

	fails   atomic.Pointer[func(apply func() error) error]
	commits atomic.Int64
}

func (w *writes) Commit(ctx context.Context, ws ...store.Write) error {
	w.commits.Add(1)
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

var scopes = []weir.Scope{{}, {Resource: "api"}, {Entity: "alice"}, {Entity: "alice", Resource: "api"}}

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
			was, err := b.Limits(b.ctx, scope)
			must(t, err)
			must(t, b.ReplaceLimits(b.ctx, was, weir.PerHour("rpm", 9)))
			burst(9)
			b.says(scope.Entity, scope.Resource, weir.OnUnavailableLocal) // the record itself stays
			if scope == (weir.Scope{}) {
				return
			}
			must(t, b.DeleteLimits(b.ctx, scope))
			burst(100)
			b.says(scope.Entity, scope.Resource, weir.OnUnavailableDefault)
			burst(100)
			b.set(scope.Entity, scope.Resource, weir.PerHour("rpm", 5))
			burst(5)
		}, func(c *weir.Config) { c.Cooldown = -1 })
	}
}

// declare sets one record, as a manifest does.
func declare(b *bundle, scope weir.Scope, u weir.OnUnavailable, limits ...weir.Limit) error {
	b.t.Helper()
	before, err := b.Declared(b.ctx, scope)
	must(b.t, err)
	after := declaredLimits(scope, "m", limits...)
	after.Limits.OnUnavailable = u
	return b.Declare(b.ctx, []weir.DeclaredChange{{Before: before, After: after}})[0]
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

// A change that certainly failed changes nothing. A change that may or may not have been made relaxes nothing: the
// stricter of both values counts until the store says which one is set.
func TestNotedInDoubt(t *testing.T) {
	t.Parallel()
	conflicts := func(func() error) error {
		return &store.ConflictError{Key: store.Key{Namespace: "default", Kind: store.KindSystem}, Have: 9, Want: 1}
	}
	applied := func(apply func() error) error { return errors.Join(context.DeadlineExceeded, apply()) }
	lost := func(func() error) error { return context.DeadlineExceeded }
	all := []weir.OnUnavailable{weir.OnUnavailableAllow, weir.OnUnavailableLocal, weir.OnUnavailableDeny} // strictest last
	strictness := func(u weir.OnUnavailable) int {
		return slices.Index(all, cmp.Or(u, weir.OnUnavailableLocal)) // unset means the configured default: a share
	}
	for name, fails := range map[string]func(func() error) error{"conflicts": conflicts, "applied": applied, "lost": lost} {
		for _, scope := range scopes {
			for _, manifest := range []bool{false, true} {
				for _, was := range append(all, weir.OnUnavailableDefault) {
					for _, is := range append(all, weir.OnUnavailableDefault) {
						changing(t, func(b *bundle, w *writes) {
							what := fmt.Sprintf("%s, %+v, by manifest %v, from %q to %q", name, scope, manifest, was, is)
							otherwise(b, func(other *bundle) { // this process has not seen it
								other.set("", "", weir.PerHour("rpm", 1000))
								other.set("", "api", weir.PerHour("rpm", 1000))
								if was != weir.OnUnavailableDefault {
									other.says(scope.Entity, scope.Resource, was)
								}
							})
							b.take("bob", nil)
							w.fails.Store(&fails)
							var err error
							if manifest {
								err = declare(b, scope, is, weir.PerHour("rpm", 1000))
							} else {
								err = b.SetOnUnavailable(b.ctx, scope, is)
							}
							if err == nil && was != is {
								t.Errorf("%s: no error", what)
							}
							w.fails.Store(nil)
							b.fake.does(dark)
							want := all[max(strictness(was), strictness(is))]
							if name == "conflicts" {
								want = all[strictness(was)]
							}
							if got := b.answer("alice"); got != want {
								t.Errorf("%s: %s, want %s", what, got, want)
							}
							b.fake.does(recovers)
							b.eventually("it is asked", func() bool {
								l, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
								return err == nil && !l.Decision().Degraded
							})
							if x := b.explained("alice", nil); name == "applied" && is != "" && x.OnUnavailable != is {
								t.Errorf("%s: in the end %s", what, x.OnUnavailable)
							}
						})
					}
				}
			}
		}
	}
}

// For limits, each limit is the stricter of both versions. If the record may be gone, the next level's limits are included.
func TestNotedLimitsInDoubt(t *testing.T) {
	t.Parallel()
	rpm, tpm := weir.PerHour("rpm", 10), weir.PerHour("tpm", 50)
	for _, scope := range scopes[1:] {
		for name, tt := range map[string]struct{ was, is []weir.Limit }{
			"lower":    {[]weir.Limit{weir.PerHour("rpm", 40), tpm}, []weir.Limit{rpm, tpm}},
			"higher":   {[]weir.Limit{rpm, tpm}, []weir.Limit{weir.PerHour("rpm", 40), tpm}},
			"each":     {[]weir.Limit{rpm, weir.PerHour("tpm", 70)}, []weir.Limit{weir.PerHour("rpm", 40), tpm}},
			"one less": {[]weir.Limit{rpm, tpm}, []weir.Limit{rpm}},
			"one more": {[]weir.Limit{tpm}, []weir.Limit{rpm, tpm}},
			"in parts": {[]weir.Limit{weir.PerHour("rpm", 20).WithBurst(10), tpm}, []weir.Limit{rpm.WithBurst(30), tpm}},
			"shadow":   {[]weir.Limit{rpm, tpm}, []weir.Limit{rpm.WithEnforce(weir.EnforceShadow), tpm}},
			"deleted":  {[]weir.Limit{weir.PerHour("rpm", 200), tpm}, nil},
			"created":  {nil, []weir.Limit{weir.PerHour("rpm", 200), tpm}},
		} {
			for _, applied := range []bool{false, true} {
				changing(t, func(b *bundle, w *writes) {
					b.set("", "", rpm) // the next level
					if tt.was != nil {
						b.set(scope.Entity, scope.Resource, tt.was...)
					}
					b.take("alice", nil)
					fails := func(apply func() error) error {
						if applied {
							return errors.Join(context.DeadlineExceeded, apply())
						}
						return context.DeadlineExceeded
					}
					w.fails.Store(&fails)
					var err error
					if tt.is == nil {
						err = b.DeleteLimits(b.ctx, scope)
					} else {
						err = b.SetLimits(b.ctx, scope, tt.is...)
					}
					if err == nil {
						t.Error("no error")
					}
					w.fails.Store(nil)
					b.fake.does(dark)
					d := b.take("alice", weir.Tokens{"rpm": 10, "tpm": 50}).Decision()
					slices.SortFunc(d.Statuses, func(a, b weir.LimitStatus) int { return int(a.Burst - b.Burst) })
					if len(d.Statuses) != 2 || d.Statuses[0].Burst != 10 || d.Statuses[0].Amount != 10 || d.Statuses[1].Burst != 50 || d.Statuses[0].Shadow {
						t.Errorf("%+v, %s: %+v", scope, name, d)
					}
					b.refused("alice", weir.Tokens{"rpm": 10})
					_, err = b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 11}})
					if !errors.Is(err, weir.ErrUnavailable) { // under the other version, the request may have no limits
						t.Errorf("%+v, %s: a mistake that need not be one: %v", scope, name, err)
					}
				})
			}
		}
	}
}

// The same for a parent that was changed: every entity that may be charged is.
func TestNotedParents(t *testing.T) {
	t.Parallel()
	lost := func(func() error) error { return context.DeadlineExceeded }
	charged := func(b *bundle, want ...string) {
		b.t.Helper()
		b.fake.does(dark)
		d := b.take("child", nil).Decision()
		var got []string
		for _, st := range d.Statuses {
			got = append(got, st.Entity)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			b.t.Errorf("%q are charged, want %q", got, want)
		}
		b.fake.does(recovers)
	}
	changing(t, func(b *bundle, w *writes) {
		b.set("", "", weir.PerHour("rpm", 100))
		b.chain("a", "org")
		b.chain("b", "top")
		b.child("x", "org")
		for _, e := range []string{"a", "b", "x", "child"} {
			b.take(e, nil)
		}
		must(t, b.CreateEntity(b.ctx, weir.Entity{ID: "child", Parent: "a", Cascade: true}))
		charged(b, "a", "child", "org")
		in := func(parent string, cascade bool) error {
			_, err := b.UpdateEntity(b.ctx, "child", weir.EntityUpdate{Parent: &parent, Cascade: &cascade})
			return err
		}
		w.fails.Store(&lost)
		for _, err := range []error{in("b", true), in("a", false)} {
			if err == nil {
				t.Error("no error")
			}
		}
		w.fails.Store(nil)
		charged(b, "a", "b", "child", "org", "top")
		must(t, in("b", true))
		charged(b, "b", "child", "top")
		w.fails.Store(&lost)
		if in("b", false) == nil {
			t.Error("no error")
		}
		w.fails.Store(nil)
		charged(b, "b", "child", "top")
		must(t, in("x", true))
		w.fails.Store(&lost)
		if in("a", true) == nil {
			t.Error("no error")
		}
		w.fails.Store(nil)
		charged(b, "a", "child", "org", "x") // each once
		must(t, in("", false))
		charged(b, "child")
	}, func(c *weir.Config) { c.Cooldown = -1 })
}

// A namespace deleted through the process admits nothing more, and neither does one whose deletion is in doubt.
func TestNotedNamespace(t *testing.T) {
	t.Parallel()
	for _, doubt := range []bool{false, true} {
		changing(t, func(b *bundle, w *writes) {
			_, err := b.CreateNamespace(b.ctx, "tenant")
			must(t, err)
			tenant := b.In("tenant")
			must(t, tenant.SetLimits(b.ctx, weir.Scope{}, weir.PerHour("rpm", 10)))
			ask := func() error {
				_, err := b.In("tenant").Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
				return err
			}
			b.fake.does(dark)
			must(t, ask()) // admitted as configured: it was just created
			b.fake.does(recovers)
			time.Sleep(time.Minute) // real time: none; this is a bubble
			must(t, ask())
			if doubt {
				lost := func(func() error) error { return context.DeadlineExceeded }
				w.fails.Store(&lost)
			}
			if err := b.DeleteNamespace(b.ctx, "tenant"); (err != nil) != doubt {
				t.Error(err)
			}
			b.fake.does(dark)
			wantErr(t, ask(), weir.ErrUnavailable)
			time.Sleep(time.Hour) // real time: none; this is a bubble
			wantErr(t, ask(), weir.ErrUnavailable)
		}, func(c *weir.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
	}
}

// The same if only the system's record is cached.
func TestNotedInDoubtUncached(t *testing.T) {
	t.Parallel()
	for _, after := range []weir.OnUnavailable{weir.OnUnavailableAllow, weir.OnUnavailableDefault} { // the latter removes the record
		changing(t, func(b *bundle, w *writes) {
			b.set("", "api", weir.PerMinute("rpm", 1000))
			b.says("", "", weir.OnUnavailableDeny)
			b.take("alice", nil)
			fail := func(func() error) error { return errDown }
			w.fails.Store(&fail)
			if err := b.SetOnUnavailable(b.ctx, weir.Scope{}, after); err == nil {
				t.Fatal("it was set")
			}
			b.fake.does(dark)
			if got := b.answer("alice"); got != weir.OnUnavailableDeny {
				t.Errorf("%q after a change to %q that may not have been made", got, after)
			}
		}, func(c *weir.Config) { c.CacheTTL, c.OnUnavailable = -1, weir.OnUnavailableAllow })
	}
}
