package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/bench/internal/measure"
)

// A row compares contenders on one kind of work. The first contender is weir.
type row struct {
	name       string
	unit       unit
	workers    int // number of concurrent goroutines
	contenders []contender
	target     target
}

// once reports whether a row is measured once.
func (r row) once() bool { return r.contenders[0].size != nil }

// A unit is what a figure counts. For times and sizes, less is better; for rates, more.
type unit string

const (
	nanoseconds unit = "ns"
	perSecond   unit = "/s"
	size        unit = "B"
	seconds     unit = "s"
	megabytes   unit = "MB"
	calls       unit = "calls"
	microsecs   unit = "µs"
	allocations unit = "allocs"
	admissions  unit = "admitted"
	failures    unit = "errors"
)

// A contender can do the work of a row.
type contender struct {
	name string
	// setup prepares the contender before the first round.
	setup func(e *env) (work, error)
	// size, in rows that are measured once, is called instead of setup and returns the figure.
	size func(e *env) (float64, error)
}

// work does n operations as one of the row's workers, and returns the number of operations that count.
type work func(worker, n int) (int, error)

// A target is what weir's figure should reach. Fields that are zero are not checked.
type target struct {
	ratio     float64 // to the first peer: at most; for rates, at least
	value     float64 // at most; for rates, at least
	allocs    float64 // at most; checked if hasAllocs
	hasAllocs bool
	calls     float64 // calls of a store over a network per counted operation: at most
	callRate  float64 // the same a second
}

// env is what a contender may use until the row is done.
type env struct {
	ctx     context.Context //nolint:containedctx // the row's, as a test's
	dir     string
	calls   atomic.Int64 // calls of a store over a network
	cleanup []func() error
}

func (e *env) defers(f func() error) { e.cleanup = append(e.cleanup, f) }

func (e *env) close() (err error) {
	for _, f := range slices.Backward(e.cleanup) {
		err = firstOf(err, f())
	}
	return err
}

// result is a row with its figures.
type result struct {
	row
	figures [][]float64 // by contender, by round
	spent   [][]spent   // likewise
}

// spent is what an operation cost besides time.
type spent struct {
	cpu    float64 // processor time in nanoseconds; steadier than wall time on a busy machine
	allocs float64
	calls  float64 // calls of a store over a network per counted operation; 0 if it has none
	rate   float64 // the same a second
}

type options struct {
	rounds   int
	length   time.Duration
	dir      string
	progress io.Writer
}

// measure runs the contenders in turn, A B C, A B C, …, after a shorter round for warming up.
func (o options) measure(r row) (res result, err error) {
	dir, err := os.MkdirTemp(o.dir, "bench-")
	if err != nil {
		return res, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e := &env{ctx: ctx, dir: dir}
	e.defers(func() error { return os.RemoveAll(dir) })
	defer func() { err = firstOf(err, e.close()) }()

	works := make([]work, len(r.contenders))
	for i, c := range r.contenders {
		if c.setup == nil {
			continue
		}
		if works[i], err = c.setup(e); err != nil {
			return res, fmt.Errorf("%s: %w", c.name, err)
		}
		if _, _, err := spin(e, works[i], r, o.length/4); err != nil {
			return res, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	res = result{row: r, figures: make([][]float64, len(works)), spent: make([][]spent, len(works))}
	rounds := o.rounds
	if r.once() {
		rounds = 1 // always the same, or slow
	}
	for round := range rounds {
		for i, c := range r.contenders {
			fmt.Fprintf(o.progress, "%s: %s, round %d of %d\n", r.name, c.name, round+1, rounds)
			var figure float64
			var sp spent
			if c.size != nil {
				figure, err = c.size(e)
			} else {
				figure, sp, err = spin(e, works[i], r, o.length)
			}
			if err != nil {
				return res, fmt.Errorf("%s: %w", c.name, err)
			}
			res.figures[i] = append(res.figures[i], figure)
			res.spent[i] = append(res.spent[i], sp)
		}
	}
	return res, nil
}

// spin lets the workers work for a while, and longer if they wait for something.
func spin(e *env, w work, r row, length time.Duration) (figure float64, sp spent, err error) {
	const slow = 4   // factor for workers that wait
	const batch = 64 // operations between readings of the clock
	var (
		done, counted atomic.Int64
		stop          atomic.Bool
		failed        atomic.Pointer[error]
		before, after runtime.MemStats
		wg            sync.WaitGroup
	)
	n := batch
	if r.unit == perSecond {
		n = 1
		length *= slow
	}
	fail := func(err error) { failed.CompareAndSwap(nil, &err) }
	runtime.GC() // collect what the last contender left
	runtime.ReadMemStats(&before)
	called := e.calls.Load()
	cpu, start := measure.CPU(), time.Now()
	for worker := range r.workers {
		wg.Go(func() {
			ops, yes := 0, 0
			for !stop.Load() {
				k, err := w(worker, n)
				if err != nil {
					fail(err)
					break
				}
				ops += n
				yes += k
			}
			done.Add(int64(ops))
			counted.Add(int64(yes))
		})
	}
	timer := time.AfterFunc(length, func() { stop.Store(true) })
	wg.Wait()
	timer.Stop()
	took := time.Since(start)
	cpu = measure.CPU() - cpu
	called = e.calls.Load() - called
	runtime.ReadMemStats(&after)
	if err := failed.Load(); err != nil {
		return 0, sp, *err
	}
	ops := float64(done.Load())
	sp = spent{
		cpu: float64(cpu) / ops, allocs: float64(after.Mallocs-before.Mallocs) / ops,
		calls: float64(called) / float64(max(counted.Load(), 1)), rate: float64(called) / took.Seconds(),
	}
	if r.unit == perSecond {
		return float64(counted.Load()) / took.Seconds(), sp, nil
	}
	return float64(took) / ops, sp, nil
}
