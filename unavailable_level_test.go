package weir_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// says sets on_unavailable of a scope.
func (b *bundle) says(entity, resource string, u weir.OnUnavailable) {
	b.t.Helper()
	must(b.t, b.admin.Limits.SetOnUnavailable(b.ctx, admin.Scope{Entity: entity, Resource: resource}, u))
}

// answer returns the outcome of requests of an entity on "api" under the current settings, and fails the test unless
// every kind of call agrees.
func (b *bundle) answer(entity string) weir.OnUnavailable {
	b.t.Helper()
	req := weir.Request{Entity: entity, Resource: "api"}
	lease, err := b.Acquire(b.ctx, req)
	got := weir.OnUnavailableDeny
	switch {
	case err == nil && lease.Decision().Over < 0 && len(lease.Decision().Statuses) == 0:
		got = weir.OnUnavailableAllow
	case err == nil && lease.Decision().Degraded:
		got = weir.OnUnavailableLocal
	case !errors.Is(err, weir.ErrUnavailable):
		b.t.Errorf("%s: %v", entity, err)
	}
	_, err = b.AcquireAll(b.ctx, []weir.Request{req})
	_, waited := b.Wait(b.ctx, req)
	_, allowed := b.Allow(b.ctx, entity, "api")
	for _, err := range []error{err, waited, allowed} {
		if errors.Is(err, weir.ErrUnavailable) != (got == weir.OnUnavailableDeny) {
			b.t.Errorf("%s: %v, but Acquire says %s", entity, err, got)
		}
	}
	return got
}

// Of the levels at which limits are looked up, the first that sets on_unavailable counts, whichever has the limits.
func TestOnUnavailableLevels(t *testing.T) {
	t.Parallel()
	const unset = weir.OnUnavailableDefault
	for _, tt := range []struct{ entity, general, resource, system, config, want weir.OnUnavailable }{
		{unset, unset, unset, unset, weir.OnUnavailableLocal, weir.OnUnavailableLocal},
		{unset, unset, unset, weir.OnUnavailableAllow, weir.OnUnavailableLocal, weir.OnUnavailableAllow},
		{unset, unset, weir.OnUnavailableDeny, weir.OnUnavailableAllow, weir.OnUnavailableLocal, weir.OnUnavailableDeny},
		{unset, weir.OnUnavailableLocal, weir.OnUnavailableDeny, weir.OnUnavailableAllow, weir.OnUnavailableDeny, weir.OnUnavailableLocal},
		{weir.OnUnavailableAllow, weir.OnUnavailableLocal, weir.OnUnavailableDeny, weir.OnUnavailableDeny, weir.OnUnavailableDeny, weir.OnUnavailableAllow},
		{weir.OnUnavailableLocal, unset, unset, weir.OnUnavailableDeny, weir.OnUnavailableAllow, weir.OnUnavailableLocal},
	} {
		for _, limited := range []admin.Scope{{}, {Entity: "alice", Resource: "api"}, {Entity: "alice"}} {
			bubble(t, func(b *bundle) {
				b.set(limited.Entity, limited.Resource, weir.PerMinute("rpm", 1000))
				b.says("alice", "api", tt.entity)
				b.says("alice", "", tt.general)
				b.says("", "api", tt.resource)
				b.says("", "", tt.system)
				x := b.explained("alice", nil)
				if x.OnUnavailable != tt.want {
					t.Errorf("%+v: explained as %s from %s", tt, x.OnUnavailable, x.OnUnavailableFrom)
				}
				b.take("alice", nil)
				b.fake.does(takeFails(errDown))
				if got := b.answer("alice"); got != tt.want {
					t.Errorf("%+v, limits of %+v: %s", tt, limited, got)
				}
			}, func(c *weir.Config) { c.OnUnavailable = tt.config })
		}
	}
}

// If the entities of a chain differ, the strictest setting counts; entities that are not charged do not count.
func TestOnUnavailableOfChain(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.chain("child", "team", "org")
		b.set("child", "", weir.PerMinute("rpm", 1000))
		b.set("org", "", weir.PerMinute("rpm", 1000))
		want := func(u weir.OnUnavailable, from string) {
			t.Helper()
			b.fake.does(recovers)
			if x := b.explained("child", nil); x.OnUnavailable != u || x.OnUnavailableFrom != from {
				t.Errorf("explained as %s from %s, want %s from %s", x.OnUnavailable, x.OnUnavailableFrom, u, from)
			}
			b.take("child", nil)
			b.fake.does(takeFails(errDown))
			if got := b.answer("child"); got != u {
				t.Errorf("%s, want %s", got, u)
			}
		}
		want(weir.OnUnavailableAllow, "config")
		b.says("team", "", weir.OnUnavailableDeny) // it has no limits, so it is not charged
		want(weir.OnUnavailableAllow, "config")
		b.says("org", "", weir.OnUnavailableLocal)
		want(weir.OnUnavailableLocal, "entity-default")
		b.says("child", "api", weir.OnUnavailableDeny)
		want(weir.OnUnavailableDeny, "entity")
		b.says("child", "api", weir.OnUnavailableAllow)
		want(weir.OnUnavailableLocal, "entity-default")
		b.says("org", "", weir.OnUnavailableDeny)
		want(weir.OnUnavailableDeny, "entity-default")
	}, func(c *weir.Config) { c.OnUnavailable, c.Cooldown = weir.OnUnavailableAllow, -1 })
}

