package simulate_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/simulate"
	"github.com/weirlimits/weir/internal/testkit/raced"
)

func run(t *testing.T, cfg simulate.Config) *simulate.Report {
	t.Helper()
	r, err := simulate.Run(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSums checks that every decision is answered once, whatever fails, and that the parts add up to the whole.
func TestSums(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	for _, s := range simulate.Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			cfg := s.Config
			cfg.Rate /= 8 // to save time
			cfg.Limit.Amount, cfg.Limit.Burst = cfg.Limit.Amount/8, cfg.Limit.Burst/8
			r := run(t, cfg)
			if r.Admitted+r.Refused+r.Failed != r.Asked || r.Asked == 0 {
				t.Errorf("%d asked, %d admitted, %d refused, %d failed", r.Asked, r.Admitted, r.Refused, r.Failed)
			}
			var all simulate.Interval
			for _, in := range r.Intervals {
				all.Asked, all.Admitted, all.Refused, all.Degraded = all.Asked+in.Asked, all.Admitted+in.Admitted, all.Refused+in.Refused, all.Degraded+in.Degraded
				all.Calls, all.InVain, all.Units = all.Calls+in.Calls, all.InVain+in.InVain, all.Units+in.Units
			}
			if want := (simulate.Interval{r.Asked, r.Admitted, r.Refused, r.Degraded, r.Calls, r.InVain, r.Units}); all != want {
				t.Errorf("the intervals come to %+v, not %+v", all, want)
			}
			asked := 0
			for _, c := range r.Cells {
				asked += c.Asked
			}
			if asked != r.Asked {
				t.Errorf("the cells were asked %d times", asked)
			}
			if r.P50 <= 0 || r.P50 > r.P99 || r.P99 > r.Max || r.Max > 1001 {
				t.Errorf("took %g, %g, %g ms", r.P50, r.P99, r.Max)
			}
		})
	}
}

// TestSeed checks that the same seed gives the same report, and another seed another.
func TestSeed(t *testing.T) {
	t.Parallel()
	cfg := simulate.Config{
		Limit: weir.PerSecond("rps", 100), Rate: 300, Processes: 20, Entities: 3, Errors: 0.02, Lost: 0.01, For: 10 * time.Second,
		Outages: []simulate.Outage{{From: 2 * time.Second, To: 5 * time.Second}},
	}
	a, b := run(t, cfg), run(t, cfg)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
	cfg.Seed = 2
	if c := run(t, cfg); c.Calls == a.Calls && c.Admitted == a.Admitted {
		t.Error("another seed made no difference")
	}
}

// TestNeverMore checks that without faults, admissions over any stretch of time never exceed the limit and use nearly all
// of it. With clocks that differ, they exceed it once, by at most what the limit issues in that time.
func TestNeverMore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		cfg := simulate.Config{Seed: seed, Limit: weir.PerSecond("rps", 500), Rate: 1500, Processes: 50, For: 5 * time.Second, Capacity: 1e6}
		r := run(t, cfg)
		if r.Over > 0 || float64(r.Admitted) < 0.97*float64(r.Ideal) {
			t.Errorf("seed %d: %d of %d admitted, over by %g", seed, r.Admitted, r.Ideal, r.Over)
		}
		cfg.ClockSkew = 500 * time.Millisecond
		if apart := run(t, cfg); apart.Over > 500 || float64(apart.Admitted) < 0.97*float64(apart.Ideal) {
			t.Errorf("seed %d: clocks apart, %d of %d admitted, over by %g", seed, apart.Admitted, apart.Ideal, apart.Over)
		}
	}
}

// TestOutage checks that a fleet without its table continues on its own, within the limit and a burst, and recovers.
func TestOutage(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	cfg := simulate.Config{
		Limit: weir.PerSecond("rps", 1000), Rate: 1500, Processes: 50, For: 40 * time.Second, Capacity: 1e6, MaxShards: 1,
		Outages: []simulate.Outage{{From: 10 * time.Second, To: 25 * time.Second}},
	}
	r := run(t, cfg)
	if r.Tokens > 1.01*r.Allowed || r.Over > 1000 || r.DegradedAdmitted < 12_000 {
		t.Errorf("%g of %g admitted, over by %g, %d degraded", r.Tokens, r.Allowed, r.Over, r.DegradedAdmitted)
	}
	if r.Recovered <= 0 || r.Recovered > 2.5 {
		t.Errorf("recovered after %g s", r.Recovered)
	}
	cfg.OnUnavailable = simulate.Deny
	if r := run(t, cfg); r.Failed == 0 || r.DegradedAdmitted > 0 || r.Over > 0 {
		t.Errorf("deny: %d failed, %d admitted degraded, over by %g", r.Failed, r.DegradedAdmitted, r.Over)
	}
	cfg.OnUnavailable = simulate.Allow
	if r := run(t, cfg); r.Failed > 0 || r.DegradedAdmitted != r.Degraded || r.Over < 5000 {
		t.Errorf("allow: %d failed, %d of %d admitted degraded, over by %g", r.Failed, r.DegradedAdmitted, r.Degraded, r.Over)
	}
	cfg.Outages[0].To = time.Hour // never
	if r := run(t, cfg); r.Recovered != -1 || r.Degraded == 0 {
		t.Errorf("an outage that does not end: recovered after %g s", r.Recovered)
	}
}

