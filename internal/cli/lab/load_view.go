package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/lab/load"
)

// loadView shows the progress of a run: in place on a terminal, as occasional lines in a pipe, and not at all as JSON
// or YAML.
type loadView struct {
	*kit.Run
	plan   *load.Plan
	target string
	live   *term.Live
	next   time.Duration // when the next line is due
	lines  int
}

func newLoadView(a *kit.Run, p *load.Plan, target string) *loadView {
	return &loadView{Run: a, plan: p, target: target}
}

// begin takes over the terminal until stop is called. Typing q ends the run.
func (v *loadView) begin(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	if v.Output != "table" || !v.Out.Terminal {
		return ctx, cancel
	}
	v.live = term.NewLive(v.Out, v.In)
	v.live.Draw([]string{v.Out.Bold(v.plan.Scenario.Name) + " on " + v.target, "", "warming up"})
	end := make(chan struct{})
	go func() {
		select {
		case <-v.live.Quit():
			cancel()
		case <-end:
		}
	}()
	return ctx, func() {
		close(end)
		cancel()
		v.live.Close()
	}
}

// every is the interval between lines: at least a second, and about sixty lines per run.
func (v *loadView) every() time.Duration {
	return max(time.Second, (time.Duration(v.plan.Scenario.For) / 60).Truncate(time.Second))
}

var loadHeader = []string{
	"TIME", "CALLS/S", "REFUSED", "FAILED", "P50 MS", "P99 MS", "LATE P99 MS", "CALLS/DECISION",
	"WCU/DECISION",
}

func (v *loadView) tell(t *load.Tally) {
	if v.Output != "table" {
		return
	}
	r := v.plan.Report(t)
	r.Target = v.target
	if v.live != nil {
		v.live.Draw(v.picture(r))
		return
	}
	if t.Elapsed < v.next {
		return
	}
	v.next = t.Elapsed + v.every() - 100*time.Millisecond
	if v.lines++; v.lines == 1 {
		v.Out.Println(strings.Join(loadHeader, "\t"))
	}
	v.Out.Println(strings.Join(v.row(r), "\t"))
}

// row shows the last complete interval. The store's measurements and the lateness cover the whole run so far.
func (v *loadView) row(r *load.Report) []string {
	i := max(0, min(len(r.Windows), int(r.Elapsed/r.Width))-1)
	var in load.Interval
	if i < len(r.Windows) {
		in = r.Windows[i]
	}
	late := "-"
	if r.Late != nil {
		late = ms(r.Late.P99)
	}
	return []string{
		fmt.Sprintf("%.0fs", r.Elapsed), fmt.Sprintf("%.0f", float64(in.Calls)/r.Width), shareOf(in.Refused, in.Calls),
		v.Out.Count(int64(in.Failed)),
		ms(in.P50), ms(in.P99), late, each(r, "calls"), each(r, "wcu"),
	}
}

func each(r *load.Report, name string) string {
	if m, ok := r.Store[name]; ok {
		return fmt.Sprintf("%.2f", m.Each)
	}
	return "-"
}

func ms(x float64) string { return fmt.Sprintf("%.3f", x) }

func shareOf(n, all uint64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(1, all)))
}

func (v *loadView) picture(r *load.Report) []string {
	width, _ := v.live.Size()
	rates, p99s := make([]float64, 0, len(r.Windows)), make([]float64, 0, len(r.Windows))
	for _, in := range r.Windows[:max(0, len(r.Windows)-1)] {
		rates, p99s = append(rates, float64(in.Calls)/r.Width), append(p99s, in.P99)
	}
	row := v.row(r)
	lines := []string{
		v.Out.Bold(r.Scenario) + " on " + r.Target + v.Out.Faint(fmt.Sprintf("   seed %d, %s loop   press q to stop",
			r.Seed, r.Loop)),
		v.Out.Bar(min(1, r.Elapsed/r.Seconds), max(10, width-16)) + fmt.Sprintf(" %.0f of %.0f s", r.Elapsed,
			r.Seconds), "",
	}
	for i, name := range loadHeader[1:] {
		lines = append(lines, term.Fit(strings.ToLower(name), 16)+v.Out.Bold(row[i+1]))
	}
	for _, l := range []struct {
		name   string
		values []float64
	}{{"calls/s", rates}, {"p99 ms", p99s}} {
		line, top := term.Spark(l.values, max(10, width-36))
		lines = append(lines, "", term.Fit(l.name, 16)+line+v.Out.Faint(fmt.Sprintf("  up to %.4g", top)))
	}
	if r.Overloaded {
		lines = append(lines, "", v.Out.Bad(r.Verdict()))
	}
	return lines
}

