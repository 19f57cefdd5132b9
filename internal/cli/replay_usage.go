package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/whatif"
	"github.com/weirlimits/weir/internal/term"
)

// usedFlags are the flags of replay --from-usage.
type usedFlags struct {
	on               bool
	target           string
	window, from, to string
}

func (f *usedFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.on, "from-usage", false, "replay usage: LOG is the output of weir usage list; without LOG, read the store's usage")
	cmd.Flags().StringVar(&f.target, "target-refusals", "", "with --from-usage: suggest limits that refuse at most this `SHARE` of the tokens")
	cmd.Flags().StringVar(&f.window, "window", "hourly", "with --from-usage: read windows of this `TYPE` from the store")
	cmd.Flags().StringVar(&f.from, "from", "", "with --from-usage: start with the window that contains `TIME` (default a day or 30 days ago)")
	cmd.Flags().StringVar(&f.to, "to", "", "with --from-usage: end before `TIME` (default now)")
}

// onlyLogs and onlyUsage are the flags that are valid only without, or only with, --from-usage.
var (
	onlyLogs  = []string{"entity", "resource", "format", "time"}
	onlyUsage = []string{"target-refusals", "window", "from", "to"}
)

// check refuses flags that cannot be used together.
func (f *usedFlags) check(cmd *cobra.Command, names []string) error {
	wrong, with := onlyUsage, "needs --from-usage"
	if f.on {
		wrong, with = onlyLogs, "cannot be used with --from-usage, which checks the limits for each entity on each resource"
	}
	for _, name := range wrong {
		if cmd.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s %s", name, with)}
		}
	}
	for _, name := range []string{"window", "from", "to"} {
		if len(names) > 0 && cmd.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s is only for usage read from the store, not from a file", name)}
		}
	}
	return nil
}

func (a *app) replayUsage(cmd *cobra.Command, names []string, flags replayFlags) error {
	if err := flags.parse(); err != nil {
		return err
	}
	limits := flags.run.Limits
	cfg := whatif.Config{
		Limits: func(string, string) []weir.Limit { return limits }, Tokens: flags.run.Tokens, Top: flags.run.Top,
	}
	if flags.used.target != "" {
		var err error
		if cfg.Target, err = parseShare(flags.used.target); err != nil || cfg.Target <= 0 || cfg.Target >= 1 {
			return usageError{fmt.Errorf("--target-refusals %q must be above 0 and below 1, such as 0.01 or 1%%", flags.used.target)}
		}
	}
	show := func(windows []weir.Usage) error {
		r, err := whatif.Run(windows, cfg)
		if err != nil {
			return err
		}
		return a.print(r, func() { a.printWhatIf(r, join(limits, " "), "") })
	}
	if len(names) > 0 {
		src, _, err := a.openLog(cmd.Context(), names[0])
		if err != nil {
			return err
		}
		defer src.Close()
		windows, err := whatif.Read(src)
		if err != nil {
			return fmt.Errorf("replay %s: %w", names[0], err)
		}
		return show(windows)
	}
	period := usageFlags{window: flags.used.window, from: flags.used.from, to: flags.used.to}
	w, from, to, err := period.period()
	if err != nil {
		return err
	}
	return a.with(existing, func(lim *weir.Limiter) error {
		windows, err := spentIn(cmd.Context(), lim, weir.UsageQuery{Window: w, From: from, To: to})
		if err != nil {
			return err
		}
		if len(windows) == 0 {
			return errors.New("no usage is recorded for that time: see weir usage list")
		}
		return show(windows)
	})
}

// spentIn reads all windows that a query selects.
func spentIn(ctx context.Context, lim *weir.Limiter, q weir.UsageQuery) (all []weir.Usage, err error) {
	for q.Max = pageSize; ; {
		page, err := lim.Usage(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Windows...)
		if q.After = page.Next; q.After == "" {
			return all, nil
		}
	}
}

