package weir_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

func (b *bundle) wantBurst(entity string, burst int64, when string) {
	b.t.Helper()
	if got := b.take(entity, weir.Tokens{}).Decision().Statuses[0].Burst; got != burst {
		b.t.Errorf("%s: %s has a burst of %d, want %d", when, entity, got, burst)
	}
}

// A process that is told of a changed record reads that record, and nothing else, before the next decision.
func TestChanged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		entity string
		scope  admin.Scope
		key    store.Key
	}{
		{"entity", "alice", admin.Scope{Entity: "alice", Resource: "api"}, store.Key{Kind: store.KindEntityLimits, ID: "alice", Sub: "api"}},
		{"entity in general", "alice", admin.Scope{Entity: "alice"}, store.Key{Kind: store.KindEntityLimits, ID: "alice", Sub: weir.DefaultResource}},
		{"all of an entity", "alice", admin.Scope{Entity: "alice", Resource: "api"}, store.Key{Kind: store.KindEntityLimits, ID: "alice"}},
		{"resource", "alice", admin.Scope{Resource: "api"}, store.Key{Kind: store.KindResourceLimits, ID: "api"}},
		{"system", "alice", admin.Scope{}, store.Key{Kind: store.KindSystem}},
		{"namespace", "alice", admin.Scope{}, store.Key{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.set("", "", weir.PerMinute("rpm", 10))
			b.set("bob", "api", weir.PerMinute("rpm", 10))
			b.wantBurst("alice", 10, "first")
			b.wantBurst("bob", 10, "first")
			other := b.peer()
			other.set(c.scope.Entity, c.scope.Resource, weir.PerMinute("rpm", 20))
			b.wantBurst("alice", 10, "not told")
			c.key.Namespace = "default"
			policies(b.Limiter).Changed(c.key)
			b.wantBurst("alice", 20, "told")
			b.fake.counts()
			b.wantBurst("alice", 20, "known again")
			b.wantReads(0, "known again")
		})
	}
}

// If a reread fails, the last known value stays in use, unless this process itself changed the record.
func TestChangedKeepsTheLastKnownGood(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 10))
		b.wantBurst("alice", 10, "first")
		b.fake.does(func(f *fakeStore) {
			f.get = func(context.Context, ...store.Key) (store.Got, error) { return store.Got{}, errors.New("away") }
		})
		policies(b.Limiter).Changed(store.Key{Namespace: "default"})
		b.wantBurst("alice", 10, "told")
		policies(b.Limiter).Expire()
		b.wantBurst("alice", 10, "refreshed")
		policies(b.Limiter).ChangedWithin("default", time.Second)
		time.Sleep(2 * time.Second)
		b.wantBurst("alice", 10, "told of something")
		b.fake.does(func(f *fakeStore) { f.get = nil })
		b.peer().set("", "", weir.PerMinute("rpm", 20))
		time.Sleep(3 * time.Second)
		b.wantBurst("alice", 20, "the store is back")
	})
}

// If nothing is cached, the values from outside the process apply until the store answers.
func TestLastGood(t *testing.T) {
	t.Parallel()
	known := map[store.Kind]string{store.KindSystem: `{"limits":[{"name":"rpm","amount":7,"period":"min"}]}`}
	bubble(t, func(b *bundle) {
		b.knows(func(keys []store.Key) (got store.Got, ok bool) {
			for _, k := range keys {
				r := store.Record{Key: k}
				if text := known[k.Kind]; text != "" {
					r.Version, r.Value = 1, []byte(text)
				}
				got.Records = append(got.Records, r)
			}
			return got, true
		})
		b.fake.does(func(f *fakeStore) {
			f.get = func(context.Context, ...store.Key) (store.Got, error) { return store.Got{}, errors.New("away") }
		})
		b.wantBurst("alice", 7, "from what is known")
		known[store.KindEntity] = "not JSON"
		if _, err := b.Acquire(b.ctx, weir.Request{Entity: "bob", Resource: "api"}); err == nil {
			t.Error("what is known and cannot be used counts")
		}
		b.fake.does(func(f *fakeStore) { f.get = nil })
		b.set("", "", weir.PerMinute("rpm", 9))
		time.Sleep(3 * time.Second)
		b.wantBurst("alice", 9, "the store is back")
	})
}

// If one of several records read together is bad, its old value stays in use and the other records still take effect.
func TestUnreadableAmongOthers(t *testing.T) {
	t.Parallel()
	var told atomic.Int64
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 10))
		b.set("", "api", weir.PerMinute("rpm", 20))
		b.wantBurst("alice", 20, "first")
		peer := b.peer()
		peer.set("alice", "", weir.PerMinute("rpm", 30))
		key := store.Key{Namespace: "default", Kind: store.KindResourceLimits, ID: "api"}
		bad := store.Write{Record: store.Record{Key: key, Version: 1, Value: []byte(`{"limits":[{"name":"rpm","amount":0,"period":"min"}]}`)}}
		must(t, b.fake.Commit(b.ctx, bad))
		policies(b.Limiter).Changed(key, store.Key{Namespace: "default", Kind: store.KindEntityLimits, ID: "alice"})
		b.wantBurst("alice", 30, "its own")
		b.wantBurst("bob", 20, "the last known of the resource")
		if told.Load() == 0 {
			t.Error("nobody was told")
		}
		for _, r := range []store.Record{bad.Record, {Key: key, Version: 1, Value: []byte("x")}} {
			if err := policy.Check(r); err == nil || !strings.Contains(err.Error(), "api") {
				t.Errorf("%s: error %v", r.Value, err)
			}
		}
	}, func(c *weir.Config) {
		c.Observer = &weir.Observer{Unreadable: func(context.Context, weir.UnreadableEvent) { told.Add(1) }}
	})
}

// While a change is rolled out, each entity has either the old limit or the new one, never none and never both.
func TestFormer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := weir.PerMinute("rpm", 5).WithEnforce(50)
	l.Former = weir.PerHour("rpm", 100).Rate()
	text, err := json.Marshal(l)
	var again weir.Limit
	if err = errors.Join(err, json.Unmarshal(text, &again)); err != nil || again != l {
		t.Errorf("%s is %+v, error %v", text, again, err)
	}
	b.set("", "", l)
	covered := 0
	for i := range 40 {
		e := fmt.Sprint("e", i)
		want := int64(100)
		if l.EnforcedFor(e) {
			covered++
			want = 5
		}
		b.wantBurst(e, want, "staged")
		b.take(e, weir.Tokens{"rpm": want})
		b.refused(e, one)
		if ok, err := b.Allow(b.ctx, e, "api"); ok || err != nil {
			t.Errorf("%s: %v, %v", e, ok, err)
		}
	}
	if covered == 0 || covered == 40 {
		t.Errorf("%d of 40 entities", covered)
	}
	for name, bad := range map[string]weir.Limit{
		"for all":  weir.PerMinute("rpm", 5).WithEnforce(weir.EnforceOn),
		"for none": weir.PerMinute("rpm", 5).WithEnforce(weir.EnforceShadow),
	} {
		bad.Former = l.Former
		if err := bad.Validate(); err == nil {
			t.Errorf("%s: a former rate is taken", name)
		}
	}
	l.Former.Burst = -1
	if err := l.Validate(); err == nil {
		t.Error("a negative burst is taken")
	}
}
