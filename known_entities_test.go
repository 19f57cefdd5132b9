package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

func (b *bundle) knownOnly() {
	b.t.Helper()
	must(b.t, b.admin.Limits.SetEntities(b.ctx, admin.KnownEntities))
}

// In a namespace of known entities, an invented name costs no write, whatever the request brings, and nothing admits it
// while the store does not answer.
func TestKnownEntities(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 10))
		b.set("limited", "", weir.PerMinute("rpm", 10)) // limits alone do not make an entity
		b.chain("child", "parent")
		must(t, b.admin.Limits.SetOnUnavailable(b.ctx, admin.Scope{}, weir.OnUnavailableAllow))
		b.take("mallory", one)
		b.knownOnly()
		b.take("child", one)
		b.fake.counts()
		for _, entity := range []string{"mallory", "mallory", "eve", "limited"} {
			for _, r := range []weir.Request{
				{Entity: entity, Resource: "api", Tokens: one},
				{Entity: entity, Resource: "api", Tokens: one, Limits: []weir.Limit{weir.PerMinute("rpm", 5)}},
			} {
				_, err := b.Acquire(b.ctx, r)
				wantErr(t, err, weir.ErrUnknownEntity)
			}
			_, err := b.Allow(b.ctx, entity, "api")
			wantErr(t, err, weir.ErrUnknownEntity)
			_, err = b.AcquireAll(b.ctx, []weir.Request{{Entity: "child", Resource: "api"}, {Entity: entity, Resource: "api"}})
			wantErr(t, err, weir.ErrUnknownEntity)
			if _, err := b.Available(b.ctx, entity, "api"); !errors.Is(err, weir.ErrUnknownEntity) {
				t.Errorf("available: %v", err)
			}
		}
		if reads, takes, _ := b.fake.counts(); takes > 0 || reads > 6 {
			t.Errorf("%d takes, %d reads for three names", takes, reads)
		}
		b.fake.does(func(f *fakeStore) {
			down := errors.New("down")
			f.get = func(context.Context, ...store.Key) (store.Got, error) { return store.Got{}, down }
			f.take = func(context.Context, store.Take) (store.Outcome, error) { return store.Outcome{}, down }
		})
		for entity, admitted := range map[string]bool{"child": true, "eve": false, "never seen": false} {
			if _, err := b.Acquire(b.ctx, weir.Request{Entity: entity, Resource: "api"}); (err == nil) != admitted {
				t.Errorf("%s while the store is down: %v", entity, err)
			}
		}
	})
}

// A new entity is known at once, also elsewhere, except to a process that has refused it: within CacheTTL, give or take a
// tenth.
func TestNewEntityIsKnown(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 1000))
		b.knownOnly()
		refused, fresh := b.peer(), b.peer()
		for _, p := range []*bundle{b, refused} {
			_, err := p.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
			wantErr(t, err, weir.ErrUnknownEntity)
		}
		b.child("alice", "")
		b.take("alice", one)
		fresh.take("alice", one)
		time.Sleep(66*time.Second + 1)
		refused.take("alice", one)
		must(t, b.admin.Limits.SetEntities(b.ctx, admin.AnyEntity))
		b.take("mallory", one)
	})
}

// A flood of invented names reads the store 1,000 times, and then 100 times a second. Entities that are cached, and other
// namespaces, go on as before.
func TestFloodOfNames(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 100_000))
		b.knownOnly()
		b.chain("alice")
		b.chain("cold")
		b.take("alice", one)
		if _, err := b.admin.Namespaces.Create(b.ctx, "other"); err != nil {
			t.Fatal(err)
		}
		other := b.In("other")
		must(t, admin.New(other).Limits.Set(b.ctx, admin.Scope{}, weir.PerMinute("rpm", 100_000)))
		b.fake.counts()
		unknown, overloaded := 0, 0
		for second := range 10 {
			for i := range 1000 {
				_, err := b.Acquire(b.ctx, weir.Request{Entity: fmt.Sprint("invented", second, "-", i), Resource: "api"})
				switch {
				case errors.Is(err, weir.ErrUnknownEntity):
					unknown++
				case errors.Is(err, weir.ErrOverloaded):
					overloaded++
				default:
					t.Fatal(err)
				}
			}
			b.take("alice", one)
			time.Sleep(time.Second)
		}
		if reads, takes, _ := b.fake.counts(); reads > 1000+10*100+10 || takes != 10 || unknown < 1900 || unknown+overloaded != 10_000 {
			t.Errorf("%d reads, %d takes, %d unknown, %d overloaded", reads, takes, unknown, overloaded)
		}
		b.take("cold", one) // a second after the flood
		for i := range 2000 {
			if _, err := other.Acquire(b.ctx, weir.Request{Entity: fmt.Sprint("e", i), Resource: "api"}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// During a flood of invented names, a change that is announced is in force at the next decision.
func TestFloodHidesNoChange(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 1000))
		b.knownOnly()
		b.chain("alice")
		b.take("alice", one)
		for i := range 1100 {
			_, _ = b.Acquire(b.ctx, weir.Request{Entity: fmt.Sprint("invented", i), Resource: "api"})
		}
		b.peer().set("", "", weir.PerMinute("rpm", 10))
		policies(b.Limiter).Changed(record.SystemKey(weir.DefaultNamespace))
		_, err := b.Acquire(b.ctx, weir.Request{Entity: "another", Resource: "api"})
		wantErr(t, err, weir.ErrOverloaded)
		if st := b.take("alice", one).Decision().Statuses[0]; st.Burst != 10 {
			t.Errorf("%+v", st)
		}
	})
}
