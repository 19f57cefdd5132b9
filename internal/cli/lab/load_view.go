package lab

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/lab/load"
	"github.com/weirlimits/weir/internal/lab/report"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

// loadView shows the progress of a run: in place on a terminal, as occasional lines in a pipe, and not at all as JSON
// or YAML.
type loadView struct {
	*kit.Run
	plan   *traffic.Plan
	target string
	live   *term.Live
	next   time.Duration // when the next line is due
	lines  int
}

func newLoadView(a *kit.Run, p *traffic.Plan, target string) *loadView {
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
	r := load.NewReport(v.plan, t)
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
		fmt.Sprintf("%.0fs", r.Elapsed), fmt.Sprintf("%.0f", float64(in.Calls)/r.Width),
		fmt.Sprintf("%.1f %%", report.Part(in.Refused, in.Calls)),
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