func printLoad(a *kit.Run, r *load.Report) {
	pairs := []string{"run", r.Headline(), "calls", fmt.Sprintf("%s, %.0f per second", a.Out.Count(int64(r.Calls)),
		r.Rate)}
	if r.Due > 0 {
		pairs = append(pairs, "due", a.Out.Count(int64(r.Due)))
	}
	pairs = append(pairs, "refused", fmt.Sprintf("%s (%s)", a.Out.Count(int64(r.Refused)), shareOf(r.Refused, r.Calls)),
		"failed", a.Out.Count(int64(r.Failed)))
	for _, name := range sortedNames(r.Store) {
		m := r.Store[name]
		pairs = append(pairs, "store "+name, fmt.Sprintf("%.0f: %.3f per decision", m.Total, m.Each))
	}
	a.Out.Pairs(pairs...)
	a.Out.Println()
	t := &term.Table{
		Header: []string{"MS", "CALLS", "REFUSED", "FAILED", "P50", "P90", "P99", "P99.9", "MAX"},
		Right:  []int{1, 2, 3, 4, 5, 6, 7, 8},
	}
	times := func(x load.Times) []string {
		return []string{ms(x.P50), ms(x.P90), ms(x.P99), ms(x.P999), ms(x.Max)}
	}
	for _, o := range r.Ops {
		t.Row(append([]string{
			string(o.Op), a.Out.Count(int64(o.Calls)), a.Out.Count(int64(o.Refused)),
			a.Out.Count(int64(o.Failed)),
		}, times(o.Response)...)...)
	}
	t.Row(append([]string{"service", "", "", ""}, times(r.Service)...)...)
	if r.Late != nil {
		t.Row(append([]string{"late", "", "", ""}, times(*r.Late)...)...)
	}
	a.Out.Table(t)
	if len(r.Groups)+len(r.Resources) > 2 {
		a.Out.Println()
		t := &term.Table{Header: []string{"ENTITIES, RESOURCES", "CALLS", "REFUSED", "FAILED"}, Right: []int{1, 2, 3}}
		for _, g := range slices.Concat(r.Groups, r.Resources) {
			t.Row(g.Name, a.Out.Count(int64(g.Calls)), shareOf(g.Refused, g.Calls), a.Out.Count(int64(g.Failed)))
		}
		a.Out.Table(t)
	}
	if a.Out.Terminal && len(r.Windows) > 1 {
		values := make([]float64, len(r.Windows))
		for i, in := range r.Windows {
			values[i] = float64(in.Calls) / r.Width
		}
		a.Out.Println()
		a.Out.Println(a.Out.Bold("CALLS PER SECOND"))
		a.Out.Chart(values, "0s", time.Duration(r.Elapsed*float64(time.Second)).Round(time.Second).String())
	}
	for _, text := range sortedNames(r.Errors) {
		a.Out.Println(a.Out.Bad(fmt.Sprintf("%s failed: ", kit.Plural(int(r.Errors[text]), "call"))) + term.Clean(text))
	}
	if r.Overloaded {
		a.Out.Println(a.Out.Bad(r.Verdict()))
	}
}

func printComparison(a *kit.Run, c *load.Comparison) {
	for _, what := range c.Unlike {
		a.Out.Println(a.Out.Warn("the runs differ in " + what))
	}
	t := &term.Table{Header: []string{"", "A", "B", "CHANGE"}, Right: []int{1, 2, 3}}
	for i := range c.Changes {
		t.Row(c.Changes[i].Cells()...)
	}
	a.Out.Table(t)
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
