package main

import (
	"runtime"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/bench/internal/inprocess"
)

func memoryRows() (rows []harness.Row) {
	parallel := runtime.GOMAXPROCS(0)
	for _, r := range []struct {
		name          string
		keys, workers int
	}{
		{"allow, 1 key, 1 goroutine", 1, 1},
		{"allow, 1 key, " + strconv.Itoa(parallel) + " goroutines", 1, parallel},
		{"allow, 100,000 keys, " + strconv.Itoa(parallel) + " goroutines", 100_000, parallel},
	} {
		out := harness.Row{Part: partMemory, Name: r.name}
		add := func(name string, open func(e *harness.Env, keys int) (inprocess.Ask, error)) {
			out.Add(name, func(e *harness.Env) (harness.Drive, error) { return inMemory(e, r.keys, r.workers, open) })
		}
		add("weir", func(e *harness.Env, _ int) (inprocess.Ask, error) {
			return inprocess.Weir(e, weir.PerSecond("rps", 1_000_000).WithBurst(weir.MaxTokens))
		})
		add("go-limiter", func(e *harness.Env, _ int) (inprocess.Ask, error) { return inprocess.GoLimiter(e, 1<<60) })
		add("throttled", func(_ *harness.Env, keys int) (inprocess.Ask, error) {
			return inprocess.Throttled(keys, 1_000_000, 1<<40)
		})
		add("x/time/rate", func(_ *harness.Env, keys int) (inprocess.Ask, error) {
			return inprocess.XTime(keys, 1_000_000, 1<<50), nil
		})
		add("uber/ratelimit", func(_ *harness.Env, keys int) (inprocess.Ask, error) {
			return inprocess.Uber(keys, 1_000_000_000), nil // a token a nanosecond: at a slower rate it would wait
		})
		rows = append(rows, out)
	}
	return rows
}

// inMemory requests one token of a key, many times between readings of the clock.
func inMemory(
	e *harness.Env, keys, workers int, open func(e *harness.Env, keys int) (inprocess.Ask, error),
) (harness.Drive, error) {
	const atOnce = 64
	if keys > 1 {
		keys = e.Few(keys, 1000)
	}
	ask, err := open(e, keys)
	if err != nil {
		return nil, err
	}
	ks := harness.Uniform(keys)
	for range 2 { // use every key before anything is measured
		if err := touch(e, ks, ask); err != nil {
			return nil, err
		}
	}
	work := func(worker, n int) (int, error) {
		for range n {
			if _, err := ask(e.Ctx, ks.ID(worker)); err != nil {
				return 0, err
			}
		}
		return n, nil
	}
	return func(_ int, length time.Duration) (harness.Sample, error) {
		return harness.Meter{CPU: harness.CPU}.Spin(workers, atOnce, length/2, work)
	}, nil
}