// A request with its own limits uses the same setting as any other of its entity, also if its limits cannot be read.
func TestOnUnavailableOfOverride(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set  func(b *bundle)
		want weir.OnUnavailable
		from string
	}{
		"none":           {func(*bundle) {}, weir.OnUnavailableAllow, "config"},
		"resource":       {func(b *bundle) { b.says("", "api", weir.OnUnavailableDeny) }, weir.OnUnavailableDeny, "resource"},
		"entity default": {func(b *bundle) { b.says("alice", "", weir.OnUnavailableDeny) }, weir.OnUnavailableDeny, "entity-default"},
		"entity": {func(b *bundle) {
			b.says("", "api", weir.OnUnavailableAllow)
			b.says("alice", "api", weir.OnUnavailableDeny)
		}, weir.OnUnavailableDeny, "entity"},
		"entity, unreadable": {func(b *bundle) {
			key := store.Key{Namespace: "default", Kind: store.KindEntityLimits, ID: "alice", Sub: "api"}
			must(t, b.fake.Commit(b.ctx, store.Write{Record: store.Record{Key: key, Value: []byte("?")}}))
		}, weir.OnUnavailableDeny, "entity"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(b *bundle) {
				req := with(weir.PerMinute("rpm", 10))(one)
				tt.set(b)
				b.takeFor(req)
				x, err := b.Explain(b.ctx, req)
				must(t, err)
				if x.OnUnavailable != tt.want || x.OnUnavailableFrom != tt.from {
					t.Errorf("explained as %s from %s", x.OnUnavailable, x.OnUnavailableFrom)
				}
				for _, fail := range []func(*fakeStore){takeFails(errDown), dark} {
					b.fake.does(fail)
					time.Sleep(time.Hour) // real time: none, the test is in a bubble
					if _, err := b.Acquire(b.ctx, req); errors.Is(err, weir.ErrUnavailable) != (tt.want == weir.OnUnavailableDeny) {
						t.Error(err)
					}
				}
			}, func(c *weir.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
		})
	}
}

// A cached setting stays in use after it expires; for an entity that was never seen, the resource's setting applies.
func TestOnUnavailableIsRemembered(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 10))
		b.says("", "api", weir.OnUnavailableDeny)
		b.says("vip", "", weir.OnUnavailableAllow)
		b.take("alice", nil)
		b.take("vip", nil)
		time.Sleep(time.Hour)
		b.fake.does(dark)
		for _, entity := range []string{"alice", "stranger"} {
			if got := b.answer(entity); got != weir.OnUnavailableDeny {
				t.Errorf("%s: %s", entity, got)
			}
		}
		if got := b.answer("vip"); got != weir.OnUnavailableAllow {
			t.Errorf("vip: %s", got)
		}
		if _, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "other"}); err != nil { // as configured
			t.Error(err)
		}
	}, func(c *weir.Config) { c.OnUnavailable, c.DecideWithin = weir.OnUnavailableAllow, 10*time.Millisecond })
}

// A file with the last known configuration counts from the start.
func TestOnUnavailableFromLastGood(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.knows(func(keys []store.Key) (got store.Got, ok bool) {
			for _, k := range keys {
				text := map[store.Key]string{
					{Namespace: store.Registry, Kind: store.KindNamespace, ID: "tenant"}: `{"id":"n1","created":"2026-01-01T00:00:00Z"}`,
					{Namespace: "n1", Kind: store.KindSystem}:                            `{"limits":[{"name":"rpm","amount":7,"period":"min"}]}`,
					{Namespace: "n1", Kind: store.KindResourceLimits, ID: "login"}:       `{"on_unavailable":"deny"}`,
				}[k]
				r := store.Record{Key: k}
				if text != "" {
					r.Version, r.Value = 1, []byte(text)
				}
				got.Records = append(got.Records, r)
			}
			return got, true
		})
		b.fake.does(dark)
		lim := b.In("tenant")
		for i, what := range []string{"asked", "not asked: the breaker is open"} {
			if i > 0 {
				b.eventually("it opens", func() bool {
					_, _ = b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
					return b.outageStats().Breaker == "open"
				})
			}
			_, err := lim.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "login"})
			wantErr(t, err, weir.ErrUnavailable)
			lease, err := lim.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
			if err != nil || len(lease.Decision().Statuses) != 1 {
				t.Errorf("%s: %v", what, err)
			}
		}
	}, func(c *weir.Config) {
		c.OnUnavailable, c.DecideWithin, c.Cooldown = weir.OnUnavailableLocal, 10*time.Millisecond, time.Hour
	})
}

