package torture

import (
	"fmt"

	"github.com/weirlimits/weir/internal/lab/report"
)

// Document returns the report for people.
func (r *Report) Document() *report.Document {
	processes := func(n int) string {
		if n == 1 {
			return "1 process"
		}
		return fmt.Sprintf("%d processes", n)
	}
	verdict, faults := "all promises were kept", "-"
	if !r.OK {
		verdict = "a promise was broken"
	}
	if len(r.Faults) > 0 {
		faults = Names(r.Faults)
	}
	var l report.Lines
	l.Add("verdict", "%s", verdict)
	l.Add("seed", "%s", fmt.Sprint(r.Seed))
	l.Add("callers", "%s in %s limiters of %s", fmt.Sprint(r.Callers), fmt.Sprint(r.Limiters), processes(r.Processes))
	l.Add("faults", "%s", faults)
	l.Add("calls", "%v in %v rounds, %.1f s", r.Calls, r.Rounds, r.Seconds)
	if r.Frugal > 0 {
		l.Add("frugal", "%v rounds: refusals remembered, tokens debited ahead, buckets split", r.Frugal)
	}
	l.Add("  admitted", "%v", r.Admitted)
	l.Add("  refused", "%v", r.Refused)
	l.Add("  in doubt", "%v, because the answer was lost", r.Unknown)
	if r.Killed > 0 {
		l.Add("killed", "%s", processes(r.Killed))
	}
	t := report.Table{Header: []string{"CHECK", "PROMISE", "CASES", "VERDICT"}, Cut: []int{1, 3}}
	for _, c := range r.Checks {
		verdict := "kept"
		switch {
		case c.Failure != "":
			verdict = "BROKEN: " + c.Failure
		case c.Cases == 0:
			verdict = "not reached"
		case c.Undecided > 0:
			verdict = fmt.Sprintf("kept; %d undecided", c.Undecided)
		}
		t.Row(c.Name, c.About, c.Cases, verdict)
	}
	d := &report.Document{Title: "weir torture", Parts: []any{l, t}}
	if r.OK {
		return d
	}
	last := report.Text{Lines: []string{
		"", fmt.Sprintf("the last calls involved; all calls of the round are in %s:", r.History),
	}}
	for _, rec := range r.Excerpt {
		last.Lines = append(last.Lines, "  "+rec.String())
	}
	d.Parts = append(d.Parts, last)
	return d
}