// TestCells checks that equal shares starve the cell with most of the demand, and that no cell gets more than its share.
func TestCells(t *testing.T) {
	t.Parallel()
	r := run(t, simulate.Config{
		Limit: weir.PerSecond("rps", 200), Rate: 200, Processes: 20, For: 20 * time.Second,
		Cells: []simulate.Cell{{0.5, 0.9}, {0.5, 0.1}},
	})
	a, b := r.Cells[0], r.Cells[1]
	if a.Refused == 0 || a.Admitted > 100+100*20+20 || b.Refused > 0 || r.Over > 0 {
		t.Errorf("%+v %+v, over by %g", a, b, r.Over)
	}
}

// TestSplit checks that a bucket that is written more often than an item allows is split until its calls succeed.
func TestSplit(t *testing.T) {
	t.Parallel()
	cfg := simulate.Config{Limit: weir.PerSecond("rps", 10_000), Rate: 2500, Processes: 100, For: 12 * time.Second}
	r := run(t, cfg)
	last := r.Intervals[len(r.Intervals)/2:]
	if r.Splits < 2 || r.Throttled == 0 {
		t.Errorf("%d splits, %d throttled", r.Splits, r.Throttled)
	}
	for _, in := range last {
		if in.Degraded > 0 || float64(in.Calls) > 1.5*float64(in.Asked) {
			t.Errorf("in the end %+v", in)
		}
	}
	cfg.MaxShards = 1
	if r := run(t, cfg); r.Splits != 0 || r.Degraded == 0 {
		t.Errorf("never to be split: %d splits, %d degraded", r.Splits, r.Degraded)
	}
}

// TestSplitEvenly checks that all items of a split bucket are written: with more writes than they accept, as many are
// made as all of them together accept.
func TestSplitEvenly(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	const capacity, items = 1000, 4
	r := run(t, simulate.Config{
		Limit: weir.PerSecond("rps", 60_000), Rate: 6000, Processes: 100, MaxShards: items, Capacity: capacity,
		For: 10 * time.Second,
	})
	units, last := 0, r.Intervals[len(r.Intervals)/2:]
	for _, in := range last {
		units += in.Units
	}
	all := capacity * items * r.Width * float64(len(last))
	if math.Abs(float64(units)-all) > 0.05*all {
		t.Errorf("%d write units in %g s of which each item accepts %d a second", units, r.Width*float64(len(last)), capacity)
	}
}

