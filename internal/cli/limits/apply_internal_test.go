package limits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/manifest"
)

// A partial apply fails, whatever was wrong with the rest, but the store that does not answer has its own exit code.
func TestPartly(t *testing.T) {
	t.Parallel()
	bad := &weir.ConfigError{Field: "limits", Reason: "is bad"}
	for _, tt := range []struct {
		err  error
		want int
	}{
		{bad, kit.WrongUsage},
		{errors.Join(&manifest.FailedError{}, bad), kit.Failed},
		{errors.Join(&manifest.FailedError{}, weir.ErrNotFound), kit.Failed},
		{errors.Join(&manifest.FailedError{}, weir.ErrUnavailable), kit.Unavailable},
	} {
		if got := kit.CodeOf(partly(fmt.Errorf("apply: %w", tt.err))); got != tt.want {
			t.Errorf("%v: exit code %d, want %d", tt.err, got, tt.want)
		}
	}
}

// overtaken is a planner whose applies are overtaken by others.
type overtaken struct{ planner }

func (overtaken) apply(_ context.Context, p *manifest.Plan, _ manifest.ApplyOptions) (manifest.Result, error) {
	return manifest.Result{Namespace: p.Namespace}, fmt.Errorf("overtaken; %w", manifest.ErrNotBegun)
}

// TestOvertaken checks that an apply that changed nothing prints no result.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	run := &kit.Run{In: strings.NewReader(""), Out: term.New(&out, nil), Err: term.New(&errs, nil), Output: "json"}
	plans := []*manifest.Plan{{Namespace: "a", Manifest: "default"}}
	err := applyPlans(t.Context(), run, overtaken{}, plans, &applyFlags{}, &stageFlags{}, 0)
	if !errors.Is(err, manifest.ErrNotBegun) || !strings.HasSuffix(err.Error(), "; nothing was changed") {
		t.Errorf("error %v", err)
	}
	if strings.Contains(out.String(), "revision") || strings.Contains(out.String(), "created") {
		t.Errorf("printed %s", out.String())
	}
}

// During a rollout, diff and plan show its stage and the next. Interrupted, apply states the stage, and that the limits
// are as they were.
func TestInterruptedStage(t *testing.T) {
	t.Parallel()
	bubble(t, func(g *gated) {
		var out, errs strings.Builder
		run := &kit.Run{In: strings.NewReader(""), Out: term.New(&out, nil), Err: term.New(&errs, nil), Output: "table"}
		diffed := func() string {
			d, err := onStore{g.lim}.diff(g.t.Context(), gatedManifest(g.t, 50), false)
			if err != nil {
				g.t.Fatal(err)
			}
			out.Reset()
			printDrift(run, &d)
			return out.String()
		}
		const notYet = "limits of resource api: not applied yet: the manifest has changed"
		if text := diffed(); !strings.Contains(text, notYet) || strings.Contains(text, "rollout") {
			g.t.Errorf("before: %s", text)
		}
		ctx, interrupt := context.WithCancel(g.t.Context())
		defer interrupt()
		ended := make(chan error, 1)
		go func() {
			stage := &stageFlags{Stages: []string{"5%", "25%", "100%"}, percents: []int{5, 25}, Bake: 10 * time.Minute}
			flags := &applyFlags{Yes: true}
			ended <- applyPlans(ctx, run, onStore{g.lim}, []*manifest.Plan{g.plan}, flags, stage, 0)
		}()
		time.Sleep(time.Minute)
		const rolling = "A rollout of it is unfinished, at 5%, the next stage is 25%: apply continues it, --stage 5%,25%,100% --bake 10m0s."
		text := diffed()
		for _, want := range []string{rolling, "limits of resource api: in stages, in force for 5% of the entities"} {
			if !strings.Contains(text, want) || strings.Contains(text, "not applied yet") {
				g.t.Errorf("diff does not have %q: %s", want, text)
			}
		}
		out.Reset()
		if printPlan(run, g.make(50), ""); !strings.Contains(out.String(), rolling) {
			g.t.Errorf("the plan is %s", out.String())
		}
		interrupt()
		err := <-ended
		const want = "apply to namespace default: stopped at 5%: interrupted; the limits are as they were before"
		if err == nil || err.Error() != want || errors.Is(err, context.Canceled) || kit.CodeOf(err) != kit.Failed {
			g.t.Errorf("interrupted: %v", err)
		}
		if text := diffed(); !strings.Contains(text, notYet) || strings.Contains(text, "rollout") {
			g.t.Errorf("after: %s", text)
		}
	})
}

// cut is a planner whose apply an interrupt ends.
type cut struct {
	planner
	err error
}

func (c cut) apply(_ context.Context, p *manifest.Plan, _ manifest.ApplyOptions) (manifest.Result, error) {
	return manifest.Result{Namespace: p.Namespace, Created: 1}, c.err
}

// Interrupted, an apply states whether anything was changed, and how to go on.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for err, want := range map[error]string{
		fmt.Errorf("write: %w", context.Canceled):                                "interrupted: what has been applied stays; apply again to continue",
		fmt.Errorf("lock: %w; %w", context.Canceled, manifest.ErrNotBegun):       "interrupted; nothing was changed",
		&manifest.FailedError{Failed: 1, Total: 2}:                               "1 of 2 changes failed",
		&manifest.StoppedError{Err: context.Canceled, Restore: weir.ErrConflict}: "stopped at 0%: interrupted; not all changes were rolled back: ",
	} {
		run := &kit.Run{In: strings.NewReader(""), Out: term.New(new(strings.Builder), nil), Output: "json"}
		plans := []*manifest.Plan{{Namespace: "a", Manifest: "default"}}
		got := applyPlans(ctx, run, cut{err: err}, plans, &applyFlags{}, &stageFlags{}, 0)
		if got == nil || !strings.HasPrefix(got.Error(), "apply to namespace a: "+want) || errors.Is(got, context.Canceled) {
			t.Errorf("%v: %v, want %s", err, got, want)
		}
	}
}
