package whatif

import (
	"fmt"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/report"
)

// Document returns the report for people. Limits names the limits; "": they differ by bucket. now, if not nil, is the
// report on the live limits.
func (r *Report) Document(limits string, now *Report) *report.Document {
	var lines report.Lines
	if limits != "" {
		lines.Add("limits", "%s", limits)
	}
	lines.Add("usage", "%s windows of %s, %s to %s", r.Window, report.Plural(r.Buckets, "bucket"),
		r.From.UTC().Format(time.RFC3339), r.To.UTC().Format(time.RFC3339))
	lines.Add("recorded refusals", "%s", report.Plural(int(r.Then), "request"))
	const refused = "requests refused in %v of these buckets"
	switch {
	case now == nil:
	case now.Buckets == 0:
		lines.Add("with live limits", "no limits applied")
	default:
		lines.Add("with live limits", refused, between(now.Surely, now.Perhaps))
	}
	lines.Add("with these limits", refused, between(r.Surely, r.Perhaps))
	t := report.Table{Header: []string{"LIMIT", "TOKENS", "REFUSED", "IF EVEN", "SHARE", "BUCKETS"}}
	for _, l := range r.Limits {
		t.Row(l.Limit, l.Asked, report.Bounds{Least: l.Least, Most: l.AtMost}, l.Even, l.percent(),
			between(l.Surely, l.Perhaps))
	}
	d := &report.Document{Title: "weir replay", Parts: []any{lines, t}}
	if len(r.Most) > 0 {
		d.Parts = append(d.Parts, r.most(), r.when())
	}
	if len(r.Suggest) > 0 {
		d.Parts = append(d.Parts, r.suggested())
	}
	return d.Noted(r.Notes)
}

func between(least, most int) report.Bounds {
	return report.Bounds{Least: int64(least), Most: int64(most)}
}

// percent returns the share of the tokens that is refused, as two bounds.
func (b *Bounds) percent() report.Number {
	of := func(n int64) string { return fmt.Sprintf("%.2f", report.Part(n, b.Asked)) }
	if b.Least == b.AtMost {
		return report.Number(of(b.Least) + " %")
	}
	return report.Number(of(b.Least) + " to " + of(b.AtMost) + " %")
}

func (r *Report) most() report.Table {
	t := report.Table{
		Header: []string{"MOST REFUSED", "RESOURCE", "BY", "TOKENS", "REFUSED", "IF EVEN", "FIRST"}, Cut: []int{0, 1},
	}
	for _, b := range r.Most {
		t.Row(b.Entity, b.Resource, b.Limit.String(), b.Asked, report.Bounds{Least: b.Least, Most: b.AtMost}, b.Even,
			b.First.UTC().Format(layouts[r.Window]))
	}
	return t
}

// maxMoments is the maximum number of windows that are listed.
const maxMoments = 24

func (r *Report) when() report.Table {
	last := r.When[max(0, len(r.When)-maxMoments):]
	t := report.Table{Header: []string{"WHEN", "BUCKETS REFUSED"}}
	if len(last) < len(r.When) {
		t.Header[0] = fmt.Sprintf("WHEN, THE LAST %d OF %d", len(last), len(r.When))
	}
	for _, m := range last {
		t.Row(m.Start.UTC().Format(layouts[r.Window]), between(m.Surely, m.Perhaps))
	}
	return t
}

func (r *Report) suggested() report.Table {
	t := report.Table{Header: []string{"FOR AT MOST", "BELOW IT, SURELY MORE", "IF EVEN", "SURELY ENOUGH"}}
	for _, s := range r.Suggest {
		text := func(l *weir.Limit) string {
			if l == nil {
				return "no limit of " + s.Limit.Name + " is large enough"
			}
			return l.String()
		}
		t.Row(report.Number(fmt.Sprintf("%g %%", 100*s.Target)), text(s.Least), text(s.Even), text(s.Enough))
	}
	return t
}
