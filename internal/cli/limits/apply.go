package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/manifest"
)

// planRequest plans manifests.
type planRequest struct {
	planFlags
	whatIfFlags
	Out string `json:"out"`
}

func plan(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "plan", Short: "Show what applying manifests would change, and for whom",
		Example: `  weir limits plan -f tenant-alpha.limits.yaml
  weir limits plan -f limits/ --set TIER=500 --out plan.json
  weir limits plan -f limits/ --what-if --days 14`,
	}, func(ctx context.Context, q *planRequest) error {
		if err := q.check(&q.lambdaFlags); err != nil {
			return err
		}
		return planning(ctx, r, &q.planFlags, func(
			lim *weir.Limiter, plans []*manifest.Plan, save func() ([]byte, error),
		) error {
			if q.Out != "" {
				text, err := save()
				if err == nil {
					err = os.WriteFile(q.Out, text, 0o600)
				}
				if err != nil {
					return fmt.Errorf("save the plan: %w", err)
				}
			}
			whatIf, err := tried(ctx, lim, plans, &q.whatIfFlags)
			if err != nil {
				return err
			}
			return r.Print(plansView{plans, whatIf}, func() {
				for i, p := range plans {
					printPlan(r, p)
					if q.On {
						printTried(r, &whatIf[i])
					}
				}
			})
		})
	})
}

// plansView is plans as printed.
type plansView struct {
	Plans  []*manifest.Plan `json:"plans"`
	WhatIf []triedPlan      `json:"what_if,omitempty"` // one per plan
}

// planning reads manifests, plans them on an existing store or through a function, and calls show with the plans.
// Through a function, lim is nil. save returns the plans in the format of a saved plan.
func planning(
	ctx context.Context, a *kit.Run, q *planFlags,
	show func(lim *weir.Limiter, plans []*manifest.Plan, save func() ([]byte, error)) error,
) error {
	var plans []*manifest.Plan
	err := func() error {
		ms, err := q.Read(a)
		if err != nil {
			return err
		}
		if q.Stack == "" {
			return a.With(stores.Existing, func(lim *weir.Limiter) (err error) {
				if plans, err = makePlans(ctx, lim, ms, q.Exact); err != nil {
					return err
				}
				return show(lim, plans, func() ([]byte, error) { return manifest.Save(plans) })
			})
		}
		p, err := q.provisioner(ctx)
		if err != nil {
			return err
		}
		saved, err := p.plans(ctx, ms, q.Exact)
		if err != nil {
			return err
		}
		plans = plansOf(saved)
		return show(nil, plans, saved.Text)
	}()
	return q.exit(slices.ContainsFunc(plans, func(p *manifest.Plan) bool { return !p.Empty() }), err)
}

func diff(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{Use: "diff", Short: "Show how the live limits differ from manifests, and why"},
		func(ctx context.Context, q *planFlags) error {
			return planning(ctx, r, q, func(_ *weir.Limiter, plans []*manifest.Plan, _ func() ([]byte, error)) error {
				return r.Print(map[string]any{"manifests": manifest.DriftOf(plans)}, func() {
					for _, p := range plans {
						printDrift(r, p)
					}
				})
			})
		})
}

// applyFlags define how to apply, and what may be done without confirmation.
type applyFlags struct {
	Yes   bool `json:"yes" flag:"yes,y"`
	Adopt bool `json:"adopt"`
	Keep  bool `json:"no_delete"`
	Rate  int  `json:"rate" default:"2000"`
}

// applyRequest applies manifests or a saved plan.
type applyRequest struct {
	Plan string `json:"plan" arg:"PLAN"`
	SourceFlags
	lambdaFlags
	exactFlag
	applyFlags
	stageFlags
}

func apply(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "apply [PLAN]", Short: "Make the live limits match manifests",
		Long: `Makes the live limits match the manifests given with -f, or a saved plan. A saved plan is
refused if the live limits have changed since. The command asks before it deletes or tightens
anything, and before it adopts a record that no manifest manages.

You can interrupt and repeat it: what has been applied stays, and the next run applies the rest.

With --stage, limits that tighten first apply to a share of the entities, always the same ones.
For all others, existing limits stay as they were and new limits are in shadow. Each share is
watched for --bake. If --abort-on is met, or on an interrupt or an error, everything is restored
as it was. With --gate, each share waits until a document allows it; the document is deployed
separately from the limits, for example by AWS AppConfig. If it is rolled back, so are the limits.
If the command dies, the stage stays as it is, and the same command continues from there.`,
		Example: "  weir limits apply -f tenant-alpha.limits.yaml\n  weir limits apply plan.json --yes\n" +
			"  weir limits apply -f limits.yaml --stage 5%,25%,100% --bake 10m --abort-on 'refusal_rate>0.05'\n" +
			"  weir limits apply -f limits.yaml --stage 5%,100% --gate " +
			"http://localhost:2772/applications/weir-gate/environments/weir-gate/configurations/weir-gate",
	}, func(ctx context.Context, q *applyRequest) error {
		if q.Plan != "" && len(q.Files) > 0 {
			return kit.Usage(errors.New("give either a PLAN or -f FILE"))
		}
		if err := q.check(); err != nil {
			return err
		}
		if q.Stack != "" && len(q.Stages) > 0 {
			return kit.Usage(
				errors.New("--stage cannot be used with --via-lambda: it takes longer than a function may run"),
			)
		}
		saved, ms, err := q.read(r)
		if err != nil {
			return err
		}
		if q.Stack != "" {
			return applyVia(ctx, r, q, saved, ms)
		}
		return r.With(stores.Create, func(lim *weir.Limiter) (err error) {
			var plans []*manifest.Plan
			if q.Plan != "" {
				plans, err = manifest.Load(ctx, lim, saved, q.Plan)
			} else {
				plans, err = makePlans(ctx, lim, ms, q.Exact)
			}
			if err != nil {
				return err
			}
			return applyPlans(ctx, r, lim, plans, &q.applyFlags, &q.stageFlags, "")
		})
	})
}