// TestSample checks, at a size at which all entities can be simulated, that a sample of one in ten predicts the whole.
func TestSample(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	for name, cfg := range map[string]simulate.Config{
		"within":   {Limit: weir.PerSecond("rps", 20), Rate: 1600, Processes: 200, Entities: 400, For: 10 * time.Second},
		"tight":    {Limit: weir.PerSecond("rps", 4), Rate: 1600, Processes: 20, Entities: 400, For: 10 * time.Second},
		"too much": {Limit: weir.PerSecond("rps", 2), Rate: 1600, Processes: 20, Entities: 400, For: 10 * time.Second},
		"cells": {
			Limit: weir.PerSecond("rps", 3), Rate: 1600, Processes: 50, Entities: 400, For: 10 * time.Second,
			Cells: []simulate.Cell{{0.5, 0.8}, {0.5, 0.2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all, part simulate.Report
			for seed := range uint64(4) {
				cfg.Seed = seed
				whole := run(t, cfg)
				sampled := cfg
				sampled.Sample = 10
				few := run(t, sampled)
				if few.Allowed != whole.Allowed || few.HitRatio != whole.HitRatio || few.Entities != whole.Entities || whole.Degraded > 0 || whole.Over+few.Over > 0 {
					t.Errorf("seed %d: of a sample %+v, of all %+v", seed, few, whole)
				}
				add(&all, whole)
				add(&part, few)
			}
			each := func(name string, n, of, m, among int, off float64) {
				if a, b := float64(n)/float64(of), float64(m)/float64(among); math.Abs(a-b) > off {
					t.Errorf("%s: %.4f of a sample, %.4f of all", name, a, b)
				}
			}
			each("decisions", part.Asked, all.Asked, 1, 1, 0.05)
			each("admitted", part.Admitted, part.Asked, all.Admitted, all.Asked, 0.03)
			each("ideal", part.Ideal, part.Asked, all.Ideal, all.Asked, 0.03)
			each("calls", part.Calls, part.Asked, all.Calls, all.Asked, 0.03)
			each("in vain", part.InVain, part.Asked, all.InVain, all.Asked, 0.03)
			each("write units", part.Units, part.Asked, all.Units, all.Asked, 0.03)
			each("first cell", part.Cells[0].Admitted, part.Admitted, all.Cells[0].Admitted, all.Admitted, 0.03)
			each("first interval", part.Intervals[0].Asked, part.Asked, all.Intervals[0].Asked, all.Asked, 0.01)
		})
	}
}

// add adds the compared figures of a report to those of others.
func add(sum, r *simulate.Report) {
	sum.Asked, sum.Admitted, sum.Ideal = sum.Asked+r.Asked, sum.Admitted+r.Admitted, sum.Ideal+r.Ideal
	sum.Calls, sum.InVain, sum.Units = sum.Calls+r.Calls, sum.InVain+r.InVain, sum.Units+r.Units
	if sum.Cells == nil {
		sum.Cells, sum.Intervals = make([]simulate.CellReport, 1), make([]simulate.Interval, 1)
	}
	sum.Cells[0].Admitted += r.Cells[0].Admitted
	sum.Intervals[0].Asked += r.Intervals[0].Asked
}

// TestSampleFails checks that a sample is refused if buckets depend on each other.
func TestSampleFails(t *testing.T) {
	t.Parallel()
	cfg := simulate.Config{Limit: weir.PerSecond("rps", 1000), Rate: 2000, Entities: 20, Sample: 10, For: 5 * time.Second, Capacity: 10, MaxShards: 1}
	if _, err := simulate.Run(t.Context(), cfg, nil); !errors.Is(err, simulate.ErrSample) {
		t.Errorf("throttled: %v", err)
	}
	for name, change := range map[string]func(*simulate.Config){
		"zipf":    func(c *simulate.Config) { c.Zipf = 1.5 },
		"errors":  func(c *simulate.Config) { c.Errors = 0.1 },
		"lost":    func(c *simulate.Config) { c.Lost = 0.1 },
		"outages": func(c *simulate.Config) { c.Outages = []simulate.Outage{{To: time.Second}} },
	} {
		changed := cfg
		change(&changed)
		var bad *weir.ConfigError
		if _, err := simulate.Run(t.Context(), changed, nil); !errors.As(err, &bad) || bad.Field != "sample" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHitRatio checks that the cache is per entity and process.
func TestHitRatio(t *testing.T) {
	t.Parallel()
	known := func(perMinute float64) float64 { return perMinute / (1 + perMinute) }
	for name, tt := range map[string]struct {
		cfg  simulate.Config
		want float64
	}{
		"alone":    {simulate.Config{Rate: 10, Processes: 10}, known(60)},
		"alike":    {simulate.Config{Rate: 100, Processes: 10, Entities: 1000}, known(0.6)},
		"unlike":   {simulate.Config{Rate: 10, Processes: 10, Entities: 2, Zipf: 2}, 0.8*known(48) + 0.2*known(12)},
		"in cells": {simulate.Config{Rate: 10, Processes: 10, Cells: []simulate.Cell{{0.5, 0.9}, {0.5, 0.1}}}, 0.9*known(108) + 0.1*known(12)},
	} {
		tt.cfg.Limit, tt.cfg.For = weir.PerSecond("rps", 100), time.Second
		if got := run(t, tt.cfg).HitRatio; math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", name, got, tt.want)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	limit := weir.PerSecond("rps", 10)
	for field, cfg := range map[string]simulate.Config{
		"for": {For: -1}, "processes": {Processes: -1}, "begin": {Begin: 1000}, "join": {JoinTo: time.Hour}, "skew": {ClockSkew: time.Minute},
		"rate": {Rate: -1}, "decisions": {Rate: 1e9}, "entities": {Entities: -1}, "sample": {Entities: 10, Sample: 3}, "zipf": {Zipf: 0.5}, "tokens": {Tokens: 11},
		"latency": {P50: time.Second, P99: time.Millisecond}, "capacity": {Capacity: -1}, "max-shards": {MaxShards: 3},
		"within": {Within: 3 * time.Second}, "errors": {Errors: 2}, "lost": {Lost: -1}, "on-unavailable": {OnUnavailable: "perhaps"},
		"cells": {Cells: []simulate.Cell{{0.9, 1}, {0.9, 1}}}, "outage": {Outages: []simulate.Outage{{From: time.Second}}},
	} {
		cfg.Limit = limit
		var bad *weir.ConfigError
		if _, err := simulate.Run(t.Context(), cfg, nil); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	if _, err := simulate.Run(t.Context(), simulate.Config{}, nil); err == nil {
		t.Error("no limit, and no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := simulate.Run(ctx, simulate.Config{Limit: limit}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestQuota checks that a quota admits its amount in a window, and no more, and that what is not simulated is refused.
func TestQuota(t *testing.T) {
	t.Parallel()
	limit, err := weir.ParseLimit("usd:30/year@Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, simulate.Config{Limit: limit, Rate: 20, For: 10 * time.Second, Entities: 1, Processes: 2})
	if r.Admitted != 30 || r.Asked < 100 {
		t.Errorf("%d of %d admitted", r.Admitted, r.Asked)
	}
	balance, err := weir.ParseLimit("credits:balance")
	if err != nil {
		t.Fatal(err)
	}
	for field, c := range map[string]simulate.Config{
		"limit": {Limit: balance}, "cells": {Limit: limit, Cells: []simulate.Cell{{0.5, 1}, {0.5, 1}}},
	} {
		var bad *weir.ConfigError
		if err := c.Check(); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
