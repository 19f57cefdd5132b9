package weir_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
)

// ofCell is the read that shows whether the store belongs to a cell: one per process and TTL.
const ofCell = 1

// wantReads checks how often the catalog was read since the previous check.
func (b *bundle) wantReads(want int, when string) {
	b.t.Helper()
	if reads, _, keys := b.fake.counts(); reads != want {
		b.t.Errorf("%s: %d reads, want %d: %v", when, reads, want, keys)
	}
}

func TestCacheTTL(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 1000))
		b.fake.counts()
		b.take("alice", one)
		b.wantReads(1+ofCell, "first")
		b.take("alice", one)
		b.take("alice", weir.Tokens{})
		_, err := b.Allow(b.ctx, "alice", "api")
		must(t, err)
		b.wantLeft("alice", weir.Tokens{"rpm": 997})
		b.wantReads(0, "known")
		time.Sleep(8 * time.Second)
		b.take("alice", one)
		b.wantReads(0, "within the TTL")
		time.Sleep(4 * time.Second)
		b.take("alice", one)
		b.wantReads(1+ofCell, "after the TTL")

		_, err = b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: one, Limits: []weir.Limit{weir.PerDay("rpm", 9)}})
		must(t, err)
		b.wantReads(0, "override: entity and system are known")
	}, func(c *weir.Config) { c.CacheTTL = 10 * time.Second })
}

// The absence of limits is cached as well.
func TestCacheNegative(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 3 {
		_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
		wantErr(t, err, weir.ErrNoLimits)
		_, err = b.In("ghost").Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
		wantErr(t, err, weir.ErrNotFound)
		b.wantReads((2+ofCell)*max(0, 1-i), "negative")
	}
}

func TestCacheOff(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *weir.Config) { c.CacheTTL = -1 })
	other := b.peer()
	other.set("", "", weir.PerMinute("rpm", 5))
	b.take("alice", weir.Tokens{"rpm": 5})
	other.set("", "", weir.PerMinute("rpm", 6))
	b.take("alice", one)
	other.set("alice", "", weir.PerMinute("rpm", 7))
	b.take("alice", one)
	b.refused("alice", one)
	if s := b.cacheStats(); s.Entries != 0 || s.Policies != 0 || s.Hits != 0 || s.TTL >= 0 {
		t.Errorf("%+v", s)
	}
}

func TestCacheOneLoader(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 1000))
		b.fake.counts()
		gate := make(chan struct{})
		b.fake.does(func(f *fakeStore) {
			f.get = func(ctx context.Context, keys ...store.Key) (store.Got, error) {
				<-gate
				return f.Store.Get(ctx, keys...)
			}
		})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { b.take("alice", one) })
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		b.wantReads(1+ofCell, "100 callers")
	})
}

// When a bucket follows newer limits, concurrent callers that find out share one read of the catalog.
func TestCacheOneLoaderWhenStale(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 1000))
		b.take("alice", one)
		other := b.peer()
		other.set("", "", weir.PerMinute("rpm", 2000))
		other.take("alice", one)
		b.fake.counts()
		gate := make(chan struct{})
		b.fake.does(func(f *fakeStore) {
			f.take = func(ctx context.Context, take store.Take) (store.Outcome, error) {
				<-gate
				return f.Store.Take(ctx, take)
			}
		})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { b.take("alice", one) })
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		b.wantReads(1, "100 callers")
		b.wantLeft("alice", weir.Tokens{"rpm": 1898})
	})
}

func TestCacheBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *weir.Config) { c.CacheEntries, c.StoreTimeout = 50, time.Minute })
	b.set("", "", weir.PerMinute("rpm", 2))
	for round := range 2 {
		for i := range 500 {
			b.take(fmt.Sprint("e", i), one)
			if s := b.cacheStats(); s.Entries > 50 || s.Policies > 50 {
				t.Fatalf("%+v", s)
			}
		}
		if round == 1 {
			b.refused("e7", one) // buckets outlive plans
		}
	}
}

func TestCacheStats(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 10))
	for range 5 {
		b.take("alice", one)
	}
	s := b.cacheStats()
	if s.TTL != time.Minute || s.Policies != 1 || s.Entries != 6 || s.Misses != 6 || s.Hits != 4 {
		t.Errorf("%+v", s)
	}
	policies(b.Limiter).Expire()
	b.fake.counts()
	b.take("alice", one)
	b.wantReads(1+ofCell, "after Refresh")
	if s := b.cacheStats(); s.Entries != 6 || s.Misses != 12 {
		t.Errorf("after Refresh %+v", s)
	}
}

func TestCacheLastKnownGood(t *testing.T) {
	t.Parallel()
	down := errors.New("the catalog is down")
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 10))
		b.take("alice", one)
		b.fake.does(func(f *fakeStore) {
			f.get = func(context.Context, ...store.Key) (store.Got, error) { return store.Got{}, down }
		})
		time.Sleep(time.Hour)
		b.take("alice", weir.Tokens{"rpm": 10})
		b.refused("alice", weir.Tokens{"rpm": 1})
		_, err := b.Acquire(b.ctx, weir.Request{Entity: "stranger", Resource: "api"})
		wantErr(t, err, weir.ErrUnavailable)
		wantErr(t, err, down)
	})
}

