package load_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/lab/load"
	"github.com/weirlimits/weir/internal/lab/traffic"
	"github.com/weirlimits/weir/internal/testkit/traffictest"
)

// stalls answers no call from the fifth second to the sixth, and all others at once.
func stalls(begun time.Time) *fake {
	return &fake{acquire: func(*traffic.Call) (load.Held, error) {
		if d := time.Since(begun); d >= 5*time.Second && d < 6*time.Second {
			pass(6*time.Second - d)
		}
		return load.Nothing{}, nil
	}}
}

func run(t *testing.T, p *traffic.Plan, target load.Target) *load.Report {
	t.Helper()
	tally, err := load.Run(t.Context(), p, target, load.Options{})
	must(t, err)
	return load.NewReport(p, tally)
}

// A target that stalls for one second in ten delays a tenth of the calls, by half a second on average. A single caller
// that waits for each answer would measure one slow call; here all of them count.
func TestNoCoordinatedOmission(t *testing.T) {
	t.Parallel()
	none := traffic.Span(0)
	for _, callers := range []int{1000, 1} {
		synctest.Test(t, func(t *testing.T) {
			p := traffictest.Plan(t, traffictest.Decode(t, ""), traffic.Settings{Rate: 100, For: traffic.Span(10 * time.Second), WarmUp: &none, Callers: callers})
			r := run(t, p, stalls(time.Now()))
			if r.Calls != 1000 || r.Missed != 0 {
				t.Fatalf("%+v", r)
			}
			o := r.Ops[0].Response
			near(t, "p90", o.P90, 0, 12) // the slow tenth begins here
			near(t, "p99", o.P99, 900, 20)
			near(t, "p99.9", o.P999, 1000, 11)
			// With one caller it is the runner that is late, and it reports that.
			if r.Overloaded != (callers == 1) || callers == 1 && !strings.Contains(r.Verdict(), "all 1 callers were waiting") {
				t.Errorf("%d callers: %q", callers, r.Verdict())
			}
			if callers == 1 {
				near(t, "late p99", r.Late.P99, 900, 20)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p := traffictest.Plan(t, traffictest.Decode(t, ""), traffic.Settings{Loop: traffic.Closed, For: traffic.Span(10 * time.Second), WarmUp: &none})
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
		none := traffic.Span(0)
		p := traffictest.Plan(t, traffictest.Decode(t, ""), traffic.Settings{Rate: 100, For: traffic.Span(10 * time.Second), WarmUp: &none, Callers: 10})
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
		f.acquire = func(*traffic.Call) (load.Held, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if n++; n%2 == 0 {
				return nil, errors.New(strings.Repeat("x", n%40))
			}
			return nil, nil //nolint:nilnil // refused
		}
		none := traffic.Span(0)
		r := run(t, traffictest.Plan(t, traffictest.Decode(t, ""), traffic.Settings{Rate: 10, For: traffic.Span(20 * time.Second), WarmUp: &none}), f)
		if r.Failed != 100 || r.Refused != 100 || len(r.Errors) > 11 || r.Errors["others"] == 0 {
			t.Errorf("%+v", r)
		}
	})
}

// An interrupt ends the run with the results so far, after waiting for the calls under way.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, loop := range []traffic.Loop{traffic.Open, traffic.Closed} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
			defer cancel()
			p := traffictest.Plan(t, traffictest.Decode(t, ""), traffic.Settings{Loop: loop, For: traffic.Span(time.Hour)})
			tally, err := load.Run(ctx, p, takes{load.Nothing{}, time.Millisecond}, load.Options{})
			must(t, err)
			if r := load.NewReport(p, tally); r.Calls < 400 || r.Calls > 460 || r.Failed > 0 || r.Missed > 0 || r.Elapsed > 4.6 {
				t.Errorf("%+v", r)
			}
			_, err = load.Run(ctx, p, load.Nothing{}, load.Options{})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("before it begins: %v", err)
			}
		})
	}
}

func TestReportReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := traffictest.Plan(t, traffictest.Named(t, "llm-gateway"), traffic.Settings{Seed: 1, For: traffic.Span(30 * time.Second)})
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
			if ch.What == "acquire p50" && (ch.A < 2 || ch.A > 2.01 || ch.B < 3 || ch.B > 3.01 || ch.Percent < 49) {
				t.Errorf("%+v", ch)
			}
		}
		back.Seed, back.Target = 2, `<script>"&`
		page := string(load.Page(&back, b))
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
