package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/lab/report"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

// Report is the result of a run.
type Report struct {
	Setting
	Totals

	// Overloaded reports that the runner could not keep its schedule, and Why is the reason.
	Overloaded bool          `json:"overloaded"`
	Why        string        `json:"why,omitempty"`
	Late       *report.Times `json:"late_ms,omitempty"` // how long after they were due calls began
	Service    report.Times  `json:"service_ms"`        // counted from the beginning of a call

	Ops       []OpReport        `json:"ops"`
	Groups    []Part            `json:"entities"`
	Resources []Part            `json:"resources"`
	Slots     *SlotReport       `json:"slots,omitempty"`
	Limits    []Bound           `json:"limits,omitempty"` // set by the caller, unless others set the limits
	Store     map[string]Metric `json:"store,omitempty"`  // its measures
	Errors    map[string]uint64 `json:"errors,omitempty"`

	Width   float64    `json:"interval_seconds"`
	Windows []Interval `json:"intervals"`
}

// Setting is what was run.
type Setting struct {
	Scenario string       `json:"scenario"`
	Target   string       `json:"target"`
	Started  time.Time    `json:"started"`
	Loop     traffic.Loop `json:"loop"`
	Shape    string       `json:"shape,omitempty"`
	Seed     uint64       `json:"seed"`
	Users    int          `json:"users"` // at most
	Workers  int          `json:"workers,omitempty"`
	Seconds  float64      `json:"seconds"` // as planned, without the warm-up
	Elapsed  float64      `json:"elapsed_seconds"`
}

// Totals are counts of a run.
type Totals struct {
	Due     uint64  `json:"calls_due,omitempty"` // of an open loop
	Calls   uint64  `json:"calls"`               // without adjustments and commits
	Rate    float64 `json:"calls_per_second"`
	Refused uint64  `json:"refused"`
	Failed  uint64  `json:"failed"`
	Missed  uint64  `json:"missed,omitempty"` // due but never begun
}

// OpReport is the result of one operation. Its latency counts from when a call was due, or for an adjustment and a
// commit from when it began.
type OpReport struct {
	Op traffic.Op `json:"op"`
	Counts
	Response report.Times `json:"response_ms"`
	// Curve is the response time by percentile, for charts.
	Curve []Point `json:"curve"`
}

// Point means that a percentile of the calls took at most so many milliseconds.
type Point struct {
	Percentile float64 `json:"percentile"`
	Ms         float64 `json:"ms"`
}

// Part is the counts of a named part of the calls.
type Part struct {
	Name string `json:"name"`
	Counts
}

// Metric is the growth of one of the store's totals, and that growth per decision.
type Metric struct {
	Total float64 `json:"total"`
	Each  float64 `json:"per_decision"`
}