// A change through this limiter takes effect at once, at every level, on live buckets.
func TestChangesAtOnce(t *testing.T) {
	t.Parallel()
	for _, scope := range []admin.Scope{
		{}, {Resource: "api"}, {Entity: "child"}, {Entity: "child", Resource: "api"}, {Entity: "parent"}, {Entity: "parent", Resource: "api"},
	} {
		t.Run(fmt.Sprintf("%+v", scope), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.chain("child", "parent")
			b.set("", "", weir.PerMinute("rpm", 10))
			who := "child"
			if scope.Entity == "parent" {
				who = "parent"
			}
			b.set(scope.Entity, scope.Resource, weir.PerMinute("rpm", 10))
			b.take("child", weir.Tokens{"rpm": 8})
			b.wantLeft(who, weir.Tokens{"rpm": 2})
			change := func(limits ...weir.Limit) { b.set(scope.Entity, scope.Resource, limits...) }

			change(weir.PerMinute("rpm", 9)) // lowered
			b.wantLeft(who, weir.Tokens{"rpm": 1})
			over := b.refused("child", two)
			if s := over.Statuses; s[0].Burst != 9 && s[1].Burst != 9 {
				t.Errorf("%+v", s)
			}
			change(weir.PerMinute("rpm", 5)) // below what is spent: the excess is debt
			b.wantLeft(who, weir.Tokens{"rpm": -3})
			b.refused("child", nil)
			change(weir.PerMinute("rpm", 20)) // raised
			b.wantLeft(who, weir.Tokens{"rpm": 12})
			if scope.Entity != "" { // the other bucket is unchanged
				b.refused("child", weir.Tokens{"rpm": 3})
				b.take("child", two)
			} else {
				b.take("child", weir.Tokens{"rpm": 12})
				b.refused("child", one)
			}

			// A second limit: full at first, and enforced at once.
			change(weir.PerMinute("rpm", 100), weir.PerMinute("tpm", 7))
			b.take("child", weir.Tokens{"tpm": 7})
			b.refused("child", weir.Tokens{"tpm": 1})
			b.wantLeft(who, weir.Tokens{"rpm": b.left(who, "rpm"), "tpm": 0})

			// Once removed, no request can name the limit or be refused by it. When it returns, it still has its debt.
			change(weir.PerMinute("rpm", 100))
			_, err := b.Acquire(b.ctx, weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"tpm": 1}})
			wantConfigError(t, err, "tokens.tpm")
			b.take("child", nil)
			change(weir.PerMinute("rpm", 100), weir.PerMinute("tpm", 7))
			b.refused("child", weir.Tokens{"tpm": 1})

			must(t, b.admin.Limits.Delete(b.ctx, scope))
			if scope == (admin.Scope{}) {
				_, err := b.Acquire(b.ctx, weir.Request{Entity: "child", Resource: "api"})
				wantErr(t, err, weir.ErrNoLimits)
			} else {
				b.wantLeft(who, weir.Tokens{"rpm": b.left(who, "rpm")})
			}
		})
	}
}

// left returns what a limit of an entity has available on "api".
func (b *bundle) left(entity, limit string) int64 {
	b.t.Helper()
	av, err := b.Available(b.ctx, entity, "api")
	must(b.t, err)
	for _, s := range av.Statuses {
		if s.Entity == entity && s.Limit == limit {
			return s.Available
		}
	}
	b.t.Fatalf("%s has no %s", entity, limit)
	return 0
}

// CacheEntries bounds what is cached of all namespaces together.
func TestCacheEntriesOfAllNamespaces(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		for i := range 5 {
			name := fmt.Sprint("tenant-", i)
			_, err := b.admin.Namespaces.Create(b.ctx, name)
			must(t, err)
			lim := b.In(name)
			must(t, admin.New(lim).Limits.Set(b.ctx, admin.Scope{}, weir.PerMinute("rpm", 10)))
			for entity := range 100 {
				_, err := lim.Acquire(b.ctx, weir.Request{Entity: fmt.Sprint(entity), Resource: "api", Tokens: one})
				must(t, err)
			}
		}
		if s := b.cacheStats(); s.Policies > 100 || s.Entries > 100 {
			t.Errorf("%+v", s)
		}
	}, func(c *weir.Config) { c.CacheEntries = 100 })
}

// A change through another limiter takes effect within the TTL, without any notification.
func TestChangesElsewhereWithinTTL(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.chain("child", "parent")
		b.set("", "", weir.PerHour("rpm", 10))
		b.take("child", one)
		other := b.peer()
		other.set("parent", "", weir.PerHour("rpm", 5))
		_, err := other.admin.Entities.Update(b.ctx, "child", admin.EntityUpdate{Name: new("x")})
		must(t, err)
		time.Sleep(11 * time.Second)
		b.take("child", weir.Tokens{"rpm": 4})
		b.refused("child", one)
		other.child("grand", "")
		_, err = other.admin.Entities.Update(b.ctx, "parent", admin.EntityUpdate{Parent: new("grand"), Cascade: new(true)})
		must(t, err)
		other.set("parent", "", weir.PerHour("rpm", 100))
		time.Sleep(11 * time.Second)
		b.take("child", one)
		if got := b.left("grand", "rpm"); got != 9 {
			t.Errorf("grand has %d left", got)
		}
	}, func(c *weir.Config) { c.CacheTTL = 10 * time.Second })
}

