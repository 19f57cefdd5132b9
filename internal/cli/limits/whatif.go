package limits

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/lab"
	"github.com/weirlimits/weir/internal/lab/whatif"
	"github.com/weirlimits/weir/internal/manifest"
)

// whatIfFlags are the flags of limits plan --what-if.
type whatIfFlags struct {
	On   bool `json:"what_if"`
	Days *int `json:"days" range:"1..90"` // hourly usage is kept for 90 days by default
}

func (f *whatIfFlags) check(r *kit.Run, via *lambdaFlags) error {
	switch {
	case f.On:
		return via.needStore(r, "--what-if")
	case f.Days != nil:
		return kit.Usage(errors.New("--days needs --what-if"))
	}
	return nil
}

// triedPlan is what a plan would have refused of the recorded usage of buckets whose limits it changes, and what the
// live limits would have refused. Other limits may have been in force when the usage was recorded.
type triedPlan struct {
	Namespace string         `json:"namespace"`
	Days      int            `json:"days"`
	Planned   *whatif.Report `json:"planned"` // nil if no bucket whose limits change was used
	Now       *whatif.Report `json:"now,omitempty"`
}

// tried checks recorded usage against plans.
func tried(ctx context.Context, by planner, plans []*manifest.Plan, flags *whatIfFlags) ([]triedPlan, error) {
	store, ok := by.(onStore)
	if !ok || !flags.On {
		return nil, nil
	}
	days := 7
	if flags.Days != nil {
		days = *flags.Days
	}
	all := make([]triedPlan, len(plans))
	for i, p := range plans {
		all[i] = triedPlan{Namespace: p.Namespace, Days: days}
		if p.CreateNamespace {
			continue
		}
		last := api.Period{Window: admin.Hourly, From: time.Now().AddDate(0, 0, -days)}
		windows, err := lab.SpentIn(ctx, store.lim.In(p.Namespace), last)
		if err != nil {
			return nil, err
		}
		if err := all[i].try(p, windows); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (t *triedPlan) try(p *manifest.Plan, windows []admin.Usage) (err error) {
	was, is := p.Scopes()
	before, after := was.Limits, is.Limits
	changes := func(of func(entity, resource string) []weir.Limit) func(entity, resource string) []weir.Limit {
		return func(entity, resource string) []weir.Limit {
			if slices.Equal(before(entity, resource), after(entity, resource)) {
				return nil
			}
			return of(entity, resource)
		}
	}
	if t.Planned, err = whatif.Run(windows, whatif.Config{Limits: changes(after)}); err != nil {
		return err
	}
	if t.Planned.Buckets == 0 {
		t.Planned = nil
		return nil
	}
	t.Now, err = whatif.Run(windows, whatif.Config{Limits: changes(before)})
	return err
}

func printTried(a *kit.Run, t *triedPlan) {
	a.Out.Println(a.Out.Bold("If these limits had applied for the last " + kit.Plural(t.Days, "day") +
		", according to recorded usage:"))
	if t.Planned == nil {
		a.Out.Println("No bucket whose limits change was used.")
		a.Out.Println()
		return
	}
	lab.Show(a, t.Planned.Document("", t.Now))
	a.Out.Println()
}
