package main

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/bench/internal/measure"
)

// op does one operation as one of the workers.
type op func(ctx context.Context, worker int) error

// meter measures what work costs: processor time, and calls if it has a counter for them.
type meter struct {
	cpu   func() time.Duration
	calls *atomic.Int64
}

// timed has workers do one operation after another, and times each.
func timed(e *env, workers int, m meter, do op) func(length time.Duration) sample {
	return func(length time.Duration) sample {
		took := make([][]int64, workers)
		var failed atomic.Int64
		s := m.over(func() (int, time.Duration) {
			var wg sync.WaitGroup
			start := time.Now()
			for w := range workers {
				wg.Go(func() {
					var mine []int64
					for began := start; began.Sub(start) < length; {
						if do(e.ctx, w) != nil {
							failed.Add(1)
						}
						ended := time.Now()
						mine = append(mine, int64(ended.Sub(began)))
						began = ended
					}
					took[w] = mine
				})
			}
			wg.Wait()
			all := 0
			for _, mine := range took {
				all += len(mine)
			}
			return all, time.Since(start)
		})
		every := slices.Concat(took...)
		slices.Sort(every)
		s.p50, s.p99 = float64(every[len(every)/2])/1e3, float64(every[len(every)*99/100])/1e3
		s.failed = int(failed.Load())
		return s
	}
}

// batched has workers do many operations between readings of the clock.
func batched(e *env, workers int, do op) func(length time.Duration) sample {
	const batch = 64
	return func(length time.Duration) sample {
		var ops, failed atomic.Int64
		s := meter{cpu: measure.CPU}.over(func() (int, time.Duration) {
			var wg sync.WaitGroup
			start := time.Now()
			for w := range workers {
				wg.Go(func() {
					n, wrong := 0, 0
					for time.Since(start) < length {
						for range batch {
							if do(e.ctx, w) != nil {
								wrong++
							}
						}
						n += batch
					}
					ops.Add(int64(n))
					failed.Add(int64(wrong))
				})
			}
			wg.Wait()
			return int(ops.Load()), time.Since(start)
		})
		s.failed = int(failed.Load())
		return s
	}
}

func (m meter) over(work func() (int, time.Duration)) sample {
	runtime.GC() // collect what the last contender left
	var called int64
	if m.calls != nil {
		called = m.calls.Load()
	}
	cpu := m.cpu()
	ops, took := work()
	s := sample{ops: ops, rate: float64(ops) / took.Seconds(), cpu: float64(m.cpu()-cpu) / float64(ops)}
	if m.calls != nil {
		s.calls = float64(m.calls.Load()-called) / float64(ops)
	}
	return s
}
