package load

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimits/weir/internal/lab/report"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

// Headline describes the run in one line.
func (r *Report) Headline() string {
	text := fmt.Sprintf("%s, seed %d, %s loop", r.Scenario, r.Seed, r.Loop)
	if r.Shape != "" {
		text += ", shape " + r.Shape
	}
	if r.Loop == traffic.Closed {
		text += ", " + strconv.Itoa(r.Users) + " users"
	}
	if r.Workers > 0 {
		text += ", " + strconv.Itoa(r.Workers) + " workers"
	}
	return text + ", on " + r.Target + " for " + seconds(r.Elapsed).Round(100*time.Millisecond).String()
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// Verdict returns why the runner was overloaded; "" if it was not.
func (r *Report) Verdict() string {
	if !r.Overloaded {
		return ""
	}
	return "overloaded: the runner could not keep its schedule: " + r.Why
}

// Document returns the report for people.
func (r *Report) Document() *report.Document {
	d := &report.Document{Title: "weir load: " + r.Scenario}
	var lines report.Lines
	lines.Add("run", "%s", r.Headline())
	lines.Add("calls", "%v, %.0f per second", r.Calls, r.Rate)
	if r.Due > 0 {
		lines.Add("due", "%v", r.Due)
	}
	lines.Add("refused", "%v (%.1f %%)", r.Refused, report.Part(r.Refused, r.Calls))
	lines.Add("failed", "%v", r.Failed)
	if s := r.Slots; s != nil {
		lines.Add("slots", "at most %v of %v held at once, busy %.1f %% of the time", s.Most, s.Of, s.Busy)
	}
	for _, b := range r.Limits {
		lines.Add("limit "+b.Limit, "%v admitted, of at most %v", b.Admitted, b.Allowed)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Store)) {
		lines.Add("store "+name, "%.0f: %.3f per decision", r.Store[name].Total, r.Store[name].Each)
	}
	d.Parts = append(d.Parts, lines, r.times())
	if len(r.Groups)+len(r.Resources) > 2 {
		t := report.Table{Header: []string{"ENTITIES, RESOURCES", "CALLS", "REFUSED", "FAILED"}}
		for _, g := range slices.Concat(r.Groups, r.Resources) {
			refused := report.Number(fmt.Sprintf("%.1f %%", report.Part(g.Refused, g.Calls)))
			t.Row(g.Name, g.Calls, refused, g.Failed)
		}
		d.Parts = append(d.Parts, t)
	}
	d.Parts = append(d.Parts, r.charts()...)
	d.Parts = append(d.Parts, r.outcome())
	return d
}

// outcome is what went wrong, or that nothing did.
func (r *Report) outcome() report.Text {
	var wrong []string
	for _, text := range slices.Sorted(maps.Keys(r.Errors)) {
		wrong = append(wrong, report.Plural(int(r.Errors[text]), "call")+" failed: "+text)
	}
	if s := r.Slots; s != nil && s.Most > s.Of {
		wrong = append(wrong, fmt.Sprintf("%d slots were held at once, of %d", s.Most, s.Of))
	}
	for _, b := range r.Limits {
		if b.Admitted > b.Allowed {
			wrong = append(wrong, fmt.Sprintf("%s was not kept: %d tokens were admitted, of at most %d",
				b.Limit, b.Admitted, b.Allowed))
		}
	}
	if r.Overloaded {
		wrong = append(wrong, r.Verdict())
	}
	if len(wrong) > 0 {
		return report.Text{Style: report.Bad, Lines: wrong}
	}
	ok := "ok: every call was answered"
	if r.Due > 0 {
		ok += ", on schedule"
	}
	slowest := 0.0
	for i := range r.Ops {
		slowest = max(slowest, r.Ops[i].Response.Max)
	}
	ok += fmt.Sprintf(", the slowest after %.1f ms", slowest)
	if len(r.Limits) > 0 || r.Slots != nil {
		ok += "; no more was admitted than all limits allow together"
	}
	return report.Text{Lines: []string{ok}}
}

