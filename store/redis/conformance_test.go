package redis_test

import (
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
	"github.com/weirlimits/weir/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	front := relay(t, shared(t).Addr)
	h := harness("redis://" + front.addr)
	h.Cut = func(_ testing.TB, s store.Store, n int, made bool) func() int {
		return front.cut("\n"+s.(*redis.Store).Prefix()+":{n}:", n, made)
	}
	storetest.Run(t, h)
}

func TestTorture(t *testing.T) {
	t.Parallel()
	storetest.Torture(t, harness("redis://"+shared(t).Addr), min(storetest.TortureTime(t), 10*time.Second))
}

// On the server's own time, the suite can only assume that the store reports a time.
func TestConformanceOnServerTime(t *testing.T) {
	t.Parallel()
	h := harness("redis://" + shared(t).Addr)
	open, peer := h.Open, h.Peer
	_ = peer
	h.Open = func(t testing.TB, _ *storetest.Clock) store.Store { return open(t, nil) }
	h.Peer = func(t testing.TB, s store.Store, _ *storetest.Clock) store.Store { return peer(t, s, nil) }
	h.Harm = func(t testing.TB, s store.Store, b store.Bucket) {
		t.Helper()
		s.(*redis.Store).Harm(t, b, false)
	}
	h.Caps.HandClock = false
	storetest.Run(t, h)
}

// harness opens stores on a server, each with its own prefix.
func harness(address string) storetest.Harness {
	var of sync.Map // prefixes by store
	with := func(t testing.TB, prefix string, clock *storetest.Clock) store.Store {
		t.Helper()
		cfg := redis.Config{Address: address, Prefix: prefix, Connections: 1, CallTimeout: 10 * time.Second}
		if clock != nil {
			cfg.Now = clock.Now
		}
		s, err := redis.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		of.Store(s, prefix)
		return s
	}
	return storetest.Harness{
		Open: func(t testing.TB, clock *storetest.Clock) store.Store {
			t.Helper()
			return with(t, prefix(), clock)
		},
		Peer: func(t testing.TB, s store.Store, clock *storetest.Clock) store.Store {
			t.Helper()
			p, _ := of.Load(s)
			return with(t, p.(string), clock)
		},
		Kept: func(t testing.TB, s store.Store, b store.Bucket) time.Duration {
			t.Helper()
			return s.(*redis.Store).Kept(t, b)
		},
		Harm: func(t testing.TB, s store.Store, b store.Bucket) {
			t.Helper()
			s.(*redis.Store).Harm(t, b, true)
		},
		Caps: storetest.Caps{HandClock: true, AtomicTake: true, Remote: true, LateUsage: true, Quotas: true, Credits: true, Slots: true},
	}
}
