package main

import (
	"time"

	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/bench/internal/inprocess"
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
)

// A contender can do the work of a row.
type contender struct {
	name string
	// setup prepares the contender before the first round.
	setup func(e *harness.Env) (harness.Work, error)
	// size, in rows that are measured once, is called instead of setup and returns the figure.
	size func(e *harness.Env) (float64, error)
}

// A target is what weir's figure should reach. Fields that are zero are not checked.
type target struct {
	ratio     float64 // to the first peer: at most; for rates, at least
	value     float64 // at most; for rates, at least
	allocs    float64 // at most; checked if hasAllocs
	hasAllocs bool
	calls     float64 // calls of a store over a network per counted operation: at most
	callRate  float64 // the same a second
}

// result is a row with its samples.
type result struct {
	row
	harness.Result
}

// slow is the factor for workers that wait for something, atOnce the number of operations between readings of the
// clock for those that do not.
const slow, atOnce = 4, 64

// measured returns the row for the harness.
func (r row) measured() harness.Row {
	out := harness.Row{Name: r.name, Once: r.once()}
	for _, c := range r.contenders {
		setup := r.spin(c)
		if c.size != nil {
			setup = func(e *harness.Env) (harness.Drive, error) {
				return func(int, time.Duration) (s harness.Sample, err error) {
					s.Figure, err = c.size(e)
					return s, err
				}, nil
			}
		}
		out.Contenders = append(out.Contenders, harness.Contender{Name: c.name, Setup: setup})
	}
	return out
}

// spin returns a setup that lets the row's workers do a contender's work.
func (r row) spin(c contender) func(e *harness.Env) (harness.Drive, error) {
	return func(e *harness.Env) (harness.Drive, error) {
		w, err := c.setup(e)
		if err != nil {
			return nil, err
		}
		m := harness.Meter{CPU: harness.CPU, Calls: &e.Calls}
		return func(_ int, length time.Duration) (harness.Sample, error) {
			if r.unit != perSecond {
				return m.Spin(r.workers, atOnce, length, w)
			}
			s, err := m.Spin(r.workers, 1, slow*length, w)
			s.Figure = s.Rate
			return s, err
		}, nil
	}
}

// resource is the resource of all requests.
const resource = inprocess.Resource

// allowed counts the answers that equal want.
func allowed(e *harness.Env, ask inprocess.Ask, ks *harness.Keys, want bool) harness.Work {
	return func(worker, n int) (int, error) {
		yes := 0
		for range n {
			ok, err := ask(e.Ctx, ks.ID(worker))
			if err != nil {
				return 0, err
			}
			if ok == want {
				yes++
			}
		}
		return yes, nil
	}
}
