package main

import (
	"runtime"
	"strconv"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/bench/internal/inprocess"
	"github.com/weirlimits/weir/store/memory"
)

// parallel is the number of goroutines in rows called parallel: as many as the machine can run at the same time.
var parallel = runtime.GOMAXPROCS(0)

// plenty is a limit that admits everything a benchmark asks for, so that all contenders do the same work: refusals are
// cheaper for some than for others.
var plenty = weir.PerSecond("rps", 1_000_000).WithBurst(weir.MaxTokens)

func memoryRows() []row {
	weirIn := func(limit weir.Limit) func(*harness.Env, int) (inprocess.Ask, error) {
		return func(e *harness.Env, _ int) (inprocess.Ask, error) { return inprocess.Weir(e, limit) }
	}
	goLimiter := func(e *harness.Env, _ int) (inprocess.Ask, error) { return inprocess.GoLimiter(e, 1<<60) }
	gcra := func(_ *harness.Env, keys int) (inprocess.Ask, error) {
		return inprocess.Throttled(keys, 1_000_000, 1<<40)
	}
	const one, many = 1, 100_000
	return []row{
		{
			name: "memory: Allow, 1 key, parallel", unit: nanoseconds, workers: parallel,
			contenders: []contender{
				{name: "weir", setup: asks(one, weirIn(plenty))},
				{name: "go-limiter", setup: asks(one, goLimiter)},
				{name: "x/time/rate", setup: asks(one, func(*harness.Env, int) (inprocess.Ask, error) {
					return inprocess.XTime(one, 1_000_000, 1<<50), nil
				})},
				{name: "uber/ratelimit", setup: asks(one, func(*harness.Env, int) (inprocess.Ask, error) {
					return inprocess.Uber(one, 1_000_000_000), nil // a token a nanosecond: it must not wait
				})},
				{name: "throttled", setup: asks(one, gcra)},
			},
			target: target{ratio: 1.4, hasAllocs: true},
		},
		{
			name: "memory: Allow, 1 key, refused, parallel", unit: nanoseconds, workers: parallel,
			contenders: []contender{{name: "weir", setup: asks(one, weirIn(weir.PerHour("rph", 1)))}},
		},
		{
			name: "memory: Allow, 100,000 keys, parallel", unit: nanoseconds, workers: parallel,
			contenders: []contender{
				{name: "weir", setup: asks(many, weirIn(plenty))},
				{name: "go-limiter", setup: asks(many, goLimiter)},
				{name: "throttled", setup: asks(many, gcra)},
			},
			target: target{ratio: 1.15, hasAllocs: true},
		},
	}
}

// asks counts the admitted requests for one token each, of so many keys.
func asks(
	keys int, open func(e *harness.Env, keys int) (inprocess.Ask, error),
) func(*harness.Env) (harness.Work, error) {
	return func(e *harness.Env) (harness.Work, error) {
		ask, err := open(e, keys)
		if err != nil {
			return nil, err
		}
		ks := harness.Uniform(keys)
		return allowed(e, ask, ks, true), ks.Touch(func(id string) error { _, err := ask(e.Ctx, id); return err })
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
func acquireCommit(e *harness.Env) (harness.Work, error) {
	lim, err := inprocess.Limiter(e, memory.New(nil), weir.Config{},
		weir.PerSecond("rpm", 1_000_000).WithBurst(weir.MaxTokens),
		weir.PerSecond("tpm", 1_000_000).WithBurst(weir.MaxTokens))
	if err != nil {
		return nil, err
	}
	ctx, ks := e.Ctx, harness.Uniform(100)
	if err := admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "project"}); err != nil {
		return nil, err
	}
	for _, id := range ks.IDs {
		if err := admin.New(lim).Entities.Create(ctx, admin.Entity{
			ID: id, Parent: "project", Cascade: true,
		}); err != nil {
			return nil, err
		}
	}
	tokens := weir.Tokens{"rpm": 1, "tpm": 500}
	return func(worker, n int) (int, error) {
		for range n {
			lease, err := lim.Acquire(ctx, weir.Request{Entity: ks.ID(worker), Resource: resource, Tokens: tokens})
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
