package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	weiradmin "github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/lab/whatif"
	"github.com/weirlimits/weir/store"
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
		Limits: func(_, resource string) []weir.Limit {
			if store.Aggregate(resource) { // repeats what the resources have
				return nil
			}
			return q.Limits
		},
		Tokens: q.Tokens, Top: q.Top,
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
		return a.Print(r, func() { Show(a, r.Document(strings.Trim(fmt.Sprint(q.Limits), "[]"), nil)) })
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
