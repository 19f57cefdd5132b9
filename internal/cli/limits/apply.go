package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/manifest"
)

// planRequest plans manifests.
type planRequest struct {
	planFlags
	whatIfFlags
	policyFlag
	Out string `json:"out"`
}

func plan(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "plan", Short: "Show what applying manifests would change, and for whom",
		Example: `  weir limits plan -f tenant-alpha.limits.yaml
  weir limits plan -f limits/ --set TIER=500 --out plan.json
  weir limits plan -f limits/ --what-if --days 14`,
	}, func(ctx context.Context, q *planRequest) error {
		if err := q.check(r, &q.lambdaFlags); err != nil {
			return err
		}
		rules, err := q.read(r, &q.lambdaFlags)
		if err != nil {
			return err
		}
		return planning(ctx, r, &q.planFlags, q.On, func(p planner, plans []*manifest.Plan) error {
			if q.Out != "" {
				text, err := manifest.Save(plans)
				if err == nil {
					err = os.WriteFile(q.Out, text, 0o600)
				}
				if err != nil {
					return fmt.Errorf("save the plan: %w", err)
				}
			}
			whatIf, err := tried(ctx, p, plans, &q.whatIfFlags)
			if err != nil {
				return err
			}
			err = r.Print(plansView{plans, whatIf}, func() {
				for i, p := range plans {
					printPlan(r, p, " Nothing has been applied.")
					if q.On {
						printTried(r, &whatIf[i])
					}
				}
			})
			if err != nil {
				return err
			}
			stages, err := rules.allow(plans, true)
			for _, text := range stages {
				r.Err.Println(text)
			}
			return err
		})
	})
}

// plansView is plans as printed.
type plansView struct {
	Plans  []*manifest.Plan `json:"plans"`
	WhatIf []triedPlan      `json:"what_if,omitempty"` // one per plan
}