// Interval is what was answered in a stretch of time.
type Interval struct {
	Counts
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// percentiles are the percentiles of a curve.
var percentiles = []float64{0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99, 100}

// NewReport evaluates the tally of a plan.
func NewReport(p *traffic.Plan, t *Tally) *Report {
	s := &p.Scenario
	r := &Report{
		Setting: Setting{
			Scenario: s.Name, Loop: s.Loop, Shape: s.Shape, Seed: p.Seed, Users: p.MostUsers(),
			Seconds: p.Length().Seconds(), Elapsed: t.Elapsed.Seconds(),
		},
		Totals:  Totals{Due: p.Calls(), Missed: t.Missed},
		Service: t.Service.Times(), Errors: t.Errors,
		Width: width(p).Seconds(), Store: make(map[string]Metric), Windows: []Interval{},
	}
	for _, op := range traffic.Ops {
		o := t.Ops[op]
		if o.Calls == 0 {
			continue
		}
		rep := OpReport{Op: op, Counts: o.Counts, Response: o.Response.Times()}
		for _, q := range percentiles {
			rep.Curve = append(rep.Curve, Point{q, report.Millis(o.Response.At(q))})
		}
		r.Ops = append(r.Ops, rep)
		if op != traffic.Adjust && op != traffic.Commit {
			r.Calls, r.Refused = r.Calls+o.Calls, r.Refused+o.Refused
		}
		r.Failed += o.Failed
	}
	if r.Elapsed > 0 {
		r.Rate = float64(r.Calls) / r.Elapsed
	}
	for i := range s.Entities {
		r.Groups = append(r.Groups, Part{s.Entities[i].Name, t.Groups[i]})
	}
	for i, name := range s.Resources {
		r.Resources = append(r.Resources, Part{name, t.Resources[i]})
	}
	r.Slots = t.Slots.report(p, min(t.Elapsed, p.Length()))
	decisions := float64(t.Ops[traffic.Acquire].Calls)
	for name, n := range t.Measures {
		r.Store[name] = Metric{n, n / max(1, decisions)}
	}
	for i, w := range t.Windows {
		if time.Duration(i)*width(p) >= t.Elapsed {
			break
		}
		in := Interval{}
		if w != nil {
			in = Interval{w.Counts, report.Millis(w.Response.At(50)), report.Millis(w.Response.At(99))}
		}
		r.Windows = append(r.Windows, in)
	}
	if s.Loop == traffic.Open {
		late := t.Late.Times()
		r.Late = &late
		r.judge(p, t)
	}
	return r
}

const (
	tolerable = time.Millisecond
	tenth     = 0.1
)

// judge decides whether the schedule was kept: lateness of the runner is part of the latencies.
func (r *Report) judge(p *traffic.Plan, t *Tally) {
	late := t.Late.At(99)
	slow := max(t.Ops[traffic.Acquire].Response.At(99), t.Ops[traffic.Available].Response.At(99))
	counts := float64(late) > tenth*float64(slow)
	switch {
	case t.Capped && (r.Missed > 0 || late > tolerable):
		r.Why = fmt.Sprintf("all %d callers were waiting for answers", p.Callers)
	case r.Missed > 0:
		r.Why = fmt.Sprintf("%d calls were due but never began", r.Missed)
	case late > tolerable && counts:
		r.Why = fmt.Sprintf("1 %% of the calls began at least %.1f ms late", report.Millis(late))
	default:
		return
	}
	r.Overloaded = true
}

// ReadReport reads a saved report.
func ReadReport(file string) (*Report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	r := &Report{}
	if err = json.Unmarshal(text, r); err == nil && (r.Scenario == "" || r.Seconds <= 0) {
		err = errors.New("the file is not a report from weir load run --save")
	}
	if err != nil {
		return nil, fmt.Errorf("read the report %s: %w", file, err)
	}
	return r, nil
}

// Change is one figure of two runs.
type Change struct {
	What string  `json:"what"`
	Unit string  `json:"unit,omitempty"`
	A    float64 `json:"a"`
	B    float64 `json:"b"`
	// Percent is how much larger B is than A; 0 if A is 0.
	Percent float64 `json:"percent"`
}

// Comparison is a comparison of two runs.
type Comparison struct {
	A       *Report  `json:"-"`
	B       *Report  `json:"-"`
	Changes []Change `json:"changes"`
	// Unlike lists how the runs differ, which may make their figures incomparable.
	Unlike []string `json:"unlike"`
}

// Compare compares two runs.
func Compare(a, b *Report) *Comparison {
	c := &Comparison{A: a, B: b, Unlike: []string{}}
	unlike := func(what string, a, b any) {
		if a != b {
			c.Unlike = append(c.Unlike, fmt.Sprintf("%s: %v and %v", what, a, b))
		}
	}
	unlike("scenario", a.Scenario, b.Scenario)
	unlike("loop", a.Loop, b.Loop)
	unlike("shape", a.Shape, b.Shape)
	unlike("seconds", a.Seconds, b.Seconds)
	unlike("users", a.Users, b.Users)
	unlike("calls due", a.Due, b.Due)
	unlike("workers", a.Workers, b.Workers)
	unlike("seed", a.Seed, b.Seed)
	unlike("overloaded", a.Overloaded, b.Overloaded)
	c.add("calls", "/s", a.Rate, b.Rate)
	c.add("refused", "%", report.Part(a.Refused, a.Calls), report.Part(b.Refused, b.Calls))
	c.add("failed", "", float64(a.Failed), float64(b.Failed))
	if a.Slots != nil && b.Slots != nil {
		c.add("slots busy", "%", a.Slots.Busy, b.Slots.Busy)
	}
	for _, op := range traffic.Ops {
		x, y := a.op(op), b.op(op)
		if x == nil || y == nil {
			continue
		}
		c.add(string(op)+" p50", "ms", x.Response.P50, y.Response.P50)
		c.add(string(op)+" p90", "ms", x.Response.P90, y.Response.P90)
		c.add(string(op)+" p99", "ms", x.Response.P99, y.Response.P99)
		c.add(string(op)+" p99.9", "ms", x.Response.P999, y.Response.P999)
		c.add(string(op)+" max", "ms", x.Response.Max, y.Response.Max)
	}
	if a.Late != nil && b.Late != nil {
		c.add("late p99", "ms", a.Late.P99, b.Late.P99)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Store)) {
		if m, ok := b.Store[name]; ok {
			c.add(name+" per decision", "", a.Store[name].Each, m.Each)
		}
	}
	return c
}

func (c *Comparison) add(what, unit string, a, b float64) {
	ch := Change{What: what, Unit: unit, A: a, B: b}
	if a != 0 {
		ch.Percent = 100 * (b - a) / a
	}
	c.Changes = append(c.Changes, ch)
}

func (r *Report) op(op traffic.Op) *OpReport {
	for i := range r.Ops {
		if r.Ops[i].Op == op {
			return &r.Ops[i]
		}
	}
	return nil
}
