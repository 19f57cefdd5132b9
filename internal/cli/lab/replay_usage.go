package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir"
	weiradmin "github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/admin"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/lab/whatif"
)

// usedFlags are the flags of replay --from-usage. Those that are nil have their default.
type usedFlags struct {
	On     bool              `json:"from_usage"`
	Target *float64          `json:"target_refusals" range:"0..1"`
	Window *weiradmin.Window `json:"window" values:"hourly,daily,monthly"`
	From   *time.Time        `json:"from"`
	To     *time.Time        `json:"to"`
}

// checkUsed refuses flags that are only for logs, or only for usage.
func (q *replayFlags) checkUsed() error {
	const needs = "needs --from-usage"
	const stored = "is only for usage read from the store, not from a file"
	for _, f := range []struct {
		flag  string
		wrong bool
		why   string
	}{
		{"target-refusals", !q.On && q.Target != nil, needs},
		{"window", !q.On && q.Window != nil, needs},
		{"from", !q.On && q.From != nil, needs},
		{"to", !q.On && q.To != nil, needs},
		{"window", q.Log != "" && q.Window != nil, stored},
		{"from", q.Log != "" && q.From != nil, stored},
		{"to", q.Log != "" && q.To != nil, stored},
		{"entity", q.On && q.Entity != nil, ofLogs},
		{"resource", q.On && q.Resource != nil, ofLogs},
		{"format", q.On && q.Format != nil, ofLogs},
		{"time", q.On && q.Time != nil, ofLogs},
	} {
		if f.wrong {
			return kit.Usagef("--%s %s", f.flag, f.why)
		}
	}
	if q.Log == "" && !q.On {
		return kit.Usagef("LOG is missing: give a log, or --from-usage")
	}
	return nil
}

const ofLogs = "cannot be used with --from-usage, which checks the limits for each entity on each resource"

func replayUsage(ctx context.Context, a *kit.Run, q *replayFlags) error {
	cfg := whatif.Config{
		Limits: func(string, string) []weir.Limit { return q.Limits }, Tokens: q.Tokens, Top: q.Top,
	}
	if q.Target != nil {
		if cfg.Target = *q.Target; cfg.Target <= 0 || cfg.Target >= 1 {
			return kit.Usagef("--target-refusals %g must be above 0 and below 1, such as 0.01 or 1%%", cfg.Target)
		}
	}
	show := func(windows []weiradmin.Usage) error {
		r, err := whatif.Run(windows, cfg)
		if err != nil {
			return err
		}
		return a.Print(r, func() { PrintWhatIf(a, r, join(q.Limits, " "), "") })
	}
	if q.Log != "" {
		src, _, err := openLog(ctx, a, q.Log)
		if err != nil {
			return err
		}
		defer src.Close()
		windows, err := whatif.Read(src)
		if err != nil {
			return fmt.Errorf("replay %s: %w", q.Log, err)
		}
		return show(windows)
	}
	period := api.Period{Window: weiradmin.Hourly}
	kit.Override(&period, &q.usedFlags)
	period.Close()
	return a.With(stores.Existing, func(lim *weir.Limiter) error {
		windows, err := SpentIn(ctx, lim, period)
		if err != nil {
			return err
		}
		if len(windows) == 0 {
			return errors.New("no usage is recorded for that time: see weir usage list")
		}
		return show(windows)
	})
}

// SpentIn reads all windows of a period, by entity and resource.
func SpentIn(ctx context.Context, lim *weir.Limiter, p api.Period) ([]weiradmin.Usage, error) {
	q := &api.UsageQuery{UsageSelection: api.UsageSelection{Period: p}}
	all, _, err := kit.All(ctx, api.Local{Limiter: lim}, api.ListUsage, q, nil)
	return all, err
}

// Between formats two bounds: 12, or 12 to 40.
func Between(a *kit.Run, least, most int64) string {
	if least == most {
		return a.Out.Count(least)
	}
	return a.Out.Count(least) + " to " + a.Out.Count(most)
}

