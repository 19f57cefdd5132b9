package load_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/lab/load"
)

// stalls answers no call from the fifth second to the sixth, and all others at once.
func stalls(begun time.Time) *fake {
	return &fake{acquire: func(*load.Call) (load.Held, error) {
		if d := time.Since(begun); d >= 5*time.Second && d < 6*time.Second {
			pass(6*time.Second - d)
		}
		return load.Nothing{}, nil
	}}
}

func run(t *testing.T, p *load.Plan, target load.Target) *load.Report {
	t.Helper()
	tally, err := load.Run(t.Context(), p, target, load.Options{})
	must(t, err)
	return p.Report(tally)
}

// A target that stalls for one second in ten delays a tenth of the calls, by half a second on average. A single caller
// that waits for each answer would measure one slow call; here all of them count.
func TestNoCoordinatedOmission(t *testing.T) {
	t.Parallel()
	none := load.Span(0)
	for _, callers := range []int{1000, 1} {
		synctest.Test(t, func(t *testing.T) {
			p := plan(t, decoded(t, ""), load.Settings{Rate: 100, For: load.Span(10 * time.Second), WarmUp: &none, Callers: callers})
			r := run(t, p, stalls(time.Now()))
			if r.Calls != 1000 || r.Missed != 0 {
				t.Fatalf("%+v", r)
			}
			o := r.Ops[0].Response
			near(t, "p90", o.P90, 0, 12) // the slow tenth begins here
			near(t, "p99", o.P99, 900, 20)
			near(t, "p99.9", o.P999, 1000, 11)
			// With one caller it is the runner that is late, and it says so.
			if r.Overloaded != (callers == 1) || callers == 1 && !strings.Contains(r.Verdict(), "all 1 callers were waiting") {
				t.Errorf("%d callers: %q", callers, r.Verdict())
			}
			if callers == 1 {
				near(t, "late p99", r.Late.P99, 900, 20)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p := plan(t, decoded(t, ""), load.Settings{Loop: load.Closed, For: load.Span(10 * time.Second), WarmUp: &none})
		r := run(t, p, stalls(time.Now()))
		if slow := r.Ops[0].Response; slow.P90 > 1 || r.Calls > 1000-80 || r.Late != nil {
			t.Errorf("a closed loop asks less: %+v", r)
		}
	})
}

// The runner does not wait past the end for a target that cannot keep up: it reports the calls that were never begun.
func TestMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		none := load.Span(0)
		p := plan(t, decoded(t, ""), load.Settings{Rate: 100, For: load.Span(10 * time.Second), WarmUp: &none, Callers: 10})
		begun := time.Now()
		r := run(t, p, takes{load.Nothing{}, time.Second})
		if d := time.Since(begun); d > 12*time.Second {
			t.Errorf("took %s", d)
		}
		if !r.Overloaded || r.Missed < 850 || r.Calls+r.Missed != r.Due || r.Due != 1000 {
			t.Errorf("%s, %+v", r.Verdict(), r)
		}
	})
}

func TestErrorsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		f := &fake{}
		f.acquire = func(*load.Call) (load.Held, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if n++; n%2 == 0 {
				return nil, errors.New(strings.Repeat("x", n%40))
			}
			return nil, nil //nolint:nilnil // refused
		}
		none := load.Span(0)
		r := run(t, plan(t, decoded(t, ""), load.Settings{Rate: 10, For: load.Span(20 * time.Second), WarmUp: &none}), f)
		if r.Failed != 100 || r.Refused != 100 || len(r.Errors) > 11 || r.Errors["others"] == 0 {
			t.Errorf("%+v", r)
		}
	})
}

// An interrupt ends the run with the results so far, after waiting for the calls under way.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, loop := range []load.Loop{load.Open, load.Closed} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
			defer cancel()
			p := plan(t, decoded(t, ""), load.Settings{Loop: loop, For: load.Span(time.Hour)})
			tally, err := load.Run(ctx, p, takes{load.Nothing{}, time.Millisecond}, load.Options{})
			must(t, err)
			if r := p.Report(tally); r.Calls < 400 || r.Calls > 460 || r.Failed > 0 || r.Missed > 0 || r.Elapsed > 4.6 {
				t.Errorf("%+v", r)
			}
			_, err = load.Run(ctx, p, load.Nothing{}, load.Options{})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("before it begins: %v", err)
			}
		})
	}
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
			p := plan(t, named(t, "llm-production"), load.Settings{Shape: shape, For: load.Span(length / scale)})
			for at, want := range users {
				near(t, shape+" at "+at.String(), p.UsersAt(at/scale), want, 0.01)
			}
		}
	}
}

// Due times never go back, none is past the end, and their number matches the area under the shape.
func TestSchedule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		sc := decoded(t, "")
		n := rapid.IntRange(1, 6).Draw(rt, "stages")
		stages := make([]load.Stage, n)
		total := time.Duration(0)
		for i := range stages {
			d := time.Duration(rapid.IntRange(1, 60).Draw(rt, "for")) * time.Second
			stages[i] = load.Stage{For: load.Span(d), Users: rapid.IntRange(0, 50).Draw(rt, "users"), Spawn: rapid.Float64Range(0.1, 10).Draw(rt, "spawn")}
			total += d
		}
		stages[0].Users++
		sc.Shapes = map[string][]load.Stage{"s": stages}
		p := plan(t, sc, load.Settings{Shape: "s", For: load.Span(total)})
		last, sum := time.Duration(0), 0.0
		const step = 10 * time.Millisecond
		for at := step / 2; at < total; at += step {
			sum += p.UsersAt(at) * step.Seconds() * 10 // each user calls ten times a second
		}
		if math.Abs(sum-float64(p.Calls())) > 2+sum/1000 {
			rt.Fatalf("%d calls, the area is %.1f", p.Calls(), sum)
		}
		for i := range p.Calls() {
			at := p.At(i)
			if at < last || at > total {
				rt.Fatalf("call %d at %s, the one before at %s, the end at %s", i, at, last, total)
			}
			last = at
		}
	})
}

func TestReportReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := plan(t, named(t, "llm-gateway"), load.Settings{Seed: 1, For: load.Span(30 * time.Second)})
		a, b := run(t, p, takes{load.Nothing{}, 2 * time.Millisecond}), run(t, p, takes{load.Nothing{}, 3 * time.Millisecond})
		text, err := json.Marshal(a)
		must(t, err)
		var back load.Report
		must(t, json.Unmarshal(text, &back))
		c := load.Compare(&back, b)
		if len(c.Unlike) != 0 {
			t.Errorf("unlike: %v", c.Unlike)
		}
		for _, ch := range c.Changes {
			if ch.What == "acquire p50" && !strings.HasPrefix(strings.Join(ch.Cells(), "|"), "acquire p50 ms|2.00|3.00|+") {
				t.Errorf("%v", ch.Cells())
			}
		}
		back.Seed, back.Target = 2, `<script>"&`
		page := string(load.HTML(&back, b))
		for _, want := range []string{"the runs differ in seed: 2 and 1", "&lt;script&gt;&#34;&amp;", "acquire p99.9 ms", "<polyline"} {
			if !strings.Contains(page, want) {
				t.Errorf("no %s", want)
			}
		}
		if strings.Contains(page, "<script") || strings.Contains(page, "http") {
			t.Error("the page has something of elsewhere")
		}
	})
}
