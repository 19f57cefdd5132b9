package harness

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Work does n operations as one of the workers, and returns the number of operations that count.
type Work func(worker, n int) (int, error)

// Op does one operation as one of the workers.
type Op func(ctx context.Context, worker int) error

// Meter measures what work costs: processor time, and calls if it has a counter for them.
type Meter struct {
	CPU   func() time.Duration
	Calls *atomic.Int64
}

// Spin lets the workers work for a while, so many operations between readings of the clock. It ends at an error.
func (m Meter) Spin(workers, batch int, length time.Duration, w Work) (Sample, error) {
	var failed atomic.Pointer[error]
	fail := func(err error) { failed.CompareAndSwap(nil, &err) }
	s := m.over(workers, func(worker int, start time.Time) (ops, counted int) {
		for time.Since(start) < length && failed.Load() == nil {
			n, err := w(worker, batch)
			if err != nil {
				fail(err)
				break
			}
			ops, counted = ops+batch, counted+n
		}
		return ops, counted
	})
	if err := failed.Load(); err != nil {
		return s, *err
	}
	return s, nil
}

// Timed has workers do one operation after another, and times each. Operations that fail count, too.
func (m Meter) Timed(e *Env, workers int, length time.Duration, do Op) Sample {
	took := make([][]int64, workers)
	var failed atomic.Int64
	s := m.over(workers, func(worker int, start time.Time) (ops, counted int) {
		var mine []int64
		for began := start; began.Sub(start) < length; {
			if do(e.Ctx, worker) != nil {
				failed.Add(1)
			}
			ended := time.Now()
			mine = append(mine, int64(ended.Sub(began)))
			began = ended
		}
		took[worker] = mine
		return len(mine), len(mine)
	})
	every := slices.Concat(took...)
	slices.Sort(every)
	s.P50, s.P99 = float64(every[len(every)/2])/1e3, float64(every[len(every)*99/100])/1e3
	s.Failed = int(failed.Load())
	return s
}

// over measures the workers. Its figure is the time per operation, in nanoseconds.
func (m Meter) over(workers int, work func(worker int, start time.Time) (ops, counted int)) Sample {
	var (
		done, counted atomic.Int64
		before, after runtime.MemStats
		wg            sync.WaitGroup
	)
	calls := m.Calls
	if calls == nil {
		calls = new(atomic.Int64)
	}
	runtime.GC() // collect what the last contender left
	runtime.ReadMemStats(&before)
	called := calls.Load()
	cpu, start := m.CPU(), time.Now()
	for worker := range workers {
		wg.Go(func() {
			ops, yes := work(worker, start)
			done.Add(int64(ops))
			counted.Add(int64(yes))
		})
	}
	wg.Wait()
	took := time.Since(start)
	cpu = m.CPU() - cpu
	called = calls.Load() - called
	runtime.ReadMemStats(&after)
	ops, yes := float64(max(done.Load(), 1)), float64(max(counted.Load(), 1))
	return Sample{
		Figure: float64(took) / ops, Rate: float64(counted.Load()) / took.Seconds(), Ops: int(done.Load()),
		CPU: float64(cpu) / ops, Allocs: float64(after.Mallocs-before.Mallocs) / ops,
		Calls: float64(called) / yes, CallRate: float64(called) / took.Seconds(),
	}
}