func percents(least, most, all int64) string {
	of := func(n int64) string { return fmt.Sprintf("%.2f", 100*float64(n)/float64(max(1, all))) }
	if least == most {
		return of(least) + " %"
	}
	return of(least) + " to " + of(most) + " %"
}

// PrintWhatIf prints what limits would have refused. If now is not "", it says what the live limits would have refused.
func PrintWhatIf(a *kit.Run, r *whatif.Report, limits, now string) {
	var pairs []string
	if limits != "" {
		pairs = append(pairs, "limits", limits)
	}
	pairs = append(pairs, "usage", fmt.Sprintf("%s windows of %s, %s to %s", r.Window, kit.Plural(r.Buckets, "bucket"),
		second(r.From), second(r.To)),
		"recorded refusals", kit.Plural(int(r.Then), "request"))
	if now != "" {
		pairs = append(pairs, "with live limits", now)
	}
	pairs = append(pairs, "with these limits", "requests refused in "+Between(a, int64(r.Surely),
		int64(r.Perhaps))+" of these buckets")
	a.Out.Pairs(pairs...)
	a.Out.Println()
	t := &term.Table{
		Header: []string{"LIMIT", "TOKENS", "REFUSED", "IF EVEN", "SHARE", "BUCKETS"},
		Right:  []int{1, 2, 3, 4, 5},
	}
	for _, l := range r.Limits {
		t.Row(l.Limit, a.Out.Count(l.Asked), Between(a, l.Least, l.AtMost), a.Out.Count(l.Even),
			percents(l.Least, l.AtMost, l.Asked), Between(a, int64(l.Surely), int64(l.Perhaps)))
	}
	a.Out.Table(t)
	printWhom(a, r)
	if len(r.Suggest) > 0 {
		t := &term.Table{
			Header: []string{"FOR AT MOST", "BELOW IT, SURELY MORE", "IF EVEN", "SURELY ENOUGH"},
			Right:  []int{0},
		}
		for _, s := range r.Suggest {
			text := func(l *weir.Limit) string {
				if l == nil {
					return "no limit of " + s.Limit.Name + " is large enough"
				}
				return l.String()
			}
			t.Row(fmt.Sprintf("%g %%", 100*s.Target), text(s.Least), text(s.Even), text(s.Enough))
		}
		a.Out.Println()
		a.Out.Table(t)
	}
	for i, n := range r.Notes {
		if i == 0 {
			a.Out.Println()
		}
		a.Out.Println("note:", n)
	}
}

// maxMoments is the maximum number of windows that are listed.
const maxMoments = 24

func printWhom(a *kit.Run, r *whatif.Report) {
	if len(r.Most) == 0 {
		return
	}
	a.Out.Println()
	t := &term.Table{
		Header: []string{"MOST REFUSED", "RESOURCE", "BY", "TOKENS", "REFUSED", "IF EVEN", "FIRST"},
		Right:  []int{3, 4, 5}, Cut: []int{0, 1},
	}
	for _, b := range r.Most {
		t.Row(b.Entity, b.Resource, b.Limit.String(), a.Out.Count(b.Asked), Between(a, b.Least, b.AtMost),
			a.Out.Count(b.Even), admin.StartText(r.Window, b.First))
	}
	a.Out.Table(t)
	a.Out.Println()
	when := r.When[max(0, len(r.When)-maxMoments):]
	t = &term.Table{Header: []string{"WHEN", "BUCKETS REFUSED"}, Right: []int{1}}
	if len(when) < len(r.When) {
		t.Header[0] = fmt.Sprintf("WHEN, THE LAST %d OF %d", len(when), len(r.When))
	}
	for _, m := range when {
		t.Row(admin.StartText(r.Window, m.Start), Between(a, int64(m.Surely), int64(m.Perhaps)))
	}
	a.Out.Table(t)
}