// If a level sets local, shares are kept warm from then on, so an outage hands out no fresh burst.
func TestOnUnavailableLocalIsWarm(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 10))
		b.says("", "api", weir.OnUnavailableLocal)
		b.take("alice", weir.Tokens{"rpm": 10})
		b.fake.does(dark)
		b.refused("alice", one)
	})
}

// Limits and on_unavailable do not affect each other, at any level.
func TestOnUnavailableAndLimits(t *testing.T) {
	t.Parallel()
	for _, scope := range []admin.Scope{{Resource: "api"}, {Entity: "alice"}, {Entity: "alice", Resource: "api"}} {
		lim, ctx := memoryLimiter(t), t.Context()
		check := func(limits int, u weir.OnUnavailable) {
			t.Helper()
			got, err := admin.New(lim).Limits.Get(ctx, scope)
			must(t, err)
			if len(got.Limits) != limits || got.OnUnavailable != u {
				t.Errorf("%+v: got %+v, want %d limits and %q", scope, got, limits, u)
			}
		}
		must(t, admin.New(lim).Limits.SetOnUnavailable(ctx, scope, weir.OnUnavailableDeny))
		check(0, weir.OnUnavailableDeny)
		_, err := lim.Acquire(ctx, weir.Request{Entity: "alice", Resource: "api"})
		wantErr(t, err, weir.ErrNoLimits)
		wantErr(t, admin.New(lim).Limits.Delete(ctx, scope), weir.ErrNotFound)
		must(t, admin.New(lim).Limits.Set(ctx, scope, weir.PerMinute("rpm", 1)))
		check(1, weir.OnUnavailableDeny)
		must(t, admin.New(lim).Limits.Delete(ctx, scope))
		check(0, weir.OnUnavailableDeny)
		must(t, admin.New(lim).Limits.SetOnUnavailable(ctx, scope, weir.OnUnavailableDefault))
		_, err = admin.New(lim).Limits.Get(ctx, scope)
		wantErr(t, err, weir.ErrNotFound)
		wantConfigError(t, admin.New(lim).Limits.SetOnUnavailable(ctx, scope, "maybe"), "on_unavailable")
		page, err := admin.New(lim).Audit.List(ctx, admin.AuditQuery{})
		must(t, err)
		if n := len(page.Items); n != 4 || page.Items[0].Action != "limits.on_unavailable" {
			t.Errorf("%+v: %d events, %+v", scope, n, page.Items)
		}
	}
}

// A record written by a newer weir, with an on_unavailable value that this version does not know, denies.
func TestOnUnavailableOfNewerWeir(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 10))
		key := store.Key{Namespace: "default", Kind: store.KindResourceLimits, ID: "api"}
		must(t, b.fake.Commit(context.Background(), store.Write{Record: store.Record{Key: key, Value: []byte(`{"on_unavailable":"queue"}`)}}))
		b.take("alice", nil)
		b.fake.does(takeFails(errDown))
		if got := b.answer("alice"); got != weir.OnUnavailableDeny {
			t.Error(got)
		}
	}, func(c *weir.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
}

// downStore is a store that never answers a decision.
type downStore struct{ store.Store }

func (downStore) Get(context.Context, ...store.Key) (store.Got, error) {
	return store.Got{}, errors.New("down")
}

// TestUnavailableBadID checks that a malformed id is a mistake even while the store is not called, whatever
// on_unavailable is.
func TestUnavailableBadID(t *testing.T) {
	t.Parallel()
	lim, err := weir.New(weir.Config{Store: downStore{memory.New(nil)}, Cooldown: time.Hour})
	must(t, err)
	defer lim.Close()
	for range 50 {
		_, _ = lim.Acquire(t.Context(), weir.Request{Entity: "a", Resource: "api"})
	}
	for _, mode := range []weir.OnUnavailable{
		weir.OnUnavailableDefault, weir.OnUnavailableDeny, weir.OnUnavailableAllow, weir.OnUnavailableLocal,
	} {
		_, err := lim.Acquire(t.Context(), weir.Request{Entity: "a", Resource: "\xff", OnUnavailable: mode})
		var bad *weir.ConfigError
		if !errors.As(err, &bad) || bad.Field != "resource" {
			t.Errorf("%v: got %v, want a mistake in the resource", mode, err)
		}
		_, err = lim.AcquireAll(t.Context(), []weir.Request{
			{Entity: "a", Resource: "api", OnUnavailable: weir.OnUnavailableAllow},
			{Entity: "", Resource: "api", OnUnavailable: mode},
		})
		var which *weir.RequestError
		if !errors.As(err, &which) || which.Index != 1 || !errors.As(err, &bad) {
			t.Errorf("%v: got %v, want a mistake in the second request", mode, err)
		}
	}
}