// planning reads and plans manifests, and calls show with the plans.
func planning(
	ctx context.Context, a *kit.Run, q *planFlags, whatIf bool, show func(p planner, plans []*manifest.Plan) error,
) error {
	var plans []*manifest.Plan
	err := func() error {
		ms, err := q.Read(a)
		if err != nil {
			return err
		}
		return q.with(ctx, a, stores.Existing, func(p planner) (err error) {
			if plans, err = makePlans(ctx, p, ms, manifest.PlanOptions{Exact: q.Exact, Whole: whatIf}); err != nil {
				return err
			}
			return show(p, plans)
		})
	}()
	return q.exit(slices.ContainsFunc(plans, func(p *manifest.Plan) bool { return !p.Empty() }), err)
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
	policyFlag
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
If the command dies, the stage stays as it is, and applying the same manifest, on any machine,
continues from there: with --stage by what its flags define, otherwise as before.`,
		Example: "  weir limits apply -f tenant-alpha.limits.yaml\n  weir limits apply plan.json --yes\n" +
			"  weir limits apply -f limits.yaml --stage 5%,25%,100% --bake 10m --abort-on 'refusal_rate>0.05'\n" +
			"  weir limits apply -f limits.yaml --stage 5%,100% --gate " +
			"http://localhost:2772/applications/weir-gate/environments/weir-gate/configurations/weir-gate",
	}, func(ctx context.Context, q *applyRequest) error {
		if err := q.usage(r); err != nil {
			return err
		}
		rules, err := q.policyFlag.read(r, &q.lambdaFlags)
		if err != nil {
			return err
		}
		saved, ms, err := q.read(r)
		if err != nil {
			return err
		}
		return q.with(ctx, r, stores.Create, func(p planner) (err error) {
			var plans []*manifest.Plan
			if q.Plan == "" {
				plans, err = makePlans(ctx, p, ms, manifest.PlanOptions{Exact: q.Exact})
			} else {
				plans, err = manifest.Load(saved, q.Plan, func(m *manifest.Manifest) (*manifest.Plan, error) {
					if err := r.InNamespace(m.Namespace); err != nil {
						return nil, err
					}
					return p.plan(ctx, m, manifest.PlanOptions{})
				})
			}
			if err != nil {
				return unchanged(ctx, err)
			}
			if _, err := rules.allow(plans, len(q.Stages) > 0); err != nil {
				return unchanged(ctx, err)
			}
			return applyPlans(ctx, r, p, plans, &q.applyFlags, &q.stageFlags, 0)
		})
	})
}

// usage checks the flags.
func (q *applyRequest) usage(r *kit.Run) error {
	if q.Plan != "" && len(q.Files) > 0 {
		return kit.Usage(errors.New("give either a PLAN or -f FILE"))
	}
	if err := q.check(); err != nil || len(q.Stages) == 0 {
		return err
	}
	if r.Server != "" {
		return kit.Usagef("--stage does not work through a server: give --store URL or --via-lambda STACK")
	}
	return nil
}

// read reads the saved plan, or the manifests.
func (q *applyRequest) read(r *kit.Run) (saved []byte, ms []*manifest.Manifest, err error) {
	if q.Plan == "" {
		ms, err = q.Read(r)
		return nil, ms, err
	}
	saved, err = os.ReadFile(q.Plan)
	switch {
	case strings.Contains(filepath.Ext(q.Plan), ".y") && !json.Valid(saved): // also if there is no such file
		return nil, nil, kit.Usagef("manifests go with -f: weir limits apply -f %s", q.Plan)
	case err != nil:
		return nil, nil, fmt.Errorf("read the plan: %w", err)
	}
	return saved, nil, nil
}

// unchanged adds to the error of an apply that has not begun that nothing was changed.
func unchanged(ctx context.Context, err error) error {
	if errors.Is(err, kit.ErrCancelled) {
		return err
	}
	return interrupted(ctx, fmt.Errorf("%w; %w", err, manifest.ErrNotBegun))
}

var errInterrupted = errors.New("interrupted")

// interrupted returns the error of an apply or, if an interrupt ended it, one that states what is in force.
func interrupted(ctx context.Context, err error) error {
	var stopped *manifest.StoppedError
	switch {
	case ctx.Err() == nil || !errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &stopped):
		stopped.Err = errInterrupted
		return stopped
	case errors.Is(err, manifest.ErrNotBegun):
		return fmt.Errorf("%w; %w", errInterrupted, manifest.ErrNotBegun)
	}
	return fmt.Errorf("%w: what has been applied stays; apply again to continue", errInterrupted)
}

// applyPlans shows plans, asks for confirmation where necessary, and applies them.
func applyPlans(
	ctx context.Context, a *kit.Run, by planner, plans []*manifest.Plan, flags *applyFlags, stage *stageFlags,
	rollback int,
) error {
	if _, server := by.(onServer); server && flags.Rate != api.ApplyRate {
		return kit.Usagef("--rate does not work through a server: it writes %d records per second", api.ApplyRate)
	}
	if a.Output == "table" {
		err := a.Buffered(func() {
			for _, p := range plans {
				printPlan(a, p, "")
			}
		})
		if err != nil {
			return err
		}
	}
	if err := agree(ctx, a, plans, flags); err != nil {
		return unchanged(ctx, err)
	}
	out := api.Applied{Results: []manifest.Result{}}
	var failure error
	for _, p := range plans {
		res, err := applyOne(ctx, a, by, p, flags, stage, rollback)
		var stopped *manifest.StoppedError
		// Otherwise nothing was applied, or it is not known what.
		if !errors.As(err, &stopped) && !errors.Is(err, manifest.ErrNotBegun) && res.Namespace != "" {
			out.Results = append(out.Results, res)
		}
		if err != nil {
			failure = partly(fmt.Errorf("apply to namespace %s: %w", p.Namespace, interrupted(ctx, err)))
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

// applyOne applies a plan, at once or in stages.
func applyOne(
	ctx context.Context, a *kit.Run, by planner, p *manifest.Plan, flags *applyFlags, stage *stageFlags, rollback int,
) (manifest.Result, error) {
	progress := term.NewProgress(a.Err)
	defer progress.Done()
	opts := manifest.ApplyOptions{
		Adopt: true, Keep: flags.Keep, Rate: flags.Rate, Rollback: rollback,
		Progress: func(done, total int) { progress.Update("applying", float64(done)/float64(max(1, total))) },
		Wait:     time.Minute, Waiting: func(held *admin.LockedError) {
			a.Err.Printf("waiting for %s, who is applying the same manifest, until %s at the latest\n",
				held.By, kit.Instant(held.Until))
		},
	}
	ongoing := p.Rollout != nil && p.Rollout.Same
	if ongoing || len(stage.Stages) > 0 {
		switch by := by.(type) {
		case onStore:
			return rollout(ctx, a, by.lim, p, opts, stage)
		case *provisioner:
			return by.rollout(ctx, a, p, opts, stage)
		}
	}
	return by.apply(ctx, p, opts)
}

// partly gives a partial apply the exit code of a failure, whatever was wrong with the rest, unless the store did not
// answer.
func partly(err error) error {
	if _, ok := errors.AsType[*manifest.FailedError](err); ok && kit.CodeOf(err) != kit.Unavailable {
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