// Once a limiter that knows the new limits has debited the bucket, no limiter debits it under the old ones.
func TestChangesElsewhereAtTheNextDebit(t *testing.T) {
	t.Parallel()
	for _, scope := range []admin.Scope{{}, {Resource: "api"}, {Entity: "child"}, {Entity: "parent", Resource: "api"}} {
		t.Run(fmt.Sprintf("%+v", scope), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.chain("child", "parent")
			b.set("", "", weir.PerHour("rpm", 100))
			b.set(scope.Entity, scope.Resource, weir.PerHour("rpm", 50))
			b.take("child", weir.Tokens{"rpm": 5})
			other := b.peer()
			other.set(scope.Entity, scope.Resource, weir.PerHour("rpm", 10), weir.PerHour("tpm", 20))
			other.take("child", weir.Tokens{"tpm": 1})

			over := b.refused("child", weir.Tokens{"rpm": 6})
			limits := map[string]int64{}
			for _, s := range over.Statuses {
				limits[s.Limit] = max(limits[s.Limit], 1) * s.Burst
			}
			if limits["rpm"] != 10*100 && limits["rpm"] != 10*10 || limits["tpm"] == 0 {
				t.Errorf("%+v", over.Statuses)
			}
			if ok, err := b.Allow(b.ctx, "child", "api"); !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
			_, err := b.AcquireAll(b.ctx, []weir.Request{{Entity: "child", Resource: "api", Tokens: weir.Tokens{"rpm": 5}}})
			wantErr(t, err, weir.ErrExceeded)
			b.take("child", weir.Tokens{"rpm": 4, "tpm": 19})
			b.refused("child", weir.Tokens{"tpm": 1})
		})
	}
}

// If a limiter with a warm cache has changed an entity's own limits, a stale limiter does not revert them.
func TestStaleDoesNotTakeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.peer()
	for _, x := range []*bundle{b, other} {
		x.set("alice", "api", weir.PerHour("rpm", 100))
		x.take("alice", one)
	}
	other.set("alice", "api", weir.PerHour("rpm", 10))
	other.take("alice", one)
	over := b.refused("alice", weir.Tokens{"rpm": 8})
	if over.Statuses[0].Burst != 10 {
		t.Errorf("%+v", over.Statuses)
	}
}

// A limiter that has just read one level, but not the levels before it, does not count as knowing the newest limits.
func TestOldAbsenceIsOld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "api", weir.PerHour("rpm", 100))
	b.take("alice", one) // the absence of limits for alice is cached
	other := b.peer()
	other.set("alice", "", weir.PerHour("rpm", 10))
	other.take("alice", one)
	b.set("", "api", weir.PerHour("rpm", 90)) // read again, and newer than what the other limiter has
	over := b.refused("alice", weir.Tokens{"rpm": 9})
	if s := over.Statuses[0]; s.Burst != 10 || s.Source != weir.SourceEntityDefault {
		t.Errorf("%+v", s)
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.peer()
	other.set("", "", weir.PerMinute("rpm", 10))
	b.take("alice", one)
	other.set("", "", weir.PerMinute("rpm", 5))
	b.take("alice", weir.Tokens{"rpm": 4})
	b.take("alice", one) // under the old limit: the bucket does not know the new one yet
	ns, err := other.admin.Namespaces.Create(b.ctx, "alpha")
	must(t, err)
	view := b.In("alpha")
	must(t, admin.New(view).Limits.Set(b.ctx, admin.Scope{}, weir.PerMinute("rpm", 1)))
	must(t, other.admin.Namespaces.Delete(b.ctx, ns.Name))
	_, err = view.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
	must(t, err)
	policies(b.Limiter).Expire()
	b.wantLeft("alice", weir.Tokens{"rpm": -1})
	b.refused("alice", one)
	_, err = view.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
	wantErr(t, err, weir.ErrNotFound)
}

// A change lands during a load: the loaded value may be old, and is not cached.
func TestChangeWhileLoading(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("alice", "", weir.PerMinute("rpm", 100))
		gate := make(chan struct{})
		b.fake.does(func(f *fakeStore) {
			f.get = func(ctx context.Context, keys ...store.Key) (store.Got, error) {
				got, err := f.Store.Get(ctx, keys...)
				<-gate // read, but not answered yet
				return got, err
			}
		})
		var wg sync.WaitGroup
		wg.Go(func() { b.take("alice", one) }) // began before the change: may see either value
		synctest.Wait()
		b.fake.does(func(f *fakeStore) { f.get = nil })
		b.set("alice", "", weir.PerMinute("rpm", 10))
		close(gate)
		wg.Wait()
		b.refused("alice", weir.Tokens{"rpm": 10})
		b.wantLeft("alice", weir.Tokens{"rpm": 9})
	})
}
