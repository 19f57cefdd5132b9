package main

import (
	"context"
	"runtime"
	"strconv"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// parallel is the number of goroutines in rows called parallel: as many as the machine can run at the same time.
var parallel = runtime.GOMAXPROCS(0)

// plenty is a limit that admits everything a benchmark asks for, so that all contenders do the same work: refusals are
// cheaper for some than for others.
var plenty = weir.PerSecond("rps", 1_000_000).WithBurst(weir.MaxTokens)

func memoryRows() []row {
	one := func() *keys { return uniform(1) }
	many := func() *keys { return uniform(100_000) }
	return []row{
		{
			name: "memory: Allow, 1 key, parallel", unit: nanoseconds, workers: parallel,
			contenders: []contender{
				{name: "weir", setup: allow(one, plenty)},
				{name: "go-limiter", setup: goLimiter(one)},
				{name: "x/time/rate", setup: xTime},
				{name: "uber/ratelimit", setup: uber},
				{name: "throttled", setup: gcra(one)},
			},
			target: target{ratio: 1.4, hasAllocs: true},
		},
		{
			name: "memory: Allow, 1 key, refused, parallel", unit: nanoseconds, workers: parallel,
			contenders: []contender{{name: "weir", setup: allow(one, weir.PerHour("rph", 1))}},
		},
		{
			name: "memory: Allow, 100,000 keys, parallel", unit: nanoseconds, workers: parallel,
			contenders: []contender{
				{name: "weir", setup: allow(many, plenty)},
				{name: "go-limiter", setup: goLimiter(many)},
				{name: "throttled", setup: gcra(many)},
			},
			target: target{ratio: 1.15, hasAllocs: true},
		},
	}
}

func allow(population func() *keys, limit weir.Limit) func(*env) (work, error) {
	return func(e *env) (work, error) {
		lim, err := limiter(e, memory.New(nil), weir.Config{}, limit)
		if err != nil {
			return nil, err
		}
		ctx, ks := e.ctx, population()
		w := func(worker, n int) (int, error) {
			admitted := 0
			for range n {
				ok, err := lim.Allow(ctx, ks.id(worker), resource)
				if err != nil {
					return 0, err
				}
				if ok {
					admitted++
				}
			}
			return admitted, nil
		}
		return w, touch(ks, func(id string) error { _, err := lim.Allow(ctx, id, resource); return err })
	}
}

// touch uses every key once before anything is measured.
func touch(ks *keys, f func(id string) error) error {
	for _, id := range ks.ids {
		if err := f(id); err != nil {
			return err
		}
	}
	return nil
}

func goLimiter(population func() *keys) func(*env) (work, error) {
	return func(e *env) (work, error) {
		st, err := memorystore.New(&memorystore.Config{Tokens: 1 << 60, Interval: time.Second})
		if err != nil {
			return nil, err
		}
		e.defers(func() error { return st.Close(context.WithoutCancel(e.ctx)) })
		ctx, ks := e.ctx, population()
		w := func(worker, n int) (int, error) {
			admitted := 0
			for range n {
				_, _, _, ok, err := st.Take(ctx, ks.id(worker))
				if err != nil {
					return 0, err
				}
				if ok {
					admitted++
				}
			}
			return admitted, nil
		}
		return w, touch(ks, func(id string) error { _, _, _, _, err := st.Take(ctx, id); return err })
	}
}

// xTime is a single limiter, because x/time has no keys.
func xTime(*env) (work, error) {
	lim := rate.NewLimiter(1_000_000, 1<<50)
	return func(_, n int) (int, error) {
		admitted := 0
		for range n {
			if lim.Allow() {
				admitted++
			}
		}
		return admitted, nil
	}, nil
}

// uber is a single limiter without a key. It has a token a nanosecond, because at a slower rate it would wait.
func uber(*env) (work, error) {
	lim := ratelimit.New(1_000_000_000)
	return func(_, n int) (int, error) {
		for range n {
			lim.Take()
		}
		return n, nil
	}, nil
}

func gcra(population func() *keys) func(*env) (work, error) {
	return func(e *env) (work, error) {
		ks := population()
		st, err := memstore.NewCtx(2 * len(ks.ids))
		if err != nil {
			return nil, err
		}
		lim, err := throttled.NewGCRARateLimiterCtx(st, throttled.RateQuota{
			MaxRate: throttled.PerSec(1_000_000), MaxBurst: 1 << 40,
		})
		if err != nil {
			return nil, err
		}
		lim.SetMaxCASAttemptsLimit(1 << 30) // with all callers on one key it would give up
		ctx := e.ctx
		w := func(worker, n int) (int, error) {
			admitted := 0
			for range n {
				limited, _, err := lim.RateLimitCtx(ctx, ks.id(worker), 1)
				if err != nil {
					return 0, err
				}
				if !limited {
					admitted++
				}
			}
			return admitted, nil
		}
		return w, touch(ks, func(id string) error { _, _, err := lim.RateLimitCtx(ctx, id, 1); return err })
	}
}

func leaseRows() []row {
	const what = "memory: Acquire + Commit, 2 limits, child and parent"
	return []row{
		{
			name: what, unit: nanoseconds, workers: 1,
			contenders: []contender{{name: "weir", setup: acquireCommit}},
			target:     target{value: 1500, allocs: 4, hasAllocs: true},
		},
		{
			name: what + ", parallel", unit: nanoseconds, workers: parallel,
			contenders: []contender{{name: "weir", setup: acquireCommit}},
		},
	}
}

// acquireCommit acquires for 100 children of one parent, each with two limits of its own and those of the parent.
func acquireCommit(e *env) (work, error) {
	lim, err := limiter(e, memory.New(nil), weir.Config{},
		weir.PerSecond("rpm", 1_000_000).WithBurst(weir.MaxTokens),
		weir.PerSecond("tpm", 1_000_000).WithBurst(weir.MaxTokens))
	if err != nil {
		return nil, err
	}
	ctx, ks := e.ctx, uniform(100)
	if err := admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "project"}); err != nil {
		return nil, err
	}
	for _, id := range ks.ids {
		if err := admin.New(lim).Entities.Create(ctx, admin.Entity{
			ID: id, Parent: "project", Cascade: true,
		}); err != nil {
			return nil, err
		}
	}
	tokens := weir.Tokens{"rpm": 1, "tpm": 500}
	return func(worker, n int) (int, error) {
		for range n {
			lease, err := lim.Acquire(ctx, weir.Request{Entity: ks.id(worker), Resource: resource, Tokens: tokens})
			if err != nil {
				return 0, err
			}
			if err := lease.Commit(ctx); err != nil {
				return 0, err
			}
		}
		return n, nil
	}, nil
}

// entityID returns the i-th of many ids, separately allocated.
func entityID(i int) string { return "user:" + strconv.Itoa(10_000_000+i) }
