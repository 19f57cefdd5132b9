package breaker_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/outage/breaker"
)

const (
	cooldown = time.Second
	several  = 3
)

// anybody is whose calls are in tests of one caller.
func anybody() breaker.Key { return breaker.Key{Space: 1, Root: 1} }

// call makes a call that takes no time, and reports whether it was let through.
func call(b *breaker.Breaker, r breaker.Result) bool {
	c, ok := b.Begin(anybody)
	if ok {
		c.Done(anybody(), r)
	}
	return ok
}

// trip opens a breaker of the default configuration.
func trip(t *testing.T, b *breaker.Breaker) {
	t.Helper()
	for range 10 {
		if !call(b, breaker.Failed) {
			t.Fatal("it was open already")
		}
	}
	wantState(t, b, breaker.Open)
}

func wantState(t *testing.T, b *breaker.Breaker, want breaker.State) {
	t.Helper()
	if got := b.State(); got != want {
		t.Fatalf("it is %s, not %s", got, want)
	}
}

func TestRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var states []breaker.State
		b := breaker.New(breaker.Config{
			Uniform: func() float64 { return 0.5 }, Changed: func(s breaker.State) { states = append(states, s) },
		})
		trip(t, b)
		time.Sleep(1100*time.Millisecond - 1)
		if call(b, breaker.Succeeded) {
			t.Error("called during the cooldown")
		}
		time.Sleep(time.Nanosecond)
		if !call(b, breaker.Failed) {
			t.Error("no probe after the cooldown")
		}
		if call(b, breaker.Succeeded) {
			t.Error("called after a probe that failed")
		}
		time.Sleep(1100 * time.Millisecond)
		if probe, next := call(b, breaker.Succeeded), call(b, breaker.Succeeded); !probe || !next {
			t.Error("not called after a probe that succeeded")
		}
		for range 9 { // results from before it opened are forgotten
			call(b, breaker.Failed)
		}
		wantState(t, b, breaker.Open)
		want := []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Open, breaker.HalfOpen, breaker.Closed, breaker.Open}
		if !slices.Equal(states, want) {
			t.Errorf("it went %v", states)
		}
	})
}

// TestOneProbe: of a thousand callers that arrive when the cooldown ends, one is let through.
func TestOneProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{})
		trip(t, b)
		time.Sleep(cooldown * 6 / 5)
		var made atomic.Int64
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if c, ok := b.Begin(anybody); ok {
					made.Add(1)
					time.Sleep(time.Millisecond)
					c.Done(anybody(), breaker.Succeeded)
				}
			})
		}
		wg.Wait()
		if made.Load() != 1 {
			t.Errorf("%d probes", made.Load())
		}
		wantState(t, b, breaker.Closed)
	})
}

// TestLostProbe: a probe that never reports gives its place up, and counts as failed.
func TestLostProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{Probe: 100 * time.Millisecond})
		trip(t, b)
		time.Sleep(cooldown * 6 / 5)
		lost, ok := b.Begin(anybody)
		if !ok {
			t.Fatal("no probe")
		}
		time.Sleep(100*time.Millisecond - 1)
		wantState(t, b, breaker.HalfOpen)
		time.Sleep(time.Nanosecond)
		if call(b, breaker.Succeeded) {
			t.Error("called at once after a lost probe")
		}
		lost.Done(anybody(), breaker.Succeeded)
		wantState(t, b, breaker.Open)
		time.Sleep(cooldown * 6 / 5)
		if !call(b, breaker.Succeeded) {
			t.Error("no second probe")
		}
		wantState(t, b, breaker.Closed)
	})
}

// TestLateProbe: a probe that reports too late has failed, even if no other caller came meanwhile.
func TestLateProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{Probe: 100 * time.Millisecond})
		trip(t, b)
		time.Sleep(cooldown * 6 / 5)
		c, _ := b.Begin(anybody)
		time.Sleep(100 * time.Millisecond)
		c.Done(anybody(), breaker.Succeeded)
		wantState(t, b, breaker.Open)
	})
}

// TestEarlierGeneration: results of calls made before a state change do not count.
func TestEarlierGeneration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{})
		var early [20]breaker.Call
		for i := range early {
			early[i], _ = b.Begin(anybody)
		}
		trip(t, b)
		time.Sleep(cooldown * 6 / 5)
		probe, _ := b.Begin(anybody)
		early[0].Done(anybody(), breaker.Succeeded)
		wantState(t, b, breaker.HalfOpen)
		probe.Done(anybody(), breaker.Succeeded)
		for _, c := range early[1:] {
			c.Done(anybody(), breaker.Failed)
		}
		wantState(t, b, breaker.Closed)
	})
}

