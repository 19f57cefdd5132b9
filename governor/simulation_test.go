package governor_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/governor"
	"github.com/weirlimits/weir/internal/fleet"
)

// world is a fleet in virtual time. Its workers spend single units, as many as allowed while there is demand.
type world struct {
	t      *testing.T
	limit  float64
	began  time.Time
	coord  *flaky
	idle   atomic.Bool
	ctx    context.Context //nolint:containedctx // the bubble's
	stop   context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	govs   []*governor.Governor
	events []time.Duration // times at which units were spent
}

// flaky is a coordinator that can be made unreachable: for all workers, or for some calls.
type flaky struct {
	fleet.Memory
	down atomic.Bool
	slow time.Duration // the longest delay of a call, before and after it takes effect
}

func (f *flaky) wait() {
	if f.slow > 0 {
		time.Sleep(rand.N(f.slow)) // virtual time: all of this runs in a bubble
	}
}

var errDown = errors.New("out of reach")

func (f *flaky) Get(ctx context.Context, name string) (fleet.Record, error) {
	if f.down.Load() {
		return fleet.Record{}, errDown
	}
	f.wait()
	defer f.wait()
	return f.Memory.Get(ctx, name)
}

func (f *flaky) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	if f.down.Load() {
		return "", errDown
	}
	f.wait()
	defer f.wait()
	return f.Memory.Put(ctx, name, value, version)
}

func newWorld(t *testing.T, limit float64) *world {
	w := &world{t: t, limit: limit, began: time.Now(), coord: &flaky{}}
	w.ctx, w.stop = context.WithCancel(t.Context())
	return w
}

// join adds workers. Each has its own view of the coordinator, which can be cut off separately.
func (w *world) join(n int) (views []*view) {
	for range n {
		v := &view{flaky: w.coord}
		views = append(views, v)
		g, err := governor.New(governor.Config{ReadUnits: governor.Unlimited, WriteUnits: w.limit, Coordinator: v})
		if err != nil {
			w.t.Fatal(err)
		}
		w.govs = append(w.govs, g)
		w.wg.Go(func() { w.work(g) })
	}
	return views
}

// view is a worker's coordinator.
type view struct {
	*flaky
	cut atomic.Bool
}

func (v *view) Get(ctx context.Context, name string) (fleet.Record, error) {
	if v.cut.Load() {
		return fleet.Record{}, errDown
	}
	return v.flaky.Get(ctx, name)
}

func (v *view) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	if v.cut.Load() {
		return "", errDown
	}
	return v.flaky.Put(ctx, name, value, version)
}

func (w *world) work(g *governor.Governor) {
	for w.ctx.Err() == nil {
		if w.idle.Load() {
			time.Sleep(sec) // virtual time: all of this runs in a bubble
		}
		if g.Spend(w.ctx, governor.Write, 1) != nil {
			return // the test ended, or the governor was closed
		}
		w.mu.Lock()
		w.events = append(w.events, time.Since(w.began))
		w.mu.Unlock()
	}
}

func (w *world) run(d time.Duration) { time.Sleep(d) } // virtual time: all of this runs in a bubble

func (w *world) end() {
	w.stop()
	w.wg.Wait()
	for _, g := range w.govs {
		if err := g.Close(); err != nil {
			w.t.Error(err)
		}
	}
	slices.Sort(w.events)
}

// peak returns the most that was spent within any window of the given length, from a time on, as a fraction of what the
// limit issues in it.
func (w *world) peak(from, within time.Duration) float64 {
	var most, first int
	for i, e := range w.events {
		for e-w.events[first] >= within {
			first++
		}
		if w.events[first] >= from {
			most = max(most, i-first+1)
		}
	}
	return float64(most) / (w.limit * within.Seconds())
}

func (w *world) average(from, to time.Duration) float64 {
	n := 0
	for _, e := range w.events {
		if e >= from && e < to {
			n++
		}
	}
	return float64(n) / (w.limit * (to - from).Seconds())
}

func always(int) float64 { return math.Inf(1) }

// after is a demand that is near zero at first.
func after(begin int) func(int) float64 {
	return func(at int) float64 {
		if at < begin {
			return 0.1
		}
		return math.Inf(1)
	}
}

const sec = time.Second

func TestFleetsStartTogether(t *testing.T) {
	t.Parallel()
	for _, n := range []int{10, 40} {
		ref := newReference(1000)
		ref.join(n, 0, always)
		ref.run(400)
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1000)
			w.join(n)
			w.run(40 * sec)
			w.end()
			t.Logf("%d start together: peak second %.3f (reference %.1f), first 10 s %.2f (%.2f), then %.3f (%.2f)", n,
				w.peak(0, sec), ref.peak(0), w.average(0, 10*sec), ref.average(0, 100), w.average(20*sec, 40*sec), ref.average(300, 400))
			w.holds(0, 20*sec, 40*sec)
		})
	}
}

