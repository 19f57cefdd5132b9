package traffic_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/lab/traffic"
	"github.com/weirlimits/weir/internal/testkit/traffictest"
)

func near(t *testing.T, what string, got, want, off float64) {
	t.Helper()
	if got < want-off || got > want+off {
		t.Errorf("%s: %.2f, want %.2f", what, got, want)
	}
}

// draw draws the first n calls of an open loop, the i-th at when(i).
func draw(p *traffic.Plan, n int, when func(i int) time.Duration, each func(c *traffic.Call)) {
	d := p.Drawer()
	var c traffic.Call
	for i := range n {
		d.Nth(uint64(i), when(i), &c)
		each(&c)
	}
}

// drawn counts calls by the value that of returns for each.
func drawn(p *traffic.Plan, n int, when func(int) time.Duration, of func(*traffic.Call) string) map[string]float64 {
	counts := make(map[string]float64)
	draw(p, n, when, func(c *traffic.Call) { counts[of(c)] += 100 / float64(n) })
	return counts
}

func at(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// The traffic of stress has a whale, a spiker, and a tail that follows Zipf's law.
func TestStressDraws(t *testing.T) {
	t.Parallel()
	sc := traffictest.Named(t, "stress")
	sc.Entities[1].Spikes = nil
	p := traffictest.Plan(t, sc, traffic.Settings{Seed: 7})
	entities := drawn(p, 200_000, at(0), func(c *traffic.Call) string { return c.Entity })
	near(t, "whale", entities["entity-whale"], 50, 0.5)
	near(t, "spiker", entities["entity-spiker"], 3, 0.2)
	near(t, "rank 1", entities["entity-00000"], 18.1, 0.4)
	delete(entities, "entity-whale")
	delete(entities, "entity-spiker")
	shares := slices.Sorted(maps.Values(entities))
	slices.Reverse(shares)
	top := func(n int) (sum float64) {
		for _, s := range shares[:n] {
			sum += s / 0.47
		}
		return sum
	}
	near(t, "top 10", top(10), 76.9, 1)
	near(t, "top 100", top(100), 92.9, 1)
	near(t, "top 1000", top(1000), 98.2, 1)
	near(t, "distinct", float64(len(entities)), 2360, 250)
	calls := drawn(p, 100_000, at(0), func(c *traffic.Call) string { return string(c.Op) })
	near(t, "available", calls["available"], 100*5./105, 0.3)
	draw(p, 1000, at(0), func(c *traffic.Call) {
		if n := c.Tokens["tpm"]; c.Op == traffic.Acquire && (n < 100 || n > 1000 || c.Tokens["rpm"] != 1) {
			t.Fatalf("asks for %v", c.Tokens)
		}
	})
}

// Spikes depend on time: 0.1 a minute of half a minute each take up 4.8 % of the time, at any rate of calls.
func TestSpikesAreOfTime(t *testing.T) {
	t.Parallel()
	const length = 100 * time.Hour
	for _, n := range []int{3_600, 36_000} {
		p := traffictest.Plan(t, traffictest.Named(t, "stress"), traffic.Settings{Seed: 3, For: traffic.Span(length)})
		entities := drawn(p, n, func(i int) time.Duration { return length / time.Duration(n) * time.Duration(i) }, func(c *traffic.Call) string { return c.Entity })
		near(t, "spiker", entities["entity-spiker"], 4.76+95.24*0.03, 1)
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	p := traffictest.Plan(t, traffictest.Named(t, "llm-production"), traffic.Settings{Seed: 1})
	draw(p, 2000, at(0), func(c *traffic.Call) {
		if n := c.Adjust["tpm"] + 800; c.Adjust != nil && (n < 200 || n > 2000 || c.Tokens["tpm"] != 800) {
			t.Fatalf("%v adjusted by %v", c.Tokens, c.Adjust)
		}
	})
	kinds := drawn(p, 50_000, at(0), func(c *traffic.Call) string {
		if c.Op == traffic.Acquire && c.Adjust == nil {
			return "list-models"
		}
		return string(c.Op)
	})
	near(t, "chat", kinds["acquire"], 100*15./18, 1)
	near(t, "list-models", kinds["list-models"], 100*2./18, 1)
}

// The shapes of llm-production, at full length and compressed to a hundredth of the time.
func TestShapes(t *testing.T) {
	t.Parallel()
	for _, scale := range []time.Duration{1, 100} {
		for shape, users := range map[string]map[time.Duration]float64{
			"daily": {
				0: 15, 5 * time.Hour: 15, 6*time.Hour + 40*time.Second: 55, 7 * time.Hour: 100, 9 * time.Hour: 150, 18*time.Hour + 30*time.Minute: 120, 22 * time.Hour: 30, 24 * time.Hour: 15,
			},
			"spike": {0: 50, 10*time.Minute + 20*time.Second: 110, 30 * time.Minute: 150, 59 * time.Minute: 100},
		} {
			length := map[string]time.Duration{"daily": 24 * time.Hour, "spike": time.Hour}[shape]
			p := traffictest.Plan(t, traffictest.Named(t, "llm-production"), traffic.Settings{Shape: shape, For: traffic.Span(length / scale)})
			for at, want := range users {
				near(t, shape+" at "+at.String(), p.Users(at/scale), want, 0.01)
			}
		}
	}
}

// Due times never go back, none is past the end, and their number matches the area under the shape.
func TestSchedule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		sc := traffictest.Decode(t, "")
		n := rapid.IntRange(1, 6).Draw(rt, "stages")
		stages := make([]traffic.Stage, n)
		total := time.Duration(0)
		for i := range stages {
			d := time.Duration(rapid.IntRange(1, 60).Draw(rt, "for")) * time.Second
			stages[i] = traffic.Stage{For: traffic.Span(d), Users: rapid.IntRange(0, 50).Draw(rt, "users"), Spawn: rapid.Float64Range(0.1, 10).Draw(rt, "spawn")}
			total += d
		}
		stages[0].Users++
		sc.Shapes = map[string][]traffic.Stage{"s": stages}
		p := traffictest.Plan(t, sc, traffic.Settings{Shape: "s", For: traffic.Span(total)})
		last, sum := time.Duration(0), 0.0
		const step = 10 * time.Millisecond
		for at := step / 2; at < total; at += step {
			sum += p.Users(at) * step.Seconds() * 10 // each user calls ten times a second
		}
		if math.Abs(sum-float64(p.Calls())) > 2+sum/1000 {
			rt.Fatalf("%d calls, the area is %.1f", p.Calls(), sum)
		}
		for i := range p.Calls() {
			at := p.Due(i)
			if at < last || at > total {
				rt.Fatalf("call %d at %s, the one before at %s, the end at %s", i, at, last, total)
			}
			last = at
		}
	})
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	good := string(traffictest.Named(t, "stress").Text())
	for _, tt := range []struct{ old, with, want string }{
		{"users: 20", "users: 20\nuser: 1", "user"},
		{"users: 20", "users: 0", "users"},
		{"users: 20", "users: 20\nloop: round", "neither open nor closed"},
		{"users: 20", "users: 20\nshape: daily", "is not defined under shapes"},
		{"users: 20", "users: 20\nshapes: {x: [{for: 1s, users: 1}]}", "needs for, users and spawn"},
		{"users: 20", "users: 20\nbursts: {every: 1s}", "need every and calls"},
		{"wait: 0.01s..0.1s", "wait: 2s..1s", "neither a number nor a range"},
		{"pick: zipf", "pick: most", "is neither own nor zipf"},
		{"exponent: 1.5", "exponent: 1", "above 1"},
		{"entity-%05d", "entity-%s", "must contain one %d"},
		{"entity-%05d", "entity", "must contain one %d"},
		{"id: entity-whale", "id: whale-%d", "must contain one %d"},
		{"share: 50", "share: 0", "above 0"},
		{"for: 30s}", "for: 0s}", "spikes need"},
		{"op: available", "op: list", "neither acquire nor available"},
		{"tpm: 100..1000", "tpm: 0.5", "whole number"},
		{"weight: 100, tokens: {rpm: 1, tpm: 100..1000}", "weight: 100", "needs tokens"},
		{"weight: 100, tokens: {rpm: 1, tpm: 100..1000}", "weight: 100, tokens: {rpm: 1}, adjust: {tpm: 1}", "not among its tokens"},
		{"weight: 5", "weight: 0", "weight"},
		{"weight: 5", "weight: 5, hold: 1s", "neither holds nor waits"},
		{"weight: 100", "weight: 100, hold: 11s", "hold must be from 0s to 10s"},
		{"weight: 100", "weight: 100, wait: 6s", "wait from 0s to 5s"},
		{"resources: [", "resources: []\nx: [", "x"},
	} {
		text := strings.Replace(good, tt.old, tt.with, 1)
		if text == good {
			t.Fatalf("no %q to replace", tt.old)
		}
		if _, err := traffic.Decode("bad", []byte(text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.with, err, tt.want)
		}
	}
	if _, err := traffic.Decode("empty", nil); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Error(err)
	}
	if _, err := traffic.Named("nothing"); err == nil || !strings.Contains(err.Error(), "scenarios are cascade, ") {
		t.Error(err)
	}
	for _, set := range []traffic.Settings{{Rate: 5, Loop: traffic.Closed}, {Shape: "none", Loop: "x"}, {Callers: -1}, {Rate: 1e9}, {Wait: &traffic.Range{}}} {
		if _, err := traffic.NewPlan(traffictest.Named(t, "simple"), set); err == nil {
			t.Errorf("%+v is fine", set)
		}
	}
}

// A run of two seconds has calls of every scenario with an open loop, bursts included.
func TestBeginsSoon(t *testing.T) {
	t.Parallel()
	for _, name := range traffic.Names() {
		sc, err := traffic.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := traffic.NewPlan(sc, traffic.Settings{For: traffic.Span(2 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		if sc.Loop == traffic.Open && (p.Calls() == 0 || p.Due(0) >= 2*time.Second) {
			t.Errorf("%s: %d calls, the first after %s", name, p.Calls(), p.Due(0))
		}
	}
}
