package load

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/lab/report"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

// Options determine how a plan is run.
type Options struct {
	// Part of Parts, counted from 0, for a run that several workers share. Both 0: the whole run.
	Part, Parts int
	// Begin is when the first call is due, after the warm-up. The zero time means as soon as the warm-up is over.
	Begin time.Time
	// Precise makes the runner poll the clock in the last millisecond before a call is due, because the Go runtime
	// oversleeps. This takes up to one processor. Do not use it with virtual time.
	Precise bool
	// Measures returns totals of the store, whose growth during the run is reported; nil: nothing is reported.
	Measures func() map[string]float64
	// Progress receives the counts so far, once every Every; may be nil.
	Progress func(t *Tally)
	Every    time.Duration
}

// Run performs the calls. If the context ends, the run ends, with what was counted and without an error; calls in
// flight are completed first. An error means that it could not run.
func Run(ctx context.Context, p *traffic.Plan, target Target, o Options) (*Tally, error) {
	o.Parts = cmp.Or(o.Parts, 1)
	if o.Part < 0 || o.Part >= o.Parts {
		return nil, fmt.Errorf("part %d of %d", o.Part, o.Parts)
	}
	r := newRunner(p, target, o) // before Begin: it takes milliseconds
	if p.Scenario.WarmUp > 0 {
		warm := o
		warm.Begin = time.Time{}
		newRunner(p.WarmUp(), target, warm).all(ctx)
	}
	before := measured(o.Measures)
	if err := wait(ctx, time.Until(o.Begin)); err != nil {
		return nil, fmt.Errorf("interrupted during the warm-up: %w", err)
	}
	stop := r.showProgress(before)
	begun := r.all(ctx)
	stop()
	t := r.tally()
	t.Elapsed = time.Since(begun)
	for name, n := range measured(o.Measures) {
		t.Measures[name] = n - before[name]
	}
	return t, nil
}

func measured(f func() map[string]float64) map[string]float64 {
	if f == nil {
		return nil
	}
	return f()
}

// runner is one run, or its warm-up.
type runner struct {
	*traffic.Plan
	target  Target
	options Options

	shards []*shard
	slots  *slots
	missed uint64 // set at the end
	capped bool
}

// maxShards is the number of tallies over which callers are divided, so that they need not wait for each other.
const maxShards = 8

func newRunner(p *traffic.Plan, target Target, o Options) *runner {
	r := &runner{Plan: p, target: target, options: o, slots: &slots{}}
	for range maxShards {
		r.shards = append(r.shards, &shard{width: width(p), t: newTally(r.Plan)})
	}
	return r
}

// all makes all calls, and returns when it began.
func (r *runner) all(ctx context.Context) time.Time {
	begun := time.Now()
	if !r.options.Begin.IsZero() {
		begun = r.options.Begin
	}
	for _, s := range r.shards {
		s.mu.Lock()
		s.begun = begun
		s.mu.Unlock()
	}
	if r.Scenario.Loop == traffic.Closed {
		r.closed(ctx, begun)
	} else {
		r.open(ctx, begun)
	}
	return begun
}

// tally merges the shards' tallies.
func (r *runner) tally() *Tally {
	t := newTally(r.Plan)
	for _, s := range r.shards {
		s.mu.Lock()
		t.merge(s.t)
		s.mu.Unlock()
	}
	t.Slots = r.slots.tally()
	t.Missed, t.Capped = r.missed, r.capped
	return t
}

// showProgress reports progress until stop is called.
func (r *runner) showProgress(before map[string]float64) (stop func()) {
	if r.options.Progress == nil {
		return func() {}
	}
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(r.options.Every)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			t := r.tallySoFar()
			for name, n := range measured(r.options.Measures) {
				t.Measures[name] = n - before[name]
			}
			r.options.Progress(t)
		}
	})
	return func() { close(end); wg.Wait() }
}

// tallySoFar is tally during a run: it leaves out what is known only at the end.
func (r *runner) tallySoFar() *Tally {
	t := (&runner{Plan: r.Plan, shards: r.shards, slots: r.slots}).tally()
	r.shards[0].mu.Lock()
	defer r.shards[0].mu.Unlock()
	t.Elapsed = time.Since(r.shards[0].begun)
	return t
}

// shard is a tally shared by some of the callers.
type shard struct {
	mu    sync.Mutex
	begun time.Time
	width time.Duration
	t     *Tally
}

// outcome is the result of a call.
type outcome struct {
	op                traffic.Op
	due, began, ended time.Time
	refused           bool
	err               error
}

func (s *shard) add(c *traffic.Call, o *outcome) {
	n := Counts{Calls: 1}
	switch {
	case o.err != nil:
		n.Failed = 1
	case o.refused:
		n.Refused = 1
	}
	response := o.ended.Sub(o.due)
	s.mu.Lock()
	defer s.mu.Unlock()
	op := s.t.Ops[o.op]
	op.add(n)
	op.Response.Record(response)
	if o.err != nil {
		s.t.failed(o.err.Error(), 1)
	}
	if o.op == traffic.Adjust || o.op == traffic.Commit {
		return
	}
	s.t.Late.Record(o.began.Sub(o.due))
	s.t.Service.Record(o.ended.Sub(o.began))
	s.t.Groups[c.GroupAt].add(n)
	s.t.Resources[c.ResourceAt].add(n)
	if len(s.t.Windows) == 0 {
		return
	}
	i := min(max(0, int(o.ended.Sub(s.begun)/s.width)), len(s.t.Windows)-1)
	w := s.t.Windows[i]
	if w == nil {
		w = &window{Response: report.Coarse()}
		s.t.Windows[i] = w
	}
	w.add(n)
	w.Response.Record(response)
}

// call makes a call that was due, holds what it acquired, and makes the calls that follow.
func (r *runner) call(ctx context.Context, s *shard, c *traffic.Call, due time.Time) {
	o := outcome{op: c.Op, due: due, began: time.Now()}
	var held Held
	if c.Op == traffic.Available {
		o.err = r.target.Available(ctx, c)
	} else {
		held, o.err = r.target.Acquire(ctx, c)
		o.refused = held == nil
	}
	o.ended = time.Now()
	s.add(c, &o)
	if held == nil || o.err != nil {
		return
	}
	end := func() {}
	if c.Hold > 0 {
		end = r.slots.take(c, held.Slots(), s.begun, r.Length())
		_ = wait(ctx, c.Hold) // calls are completed, whatever happens
	}
	if changes(c.Adjust) {
		s.follow(c, traffic.Adjust, func() error {
			_, err := held.Adjust(ctx, c.Adjust)
			return err
		})
	}
	if c.Hold > 0 {
		end()
		s.follow(c, traffic.Commit, func() error { return held.Commit(ctx) })
	}
}

// follow makes a call that follows another one.
func (s *shard) follow(c *traffic.Call, op traffic.Op, call func() error) {
	o := outcome{op: op, began: time.Now()}
	o.due = o.began
	o.err = call()
	o.ended = time.Now()
	s.add(c, &o)
}

func changes(tokens map[string]int64) bool {
	for _, n := range tokens {
		if n != 0 {
			return true
		}
	}
	return false
}

// wait sleeps for d, or until the context ends.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
