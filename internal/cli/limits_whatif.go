package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/whatif"
)

// whatIfFlags are those of limits plan --what-if.
type whatIfFlags struct {
	on   bool
	days int
}

// maxDays is for how long hours are kept, unless a store says otherwise.
const maxDays = 90

func (f *whatIfFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.on, "what-if", false, "hold the usage that was recorded against what would apply: who would have been refused")
	cmd.Flags().IntVar(&f.days, "days", 7, "with --what-if, the usage of the last `N` days")
}

func (f *whatIfFlags) check(cmd *cobra.Command, via *lambdaFlags) error {
	switch {
	case !f.on && cmd.Flags().Changed("days"):
		return usageError{errors.New("--days goes with --what-if")}
	case f.on && via.stack != "":
		return usageError{errors.New("--what-if reads usage from the store: it does not go with a function")}
	case f.days < 1 || f.days > maxDays:
		return usageError{fmt.Errorf("--days %d must be from 1 to %d", f.days, maxDays)}
	}
	return nil
}

// triedPlan is what a plan would have refused of the usage of those whose limits it changes, and what the limits that
// are live now would have: what was refused then may have been by others.
type triedPlan struct {
	Namespace string         `json:"namespace"`
	Days      int            `json:"days"`
	Planned   *whatif.Report `json:"planned"` // nil: nobody whose limits change spent anything
	Now       *whatif.Report `json:"now,omitempty"`
}

// tried holds usage against plans.
func tried(ctx context.Context, lim *weir.Limiter, plans []*manifest.Plan, flags *whatIfFlags) ([]triedPlan, error) {
	if !flags.on {
		return nil, nil
	}
	all := make([]triedPlan, len(plans))
	for i, p := range plans {
		all[i] = triedPlan{Namespace: p.Namespace, Days: flags.days}
		if p.CreateNamespace {
			continue
		}
		windows, err := spentIn(ctx, lim.In(p.Namespace), weir.UsageQuery{Window: weir.Hourly, From: since(flags.days)})
		if err != nil {
			return nil, err
		}
		if err := all[i].try(p, windows); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (t *triedPlan) try(p *manifest.Plan, windows []weir.Usage) (err error) {
	before, after := p.Limits()
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

func (a *app) printTried(t *triedPlan) {
	a.out.Println(a.out.Bold(fmt.Sprintf("Had it been so for the last %s, as recorded usage tells:", plural(t.Days, "day"))))
	if t.Planned == nil {
		a.out.Println("Nobody whose limits change spent anything.")
		a.out.Println()
		return
	}
	now := a.between(int64(t.Now.Surely), int64(t.Now.Perhaps)) + " of these buckets something"
	if t.Now.Buckets == 0 {
		now = "none"
	}
	a.printWhatIf(t.Planned, "", now)
	a.out.Println()
}