// most returns how much the guarantee allows within the given period, as a fraction of what the limit issues in it: the
// rate, and a burst of 50 ms, which all shares together hold. The workers start their beats at random times, so how much
// of that burst is there when they all begin to spend differs from run to run.
func most(within time.Duration) float64 { return 1 + 0.05/within.Seconds() }

// holds asserts that the limit was never exceeded, and that it was used within the given period.
func (w *world) holds(from, usedFrom, usedTo time.Duration) {
	w.t.Helper()
	if p := w.peak(from, sec); p > most(sec) {
		w.t.Errorf("the busiest second had %.3f of the limit", p)
	}
	if a := w.average(usedFrom, usedTo); a < 0.98 || a > most(usedTo-usedFrom) {
		w.t.Errorf("%.4f of the limit was used", a)
	}
}

func TestFleetIdleThenBursts(t *testing.T) {
	t.Parallel()
	ref := newReference(1000)
	ref.join(10, 0, after(600))
	ref.run(1200)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1000)
		w.idle.Store(true)
		w.join(10)
		w.run(60 * sec)
		w.idle.Store(false)
		w.run(60 * sec)
		w.end()
		t.Logf("idle, then burst: peak second %.3f (reference %.1f), first 2 s %.2f (%.2f), 10 s %.2f (%.2f)", w.peak(0, sec), ref.peak(0),
			w.average(60*sec, 62*sec), ref.average(600, 620), w.average(60*sec, 70*sec), ref.average(600, 700))
		w.holds(0, 70*sec, 120*sec)
	})
}

func TestFleetGrows(t *testing.T) {
	t.Parallel()
	ref := newReference(1000)
	ref.join(10, 0, always)
	ref.join(30, 300, always)
	ref.run(700)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1000)
		w.join(10)
		w.run(30 * sec)
		w.join(30)
		w.run(40 * sec)
		w.end()
		t.Logf("30 join 10: peak second %.3f (reference %.1f), first 10 s %.2f (%.2f), then %.3f (%.2f)", w.peak(0, sec), ref.peak(250),
			w.average(30*sec, 40*sec), ref.average(300, 400), w.average(50*sec, 70*sec), ref.average(600, 700))
		w.holds(0, 45*sec, 70*sec) // three refreshes after they joined
	})
}

func TestFleetOutlivesItsCoordinator(t *testing.T) {
	t.Parallel()
	high, low := newReference(1000), newReference(1000)
	high.join(10, 0, always)
	high.dead = func() bool { return high.summary > high.limit }
	low.join(10, 0, after(100))
	low.dead = func() bool { return low.summary > 0 && low.summary < low.limit }
	high.run(3000)
	low.run(3000)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 400)
		w.join(10)
		w.run(60 * sec)
		w.coord.down.Store(true)
		w.run(120 * sec)
		w.coord.down.Store(false)
		w.run(90 * sec)
		w.end()
		dip := 1.0
		for at := 60 * sec; at < 180*sec; at += sec {
			dip = min(dip, w.average(at, at+sec))
		}
		t.Logf("coordinator gone for 2 min: peak second %.3f, at least %.3f, average %.3f, 5 s after its return %.3f; reference for ever %.2f or %.2f",
			w.peak(60*sec, sec), dip, w.average(60*sec, 180*sec), w.average(190*sec, 195*sec), low.average(2000, 3000), high.average(2000, 3000))
		w.holds(0, 210*sec, 270*sec) // it comes ever closer, sometimes from a new leader's first grants
		if dip < 0.5-10.0/400 {      // each of the 10 workers may have a call less in one second than in another
			t.Errorf("only %.3f of the limit was used while the coordinator was gone", dip)
		}
	})
}

func TestFleetLargerThanItsLimit(t *testing.T) {
	t.Parallel()
	ref := newReference(20)
	ref.join(100, 0, always)
	ref.run(1800)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 20)
		w.join(100)
		w.run(100 * sec)
		w.end()
		t.Logf("100 workers, 20/s: average %.3f, busiest 10 s %.2f, busiest second %.2f; reference %.2f for ever", w.average(30*sec, 100*sec),
			w.peak(0, 10*sec), w.peak(0, sec), ref.average(900, 1800))
		if a := w.average(30*sec, 100*sec); a > most(70*sec) || a < 0.95 {
			t.Errorf("%.4f of the limit was used", a)
		}
		if total := float64(len(w.events)); total > 20*100 {
			t.Errorf("%.0f units in 100 s", total)
		}
	})
}
