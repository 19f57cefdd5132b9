package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/store/disk"
)

// rankedEntities is the number of entities with usage.
const rankedEntities = 100_000

// ranked is what it cost to rank them, in one run.
type ranked struct{ take, top, grown float64 } // microseconds per reading, seconds, megabytes

func usageRows() []row {
	run := sync.OnceValues(rankUsage)
	figure := func(pick func(*ranked) float64) []contender {
		return []contender{{name: "weir", size: func(*harness.Env) (float64, error) {
			r, err := run()
			return pick(&r), err
		}}}
	}
	return []row{
		{name: "usage of 100,000 entities, disk: top", unit: seconds, contenders: figure(func(r *ranked) float64 {
			return r.top
		}), target: target{value: 1}},
		{
			name: "usage of 100,000 entities, disk: peak heap", unit: megabytes,
			contenders: figure(func(r *ranked) float64 { return r.grown }), target: target{value: 20},
		},
		{
			name: "usage of 100,000 entities, disk: time to take in a reading", unit: microsecs,
			contenders: figure(func(r *ranked) float64 { return r.take }),
		},
	}
}

// rankUsage has every entity spend tokens, takes in the readings, and ranks the entities.
func rankUsage() (r ranked, err error) {
	dir, err := os.MkdirTemp("", "bench-usage-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	st, err := disk.Open(dir, &disk.Config{Mode: disk.Off})
	if err != nil {
		return r, err
	}
	ctx := context.Background()
	lim, err := weir.New(weir.Config{Store: st, StoreTimeout: time.Minute})
	if err != nil {
		return r, errors.Join(err, st.Close())
	}
	defer func() { err = errors.Join(err, lim.Close()) }()
	if err := admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerDay("rpd", 1000)); err != nil {
		return r, err
	}
	for i := range rankedEntities {
		tokens := weir.Tokens{"rpd": int64(i%499) + 1}
		if _, err := lim.Acquire(ctx, weir.Request{
			Entity: fmt.Sprintf("entity-%06d", i), Resource: resource, Tokens: tokens,
		}); err != nil {
			return r, err
		}
	}
	began := time.Now()
	if _, err := admin.New(lim).Usage.Windows(ctx, admin.UsageQuery{Max: 1}); err != nil {
		return r, err
	}
	r.take = float64(time.Since(began).Microseconds()) / rankedEntities
	time.Sleep(3 * time.Second) // the next query then reads the buckets a last time, so that Top does not
	if _, err := admin.New(lim).Usage.Windows(ctx, admin.UsageQuery{Max: 1}); err != nil {
		return r, err
	}
	runtime.GC()
	peak := watchHeap()
	began = time.Now()
	top, err := admin.New(lim).Usage.Top(ctx, admin.TopQuery{Limit: "rpd"})
	r.top, r.grown = time.Since(began).Seconds(), peak()
	if err == nil && (len(top) != 10 || top[0].Limits[0].Consumed != 499) {
		err = fmt.Errorf("top %+v", top)
	}
	return r, err
}
