package weir_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// direct returns a limiter directly on a store in memory, where Allow takes its quick form.
func direct(t *testing.T, cfg *memory.Config, change ...func(*weir.Config)) *bundle {
	t.Helper()
	c := &clock{now: noon}
	if cfg.Now == nil {
		cfg.Now = c.Now
	}
	return directOn(t, memory.New(cfg), c, change...)
}

func directOn(t *testing.T, st *memory.Store, c *clock, change ...func(*weir.Config)) *bundle {
	t.Helper()
	b := setupOn(t, &fakeStore{Store: st}, c, append(change, func(cfg *weir.Config) { cfg.Store = st })...)
	return b
}

// allows calls Allow until it refuses, and returns the number of admitted calls.
func (b *bundle) allows(entity string) (n int) {
	b.t.Helper()
	for {
		ok, err := b.Allow(b.ctx, entity, "api")
		must(b.t, err)
		if !ok {
			return n
		}
		n++
	}
}

func (b *bundle) wantAllows(entity string, want int, when string) {
	b.t.Helper()
	if got := b.allows(entity); got != want {
		b.t.Errorf("%s: allowed %d, want %d", when, got, want)
	}
}

func TestAllowQuick(t *testing.T) {
	t.Parallel()
	b := direct(t, &memory.Config{})
	b.set("", "", weir.PerMinute("rpm", 6))
	b.wantAllows("alice", 6, "the burst")
	b.clock.advance(10*time.Second - 1)
	b.wantAllows("alice", 0, "1 ns early")
	b.clock.advance(1)
	b.wantAllows("alice", 1, "in time")
	b.clock.advance(-time.Hour)
	b.wantAllows("alice", 0, "the clock went back")
	b.clock.advance(time.Hour + 20*time.Second)
	b.take("alice", one) // the same tokens
	b.wantAllows("alice", 1, "beside Acquire")
	b.wantAllows("bob", 6, "another")
	over := b.refused("alice", one)
	if over.Statuses[0].Available != 0 {
		t.Errorf("%+v", over.Statuses)
	}
}

func TestAllowQuickFollowsChanges(t *testing.T) {
	t.Parallel()
	b := direct(t, &memory.Config{})
	other := directOn(t, b.fake.Store.(*memory.Store), b.clock)
	b.set("", "", weir.PerHour("rpm", 6))
	b.wantAllows("alice", 6, "the burst")
	b.set("", "", weir.PerHour("rpm", 8))
	b.wantAllows("alice", 2, "raised")
	b.set("alice", "", weir.PerHour("rpm", 11))
	b.wantAllows("alice", 3, "an own one")
	b.set("alice", "api", weir.PerHour("rpm", 11), weir.PerHour("rph", 2))
	b.wantAllows("alice", 0, "the first is still spent")
	b.set("alice", "api", weir.PerHour("rpm", 100), weir.PerHour("rph", 2))
	b.wantAllows("alice", 2, "one beside it")
	must(t, b.admin.Limits.Delete(b.ctx, admin.Scope{Entity: "alice", Resource: "api"}))
	b.wantAllows("alice", 0, "back to the own default")
	b.set("alice", "", weir.PerHour("rpm", 20))
	b.wantAllows("alice", 7, "raised again")

	b.child("parent", "")
	b.set("parent", "", weir.PerHour("rpm", 4))
	b.child("alice", "parent")
	b.set("alice", "", weir.PerHour("rpm", 30))
	b.wantAllows("alice", 4, "a parent")

	other.wantAllows("carol", 8, "through the other") // the other limiter now knows the new limits
	b.wantAllows("carol", 0, "spent")
	b.set("carol", "", weir.PerHour("rpm", 10))
	b.wantAllows("carol", 2, "raised here")
	other.wantAllows("carol", 0, "at that bucket's next debit")
	if av := must1(other.Available(b.ctx, "carol", "api")); av.Statuses[0].Burst != 10 {
		t.Errorf("%+v", av.Statuses)
	}
	must(t, b.admin.Limits.Delete(b.ctx, admin.Scope{}))
	_, err := b.Allow(b.ctx, "dave", "api")
	wantErr(t, err, weir.ErrNoLimits)
}

func TestAllowQuickWithinTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ttl := func(c *weir.Config) { c.CacheTTL = 10 * time.Second }
		b := direct(t, &memory.Config{Now: time.Now}, ttl)
		other := directOn(t, b.fake.Store.(*memory.Store), nil, ttl)
		b.set("", "", weir.PerDay("rpd", 1000))
		for _, e := range []string{"alice", "bob"} {
			for range 5 {
				if ok, err := b.Allow(b.ctx, e, "api"); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
		}
		other.set("", "", weir.PerDay("rpd", 7))
		for range 11 {
			time.Sleep(time.Second)
			if ok, _ := b.Allow(b.ctx, "bob", "api"); !ok {
				break // it knows
			}
		}
		b.wantAllows("alice", 2, "after the TTL")
		time.Sleep(time.Second) // lets the coarse clock finish its work
	})
}

func TestAllowQuickWhileBucketsCome(t *testing.T) {
	t.Parallel()
	b := direct(t, &memory.Config{MaxBuckets: 50})
	b.set("", "", weir.PerMinute("rpm", 6))
	for round := range 20 {
		b.wantAllows("alice", 6, fmt.Sprint("round ", round))
		for i := range 49 {
			_, _ = b.Allow(b.ctx, fmt.Sprint(round, "-", i), "api")
		}
		b.wantAllows("alice", 0, "in use, it stays")
		b.clock.advance(time.Minute)
	}
}

func TestAllowQuickEnds(t *testing.T) {
	t.Parallel()
	b := direct(t, &memory.Config{})
	b.set("", "", weir.PerMinute("rpm", 6))
	_, err := b.admin.Namespaces.Create(b.ctx, "alpha")
	must(t, err)
	alpha := b.In("alpha")
	must(t, admin.New(alpha).Limits.Set(b.ctx, admin.Scope{}, weir.PerMinute("rpm", 2)))
	for _, want := range []bool{true, true, false} {
		if ok, err := alpha.Allow(b.ctx, "alice", "api"); ok != want || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
	}
	b.wantAllows("alice", 6, "default")
	must(t, b.admin.Namespaces.Delete(b.ctx, "alpha"))
	_, err = alpha.Allow(b.ctx, "alice", "api")
	wantErr(t, err, weir.ErrNotFound)

	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	ok, err := b.Allow(ctx, "alice", "api")
	wantErr(t, err, context.Canceled)
	if ok {
		t.Error("allowed")
	}
	must(t, b.Close())
	_, err = b.Allow(b.ctx, "alice", "api")
	wantErr(t, err, weir.ErrClosed)
}

// Concurrent callers on known and unknown entities, while unrelated limits change: exactly the burst is admitted.
func TestAllowQuickConcurrently(t *testing.T) {
	t.Parallel()
	b := direct(t, &memory.Config{}, func(c *weir.Config) { c.CacheEntries = 40 })
	b.set("", "", weir.PerHour("rph", 300))
	var allowed [60]atomic.Int64
	var wg sync.WaitGroup
	for g := range 100 {
		wg.Go(func() {
			for i := range 600 {
				who := (g + i) % len(allowed)
				if ok, err := b.Allow(b.ctx, fmt.Sprint("e", who), "api"); err != nil {
					t.Error(err)
					return
				} else if ok {
					allowed[who].Add(1)
				}
				if g == 0 && i%50 == 0 {
					b.set(fmt.Sprint("x", i), "", weir.PerMinute("rpm", 1))
				}
			}
		})
	}
	wg.Wait()
	for i := range allowed {
		if n := allowed[i].Load(); n != 300 {
			t.Errorf("e%d: allowed %d", i, n)
		}
	}
}
