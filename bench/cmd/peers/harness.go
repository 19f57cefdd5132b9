package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// A row compares contenders on one kind of work. The first contender is weir.
type row struct {
	part       string // part of the page
	name       string
	contenders []contender
}

// A contender can do the work of a row.
type contender struct {
	name  string
	setup func(e *env) (drive, error)
}

// drive works for a while, in one of the rounds, and returns its sample.
type drive func(round int, length time.Duration) (sample, error)

// sample holds the figures of a contender in a round.
type sample struct {
	rate   float64 // operations a second
	p50    float64 // microseconds; 0 if an operation is too short to be timed
	p99    float64
	cpu    float64 // processor time per operation, in nanoseconds
	calls  float64 // calls of a store over a network per operation
	ops    int
	failed int
}

// env is what a contender may use until the row, or the probe, is done.
type env struct {
	ctx     context.Context //nolint:containedctx // the row's, as a test's
	peers   places
	quick   bool // in a test, where small numbers are enough
	cleanup []func() error
}

// places are the paths of the peers that are not linked in; "" if they are not installed.
type places struct{ python, script, envoy string }

func (e *env) defers(f func() error) { e.cleanup = append(e.cleanup, f) }

func (e *env) close() (err error) {
	for _, f := range slices.Backward(e.cleanup) {
		err = errors.Join(err, f())
	}
	return err
}

// few returns n, or in a test the number that is enough for it.
func (e *env) few(n, test int) int {
	if e.quick {
		return test
	}
	return n
}

// errAbsent reports that a contender is not installed.
var errAbsent = errors.New("not installed")

// result is a row with its samples, by contender and round. Contenders that are not installed are left out.
type result struct {
	row
	samples [][]sample
}

type options struct {
	rounds   int
	length   time.Duration
	peers    places
	quick    bool
	progress io.Writer
}

func (o options) env() (*env, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	return &env{ctx: ctx, peers: o.peers, quick: o.quick}, cancel
}

// measure runs the contenders in turn, A B C, A B C, …, after a shorter round for warming up.
func (o options) measure(r row) (res result, err error) {
	e, cancel := o.env()
	defer cancel()
	defer func() { err = errors.Join(err, e.close()) }()

	var drives []drive
	var there []contender
	for _, c := range r.contenders {
		d, err := c.setup(e)
		if absent(err) {
			fmt.Fprintf(o.progress, "%s: %s: left out: %v\n", r.name, c.name, err)
			continue
		}
		if err == nil {
			_, err = d(0, o.length/4)
		}
		if err != nil {
			return res, fmt.Errorf("%s: %w", c.name, err)
		}
		drives, there = append(drives, d), append(there, c)
	}
	r.contenders = there
	res = result{row: r, samples: make([][]sample, len(drives))}
	for round := range o.rounds {
		for i, d := range drives {
			fmt.Fprintf(o.progress, "%s: %s: %s, round %d of %d\n", r.part, r.name, there[i].name, round+1, o.rounds)
			s, err := d(round+1, o.length)
			if err != nil {
				return res, fmt.Errorf("%s: %w", there[i].name, err)
			}
			res.samples[i] = append(res.samples[i], s)
		}
	}
	return res, nil
}

// absent reports whether an error means that something is not installed. In CI, the engine and the servers must be.
func absent(err error) bool {
	if os.Getenv("CI") == "true" {
		return errors.Is(err, errAbsent)
	}
	return errors.Is(err, errAbsent) || errors.Is(err, dynamotest.ErrNoEngine) || errors.Is(err, errNoRedis)
}

// each returns one figure of a contender, by round.
func (r result) each(contender int, pick func(*sample) float64) (picked []float64) {
	for i := range r.samples[contender] {
		picked = append(picked, pick(&r.samples[contender][i]))
	}
	return picked
}