// read reads the saved plan, or the manifests.
func (q *applyRequest) read(r *kit.Run) (saved []byte, ms []*manifest.Manifest, err error) {
	if q.Plan == "" {
		ms, err = q.Read(r)
		return nil, ms, err
	}
	if saved, err = os.ReadFile(q.Plan); err != nil {
		err = fmt.Errorf("read the plan: %w", err)
	}
	return saved, nil, err
}

// applied is results as printed.
type applied struct {
	Results []manifest.Result `json:"results"`
}

// applyPlans shows plans, asks for confirmation where necessary, and applies them.
func applyPlans(
	ctx context.Context, a *kit.Run, lim *weir.Limiter, plans []*manifest.Plan, flags *applyFlags, stage *stageFlags,
	summary string,
) error {
	return applyEach(ctx, a, plans, flags, func(i int) (manifest.Result, error) {
		progress := term.NewProgress(a.Err)
		defer progress.Done()
		opts := manifest.ApplyOptions{
			Adopt: true, Keep: flags.Keep, Rate: flags.Rate, Summary: summary,
			Progress: func(done, total int) { progress.Update("applying", float64(done)/float64(max(1, total))) },
			Wait:     time.Minute, Waiting: func(held *admin.LockedError) {
				a.Err.Printf("waiting for %s, who is applying the same manifest, until %s at the latest\n",
					held.By, kit.Instant(held.Until))
			},
		}
		if stage != nil && len(stage.Stages) > 0 {
			return rollout(ctx, a, lim, plans[i], opts, stage)
		}
		return manifest.Apply(ctx, lim, plans[i], opts)
	})
}

// applyEach shows plans, asks for confirmation where necessary, and calls apply for each.
func applyEach(
	ctx context.Context, a *kit.Run, plans []*manifest.Plan, flags *applyFlags,
	apply func(i int) (manifest.Result, error),
) error {
	if a.Output == "table" {
		err := a.Buffered(func() {
			for _, p := range plans {
				printPlan(a, p)
			}
		})
		if err != nil {
			return err
		}
	}
	if err := agree(ctx, a, plans, flags); err != nil {
		return err
	}
	out := applied{Results: []manifest.Result{}}
	var failure error
	for i, p := range plans {
		res, err := apply(i)
		var stopped *manifest.StoppedError
		if !errors.As(err, &stopped) { // nothing was applied
			out.Results = append(out.Results, res)
		}
		if err != nil {
			failure = partly(fmt.Errorf("apply to namespace %s: %w", p.Namespace, err))
			break
		}
	}
	err := a.Print(out, func() {
		for i := range out.Results {
			printResult(a, &out.Results[i])
		}
	})
	if failure != nil {
		return failure
	}
	return err
}

// partly gives a partial apply the exit code of a failure, whatever was wrong with the rest, unless the store did not
// answer.
func partly(err error) error {
	var some *manifest.FailedError
	if errors.As(err, &some) && kit.CodeOf(err) != kit.Unavailable {
		return kit.WithCode(err, kit.Failed)
	}
	return err
}

// agree asks at the terminal about changes that a repeated apply cannot undo.
func agree(ctx context.Context, a *kit.Run, plans []*manifest.Plan, flags *applyFlags) error {
	deletes, tightens, adopts := 0, 0, 0
	for _, p := range plans {
		if !flags.Keep {
			deletes += p.Count(manifest.Delete)
		}
		tightens += p.Tightening()
		adopts += p.Count(manifest.Adopt)
	}
	if adopts > 0 && !flags.Adopt && flags.Yes && !term.IsTerminal(a.In) {
		return kit.Usagef("would adopt %s that no manifest manages: add --adopt", kit.Plural(adopts, "live record"))
	}
	var asks []string
	for _, may := range []struct {
		n       int
		allowed bool
		what    string
	}{
		{deletes, flags.Yes, "delete " + kit.Plural(deletes, "record")},
		{tightens, flags.Yes, "tighten limits in " + kit.Plural(tightens, "change")},
		{adopts, flags.Adopt, "adopt " + kit.Plural(adopts, "record") + " that no manifest manages"},
	} {
		if may.n > 0 && !may.allowed {
			asks = append(asks, may.what)
		}
	}
	if len(asks) == 0 {
		return nil
	}
	err := kit.Confirm(ctx, a, false, "%s", strings.Join(asks, ", "))
	var usage kit.UsageError
	if adopts > 0 && !flags.Adopt && errors.As(err, &usage) {
		return kit.Usagef("%w and --adopt", usage)
	}
	return err
}
