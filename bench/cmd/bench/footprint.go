package main

import (
	"context"
	"runtime"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/bench/internal/inprocess"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// buckets is the number of buckets whose memory is measured.
const buckets = 1_000_000

func footprintRows() []row {
	return []row{
		{
			name: "memory: per bucket in use, 1 limit, without its key", unit: size,
			contenders: []contender{
				{name: "weir", size: perBucket(weirStore)},
				{name: "go-limiter", size: perBucket(goLimiterStore)},
				{name: "map of x/time/rate", size: perBucket(xTimeMap)},
			},
			target: target{value: 128},
		},
		{
			name: "memory: per bucket in use, through a limiter, with its caches", unit: size,
			contenders: []contender{{name: "weir", size: perBucket(weirLimiter)}}, target: target{value: 260},
		},
	}
}

// perBucket measures what stays on the heap per bucket, for a million buckets, without the bytes of the key: namespace,
// entity and resource.
func perBucket(
	setup func(e *harness.Env) (use func(id string) error, done func() error, err error),
) func(*harness.Env) (float64, error) {
	return func(e *harness.Env) (float64, error) {
		before := heap()
		use, done, err := setup(e)
		if err != nil {
			return 0, err
		}
		keys := 0
		for i := range buckets {
			id := entityID(i) // separately allocated, and referenced only by the bucket
			keys += len(weir.DefaultNamespace) + len(id) + len(resource)
			if err := use(id); err != nil {
				return 0, err
			}
		}
		after := heap()
		return float64(after-before-int64(keys)) / buckets, done()
	}
}

func heap() int64 {
	runtime.GC() // twice: the second run frees what finalizers kept alive
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// noon stands still: on a slow machine as on a fast one, no minute ends whose usage is kept, and no bucket fills up.
func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// weirStore uses the store as a limiter does for entities that share the system's limits.
func weirStore(e *harness.Env) (func(string) error, func() error, error) {
	st := memory.New(&memory.Config{Now: noon})
	limit := &store.Limit{Name: "rpd", Amount: 1_000_000, Period: 24 * time.Hour, Burst: 1_000_000}
	return func(id string) error {
		_, err := st.Take(e.Ctx, store.Take{Debits: []store.Debit{{
			Bucket:  store.Bucket{Namespace: weir.DefaultNamespace, Entity: id, Resource: resource},
			Charges: []store.Charge{{Limit: limit, Amount: 1000}},
		}}})
		return err
	}, st.Close, nil
}

func weirLimiter(e *harness.Env) (func(string) error, func() error, error) {
	lim, err := inprocess.Limiter(e, memory.New(&memory.Config{Now: noon}), weir.Config{}, weir.PerDay("rpd", 1000))
	if err != nil {
		return nil, nil, err
	}
	return func(id string) error {
		_, err := lim.Allow(e.Ctx, id, resource)
		return err
	}, lim.Close, nil
}

func goLimiterStore(e *harness.Env) (func(string) error, func() error, error) {
	st, err := memorystore.New(&memorystore.Config{Tokens: 1000, Interval: 24 * time.Hour})
	if err != nil {
		return nil, nil, err
	}
	return func(id string) error {
		_, _, _, _, err := st.Take(e.Ctx, key(id))
		return err
	}, func() error { return st.Close(context.WithoutCancel(e.Ctx)) }, nil
}

// xTimeMap is the minimum needed to use x/time by key.
func xTimeMap(*harness.Env) (func(string) error, func() error, error) {
	limiters := make(map[string]*rate.Limiter)
	return func(id string) error {
		lim := rate.NewLimiter(1000, 1000)
		lim.Allow()
		limiters[key(id)] = lim
		return nil
	}, func() error { clear(limiters); return nil }, nil
}

// key is the equivalent key for a peer that knows only keys.
func key(entity string) string { return weir.DefaultNamespace + "/" + entity + "/" + resource }