func TestCounts(t *testing.T) {
	t.Parallel()
	const ok, failed, unknown = breaker.Succeeded, breaker.Failed, breaker.Unknown
	of := func(n int, rs ...breaker.Result) []breaker.Result { return slices.Repeat(rs, n) }
	for _, tt := range []struct {
		name    string
		results []breaker.Result
		pause   time.Duration // after each call
		want    breaker.State
	}{
		{"too few", of(9, failed), 0, breaker.Closed},
		{"enough", of(10, failed), 0, breaker.Open},
		{"half of them", of(5, ok, failed), 0, breaker.Open},
		{"fewer than half", append(of(6, ok), of(5, failed)...), 0, breaker.Closed},
		{"callers that gave up", of(1000, unknown), 0, breaker.Closed},
		{"neither do they dilute", append(of(100, unknown), of(10, failed)...), 0, breaker.Open},
		{"too long ago", of(30, failed), 1200 * time.Millisecond, breaker.Closed},
		{"within the window", of(10, failed), time.Second, breaker.Open},
		{"successes of long ago", append(append(of(100, ok), of(10, unknown)...), of(10, failed)...), 900 * time.Millisecond, breaker.Open},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := breaker.New(breaker.Config{Cooldown: time.Hour})
				for _, r := range tt.results {
					call(b, r)
					time.Sleep(tt.pause)
				}
				wantState(t, b, tt.want)
			})
		})
	}
}

// TestProbeGivenUp: a probe whose caller gives up has no result; the next caller probes.
func TestProbeGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{})
		trip(t, b)
		time.Sleep(cooldown * 6 / 5)
		if !call(b, breaker.Unknown) || !call(b, breaker.Succeeded) {
			t.Error("the next caller was not let through")
		}
		wantState(t, b, breaker.Closed)
	})
}

// TestJitter: it stays open for Cooldown + U(0, Cooldown/5), drawn anew each time: ten classes, chi-square at 0.1 %.
func TestJitter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, classes = 2000, 10
		b := breaker.New(breaker.Config{Uniform: rand.New(rand.NewPCG(1, 2)).Float64})
		trip(t, b)
		var counts [classes]int
		for range n {
			opened := time.Now()
			time.Sleep(cooldown - 1)
			for !call(b, breaker.Failed) {
				time.Sleep(time.Millisecond)
			}
			over := time.Since(opened) - cooldown
			if over < 0 || over > cooldown/5 {
				t.Fatalf("open for %s", cooldown+over)
			}
			counts[min(classes-1, int(over*classes/(cooldown/5)))]++
		}
		chi := 0.0
		for _, c := range counts {
			d := float64(c) - n/classes
			chi += d * d / (n / classes)
		}
		if chi > 27.9 { // 9 degrees of freedom
			t.Errorf("not uniform: %v, chi-square %.1f", counts, chi)
		}
	})
}

func BenchmarkClosed(b *testing.B) {
	br := breaker.New(breaker.Config{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			call(br, breaker.Succeeded)
		}
	})
}

// TestSilence: if all answers stop, earlier answers no longer count. A single pause of all callers is not silence.
func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{Silence: func() time.Duration { return 50 * time.Millisecond }})
		for range 10_000 {
			call(b, breaker.Succeeded)
		}
		for range 100 {
			call(b, breaker.Failed)
		}
		wantState(t, b, breaker.Closed)
		time.Sleep(50*time.Millisecond - 1)
		call(b, breaker.Failed)
		wantState(t, b, breaker.Closed)
		call(b, breaker.Succeeded)
		time.Sleep(time.Nanosecond)
		for range 9 {
			call(b, breaker.Failed)
			time.Sleep(10 * time.Millisecond)
		}
		call(b, breaker.Unknown)
		wantState(t, b, breaker.Closed) // too few failures so far
		call(b, breaker.Failed)
		wantState(t, b, breaker.Open)
	})
}

func TestTinyWindow(t *testing.T) {
	t.Parallel()
	b := breaker.New(breaker.Config{Window: 1})
	call(b, breaker.Failed) // a tenth of the window is less than a nanosecond
	wantState(t, b, breaker.Closed)
}
