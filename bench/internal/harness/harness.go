// Package harness runs contenders in turns, and measures what each does.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// A Row compares contenders on one kind of work. The first contender is weir.
type Row struct {
	Part       string // of the page
	Name       string
	Once       bool // always the same, or slow: measured in one round, without a warm-up
	Contenders []Contender
}

// Add adds a contender.
func (r *Row) Add(name string, setup func(e *Env) (Drive, error)) {
	r.Contenders = append(r.Contenders, Contender{name, setup})
}

// A Contender can do the work of a row.
type Contender struct {
	Name string
	// Setup prepares the contender before the first round.
	Setup func(e *Env) (Drive, error)
}

// Drive works for a while, in one of the rounds, and returns its sample.
type Drive func(round int, length time.Duration) (Sample, error)

// Sample holds the figures of a contender in a round.
type Sample struct {
	Figure   float64 // what the row compares, if it is not the rate
	Rate     float64 // counted operations a second
	P50      float64 // microseconds; 0 if an operation is too short to be timed
	P99      float64
	CPU      float64 // processor time per operation, in nanoseconds; steadier than wall time on a busy machine
	Allocs   float64 // per operation
	Calls    float64 // calls of a store over a network per counted operation; 0 if it has none
	CallRate float64 // the same a second
	Ops      int
	Failed   int
}

// Env is what a contender may use until the row, or the probe, is done.
type Env struct {
	Ctx     context.Context //nolint:containedctx // the row's, as a test's
	Dir     string          // for files
	Calls   atomic.Int64    // calls of a store over a network
	Peers   Places
	Quick   bool // in a test, where small numbers are enough
	cleanup []func() error
}

// Places are the paths of the peers that are not linked in; "" if they are not installed.
type Places struct{ Python, Script, Envoy string }

// Defer calls f when the row is done.
func (e *Env) Defer(f func() error) { e.cleanup = append(e.cleanup, f) }

// Close ends the row.
func (e *Env) Close() (err error) {
	for _, f := range slices.Backward(e.cleanup) {
		err = errors.Join(err, f())
	}
	return err
}

// Few returns n, or in a test the number that is enough for it.
func (e *Env) Few(n, test int) int {
	if e.Quick {
		return test
	}
	return n
}

// Options say how to measure.
type Options struct {
	Rounds   int
	Length   time.Duration // of a round
	Dir      string        // where rows keep files; "": the directory for temporary files
	Peers    Places
	Quick    bool
	Progress io.Writer
}

// With calls f with an environment, and closes that.
func (o Options) With(f func(e *Env) error) (err error) {
	dir, err := os.MkdirTemp(o.Dir, "bench-")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e := &Env{Ctx: ctx, Dir: dir, Peers: o.Peers, Quick: o.Quick}
	e.Defer(func() error { return os.RemoveAll(dir) })
	defer func() { err = errors.Join(err, e.Close()) }()
	return f(e)
}

// Result is a row with its samples, by contender and round. Contenders that are not installed are left out.
type Result struct {
	Row
	Samples [][]Sample
}

// Each returns one figure of a contender, by round.
func (r *Result) Each(contender int, pick func(*Sample) float64) (picked []float64) {
	for i := range r.Samples[contender] {
		picked = append(picked, pick(&r.Samples[contender][i]))
	}
	return picked
}

// Measure runs the contenders in turn, A B C, A B C, …, after a shorter round for warming up.
func (o Options) Measure(r Row) (res Result, err error) {
	err = o.With(func(e *Env) error {
		var drives []Drive
		var there []Contender
		for _, c := range r.Contenders {
			d, err := c.Setup(e)
			if Absent(err) {
				fmt.Fprintf(o.Progress, "%s: %s: left out: %v\n", r.Name, c.Name, err)
				continue
			}
			if err == nil && !r.Once {
				_, err = d(0, o.Length/4)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			drives, there = append(drives, d), append(there, c)
		}
		r.Contenders = there
		res = Result{Row: r, Samples: make([][]Sample, len(drives))}
		rounds := o.Rounds
		if r.Once {
			rounds = 1
		}
		for round := range rounds {
			for i, d := range drives {
				fmt.Fprintf(o.Progress, "%s: %s, round %d of %d\n", r.Name, there[i].Name, round+1, rounds)
				s, err := d(round+1, o.Length)
				if err != nil {
					return fmt.Errorf("%s: %w", there[i].Name, err)
				}
				res.Samples[i] = append(res.Samples[i], s)
			}
		}
		return nil
	})
	return res, err
}

// ErrAbsent reports that a contender is not installed, ErrNoRedis that no Redis is.
var (
	ErrAbsent  = errors.New("not installed")
	ErrNoRedis = errors.New("no redis-server is installed")
)

// Absent reports whether an error means that something is not installed. In CI, the engine and the servers must be.
func Absent(err error) bool {
	if os.Getenv("CI") == "true" {
		return errors.Is(err, ErrAbsent)
	}
	return errors.Is(err, ErrAbsent) || errors.Is(err, dynamotest.ErrNoEngine) || errors.Is(err, ErrNoRedis)
}