// between formats two bounds: 12, or 12 to 40.
func (a *app) between(least, most int64) string {
	if least == most {
		return a.out.Count(least)
	}
	return a.out.Count(least) + " to " + a.out.Count(most)
}

func percents(least, most, all int64) string {
	of := func(n int64) string { return fmt.Sprintf("%.2f", 100*float64(n)/float64(max(1, all))) }
	if least == most {
		return of(least) + " %"
	}
	return of(least) + " to " + of(most) + " %"
}

// printWhatIf prints what limits would have refused. If now is not "", it says what the live limits would have refused.
func (a *app) printWhatIf(r *whatif.Report, limits, now string) {
	var pairs []string
	if limits != "" {
		pairs = append(pairs, "limits", limits)
	}
	pairs = append(pairs, "usage", fmt.Sprintf("%s windows of %s, %s to %s", r.Window, plural(r.Buckets, "bucket"), second(r.From), second(r.To)),
		"recorded refusals", plural(int(r.Then), "request"))
	if now != "" {
		pairs = append(pairs, "with live limits", now)
	}
	pairs = append(pairs, "with these limits", "requests refused in "+a.between(int64(r.Surely), int64(r.Perhaps))+" of these buckets")
	a.out.Pairs(pairs...)
	a.out.Println()
	t := &term.Table{Header: []string{"LIMIT", "TOKENS", "REFUSED", "IF EVEN", "SHARE", "BUCKETS"}, Right: []int{1, 2, 3, 4, 5}}
	for _, l := range r.Limits {
		t.Row(l.Limit, a.out.Count(l.Asked), a.between(l.Least, l.AtMost), a.out.Count(l.Even), percents(l.Least, l.AtMost, l.Asked), a.between(int64(l.Surely), int64(l.Perhaps)))
	}
	a.out.Table(t)
	a.printWhom(r)
	if len(r.Suggest) > 0 {
		t := &term.Table{Header: []string{"FOR AT MOST", "BELOW IT, SURELY MORE", "IF EVEN", "SURELY ENOUGH"}, Right: []int{0}}
		for _, s := range r.Suggest {
			text := func(l *weir.Limit) string {
				if l == nil {
					return "no limit of " + s.Limit.Name + " is large enough"
				}
				return l.String()
			}
			t.Row(fmt.Sprintf("%g %%", 100*s.Target), text(s.Least), text(s.Even), text(s.Enough))
		}
		a.out.Println()
		a.out.Table(t)
	}
	for i, n := range r.Notes {
		if i == 0 {
			a.out.Println()
		}
		a.out.Println("note:", n)
	}
}

// maxMoments is the maximum number of windows that are listed.
const maxMoments = 24

func (a *app) printWhom(r *whatif.Report) {
	if len(r.Most) == 0 {
		return
	}
	a.out.Println()
	t := &term.Table{Header: []string{"MOST REFUSED", "RESOURCE", "BY", "TOKENS", "REFUSED", "IF EVEN", "FIRST"}, Right: []int{3, 4, 5}, Cut: []int{0, 1}}
	for _, b := range r.Most {
		t.Row(b.Entity, b.Resource, b.Limit.String(), a.out.Count(b.Asked), a.between(b.Least, b.AtMost), a.out.Count(b.Even), startText(r.Window, b.First))
	}
	a.out.Table(t)
	a.out.Println()
	when := r.When[max(0, len(r.When)-maxMoments):]
	t = &term.Table{Header: []string{"WHEN", "BUCKETS REFUSED"}, Right: []int{1}}
	if len(when) < len(r.When) {
		t.Header[0] = fmt.Sprintf("WHEN, THE LAST %d OF %d", len(when), len(r.When))
	}
	for _, m := range when {
		t.Row(startText(r.Window, m.Start), a.between(int64(m.Surely), int64(m.Perhaps)))
	}
	a.out.Table(t)
}

// since returns the time the given number of days ago.
func since(days int) time.Time { return time.Now().AddDate(0, 0, -days) }