// times is the table of response times, service times and lateness.
func (r *Report) times() report.Table {
	t := report.Table{Header: []string{"MS", "CALLS", "REFUSED", "FAILED", "P50", "P90", "P99", "P99.9", "MAX"}}
	row := func(x report.Times, cells ...any) {
		for _, ms := range []float64{x.P50, x.P90, x.P99, x.P999, x.Max} {
			cells = append(cells, report.Number(fmt.Sprintf("%.3f", ms)))
		}
		t.Row(cells...)
	}
	for _, o := range r.Ops {
		row(o.Response, o.Op, o.Calls, o.Refused, o.Failed)
	}
	row(r.Service, "service", nil, nil, nil)
	if r.Late != nil {
		row(*r.Late, "late", nil, nil, nil)
	}
	return t
}

// charts draw the rates and the latency in the windows of a run, and the latency of each operation by percentile.
func (r *Report) charts() []any {
	draw := func(name string, of func(in *Interval) float64) report.Series {
		return report.Plot(name, len(r.Windows), func(i int) float64 { return of(&r.Windows[i]) })
	}
	ends := []string{"0s", seconds(r.Elapsed).Round(time.Second).String()}
	percentiles := report.Chart{Title: "latency by percentile, ms", Page: true}
	for _, o := range r.Ops {
		line := report.Plot(string(o.Op), len(o.Curve), func(i int) float64 { return o.Curve[i].Ms })
		percentiles.Lines, percentiles.Labels = append(percentiles.Lines, line), nil
		for _, p := range o.Curve {
			percentiles.Labels = append(percentiles.Labels, strconv.FormatFloat(p.Percentile, 'f', -1, 64))
		}
	}
	return []any{
		report.Chart{Title: "calls per second", Labels: ends, Lines: []report.Series{
			draw("answered", func(in *Interval) float64 { return float64(in.Calls) / r.Width }),
			draw("refused", func(in *Interval) float64 { return float64(in.Refused) / r.Width }),
			draw("failed", func(in *Interval) float64 { return float64(in.Failed) / r.Width }),
		}},
		report.Chart{Title: "latency over time, ms", Labels: ends, Page: true, Lines: []report.Series{
			draw("p50", func(in *Interval) float64 { return in.P50 }),
			draw("p99", func(in *Interval) float64 { return in.P99 }),
		}},
		percentiles,
	}
}

// Document returns the comparison for people.
func (c *Comparison) Document() *report.Document {
	d := &report.Document{Title: "weir load: " + c.A.Scenario}
	if len(c.Unlike) > 0 {
		text := report.Text{Style: report.Warn}
		for _, what := range c.Unlike {
			text.Lines = append(text.Lines, "the runs differ in "+what)
		}
		d.Parts = append(d.Parts, text)
	}
	t := report.Table{Header: []string{"", "A", "B", "CHANGE"}}
	for i := range c.Changes {
		t.Row(c.Changes[i].cells()...)
	}
	d.Parts = append(d.Parts, t)
	return d
}

// cells are the change's cells in a table: the name, A, B, and the difference.
func (c *Change) cells() []any {
	diff := "="
	switch c.A {
	case c.B:
	case 0:
		diff = "new"
	default:
		diff = fmt.Sprintf("%+.1f %%", c.Percent)
	}
	what := c.What
	if c.Unit != "" {
		what += " " + c.Unit
	}
	number := func(text string) any { return report.Number(text) }
	return []any{what, number(report.Figure(c.A)), number(report.Figure(c.B)), number(diff)}
}

// Page renders one run, or the comparison of two and both of them, as a page.
func Page(a, b *Report) []byte {
	if b == nil {
		return report.Page(a.Document())
	}
	of := []*report.Document{Compare(a, b).Document(), a.Document(), b.Document()}
	of[1].Title, of[2].Title = "A", "B"
	return report.Page(of...)
}
