package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/lab/report"
)

// Document returns the report on a scenario for people, with lines about the cost.
func (r *Report) Document(name string, costs report.Lines) *report.Document {
	length := seconds(r.Seconds).String()
	var l report.Lines
	l.Add("scenario", "%s, seed %s", name, fmt.Sprint(r.Seed))
	l.Add("fleet", "%v processes, %s in virtual time", r.Processes, length)
	l.Add("limit", "%s for each of %v entities, which allows %v tokens", r.Limit, r.Entities, int64(r.Allowed))
	l.Add("decisions", "%v", r.Asked)
	if r.Sample > 1 {
		l.Add("sample", "%v entities, each counted %v times", r.Entities/r.Sample, r.Sample)
	}
	of := func(name, more string, n int, args ...any) {
		l.Add(name, "%v (%.2f %%)"+more, append([]any{n, report.Part(n, r.Asked)}, args...)...)
	}
	of("admitted", ", compared with %v without any delay", r.Admitted, r.Ideal)
	of("refused", "", r.Refused)
	if r.Failed > 0 {
		of("failed", "", r.Failed)
	}
	if r.Over > 0 {
		l.Add("beyond the limit", "%v tokens at most (%.1f %% of the burst)", int64(r.Over+0.999), 100*r.OverPart)
	} else {
		l.Add("beyond the limit", "nothing, in any interval")
	}
	if r.Degraded > 0 {
		of("without the table", ", %v of them admitted", r.Degraded, r.DegradedAdmitted)
	}
	if r.Recovered >= 0 {
		l.Add("recovered", "%.2f s after the outage", r.Recovered)
	}
	l.Add("calls", "%v: %.3f per decision, %.3f per admission", r.Calls, r.PerAsked, r.PerAdmit)
	l.Add("  wasted", "%v whose condition failed", r.InVain)
	if r.Throttled > 0 {
		l.Add("  throttled", "%v", r.Throttled)
	}
	if r.Splits > 0 {
		l.Add("splits", "%v", r.Splits)
	}
	l.Add("write units", "%v: %.3f per decision", r.Units, r.UnitsAsked)
	l = slices.Concat(l, costs)
	l.Add("latency", "%.1f ms median, %.1f ms p99, %.1f ms max", r.P50, r.P99, r.Max)
	d := &report.Document{Title: "weir simulate " + name, Parts: []any{l}}
	if len(r.Cells) > 1 {
		d.Parts = append(d.Parts, r.byCell())
	}
	d.Parts = append(d.Parts, r.chart(length))
	return d
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// byCell lists what each cell decided.
func (r *Report) byCell() report.Table {
	t := report.Table{Header: []string{"CELL", "SHARE", "DECISIONS", "ADMITTED", "REFUSED", "WITHOUT THE TABLE"}}
	for _, c := range r.Cells {
		share := report.Number(fmt.Sprintf("%.1f %%", 100*c.Share))
		t.Row(c.Cell, share, c.Asked, c.Admitted, c.Refused, c.Degraded)
	}
	return t
}

func (r *Report) chart(length string) report.Chart {
	width := seconds(r.Width)
	t := &report.Table{Header: []string{
		"FROM, FOR " + width.String(), "DECISIONS", "ADMITTED", "REFUSED", "WITHOUT THE TABLE", "CALLS",
	}}
	for i, in := range r.Intervals {
		t.Row((time.Duration(i) * width).String(), in.Asked, in.Admitted, in.Refused, in.Degraded, in.Calls)
	}
	admitted := report.Plot("admitted", len(r.Intervals), func(i int) float64 {
		return float64(r.Intervals[i].Admitted)
	})
	return report.Chart{
		Title: "admitted in each " + width.String(), Labels: []string{"0s", length}, Table: t,
		Lines: []report.Series{admitted},
	}
}
