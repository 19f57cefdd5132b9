package replay

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/lab/report"
)

// Document returns the report for people. Entity names what names the entities.
func (r *Report) Document(entity string) *report.Document {
	var lines report.Lines
	lines.Add("limits", "%s", strings.Trim(fmt.Sprint(r.Limits), "[]"))
	lines.Add("from", "%s", second(r.From))
	lines.Add("to", "%s", second(r.To))
	lines.Add("requests", "%v", r.Requests)
	lines.Add("admitted", "%v (%.2f %%)", r.Admitted, r.AdmittedPercent)
	lines.Add("refused", "%v (%.2f %%)", r.Refused, 100-r.AdmittedPercent)
	if len(r.Limits) > 1 {
		for _, by := range r.RefusedBy {
			lines.Add("  by "+by.Limit, "%v", by.Refused)
		}
	}
	if r.TooLarge > 0 {
		lines.Add("  too large", "%v (more than the burst: never admitted)", r.TooLarge)
	}
	lines.Add("entities", "%v by %s, of which %v were refused", r.Entities, entity, r.RefusedEntities)
	if r.OutOfOrder > 0 {
		lines.Add("out of order", "%v lines, sorted by time", r.OutOfOrder)
	}
	if r.Malformed > 0 {
		lines.Add("malformed", "%v of %v lines, not counted above", r.Malformed, r.Lines)
	}
	d := &report.Document{Title: "weir replay", Parts: []any{lines}}
	if len(r.MalformedFirst) > 0 {
		var bad report.Text
		for _, b := range r.MalformedFirst {
			bad.Lines = append(bad.Lines, fmt.Sprint("  line ", b.Line, " ", b.Reason))
		}
		d.Parts = append(d.Parts, bad)
	}
	if r.Refused > 0 {
		d.Parts = append(d.Parts, r.most(), r.chart())
	}
	d.Parts = append(d.Parts, r.needed())
	return d.Noted(r.Notes)
}

func (r *Report) most() report.Table {
	t := report.Table{Header: []string{"MOST REFUSED", "REQUESTS", "REFUSED"}}
	for _, e := range r.MostRefused {
		t.Row(e.Entity, e.Requests, e.Refused)
	}
	return t
}

func (r *Report) chart() report.Chart {
	each := interval(time.Duration(r.IntervalSeconds) * time.Second)
	t := &report.Table{Header: []string{"FROM, FOR " + strings.ToUpper(each), "REQUESTS", "REFUSED"}}
	for _, in := range r.Intervals {
		t.Row(second(in.Start), in.Requests, in.Refused)
	}
	refused := report.Plot("refused", len(r.Intervals), func(i int) float64 { return float64(r.Intervals[i].Refused) })
	return report.Chart{
		Title: "refused in each " + each, Table: t, Lines: []report.Series{refused},
		Labels: []string{second(r.Intervals[0].Start), second(r.To)},
	}
}

// needed lists what each limit would have to be if it were the only one.
func (r *Report) needed() report.Table {
	t := report.Table{Header: []string{"TO ADMIT", "SET", "ADMITTED"}}
	for _, n := range r.Needed {
		set := "no limit of " + n.Name + " is large enough"
		if n.Limit != nil {
			set = n.Limit.String()
		}
		t.Row(report.Number(fmt.Sprintf("%g %%", n.Percent)), set, n.Admitted)
	}
	return t
}

// second formats a time of a log to the second, since logs are rarely more precise.
func second(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// interval names a length of time, such as "5 minutes" or "hour".
func interval(d time.Duration) string {
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		switch n := d / u.length; {
		case d == u.length:
			return u.name
		case n > 0 && d%u.length == 0:
			return report.Plural(int(n), u.name)
		}
	}
	return d.String()
}
