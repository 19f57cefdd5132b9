package manifest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/manifest"
)

// A rollout is made step by step, each by another process that ends: stages stay in force, any process continues, and the
// end, or a rollback, is that of a rollout in one go.
func TestSteps(t *testing.T) {
	t.Parallel()
	step := func(r *rolled, text string, s manifest.Step) (manifest.Result, int, error) {
		r.t.Helper()
		s.Terms = manifest.Terms{Stages: []int{10, 60}, Bake: time.Minute, AbortOn: "refusal_rate>0.5"}
		staged := 0
		res, err := manifest.Rollout(r.ctx, r.Limiter, plan(r.t, r.Limiter, decodeOne(r.t, text)), manifest.RolloutOptions{
			Step: &s, Staging: func(_ manifest.Terms, _, records int) { staged = records },
		})
		return res, staged, err
	}
	bubble(t, func(_ *testing.T, r *rolled) {
		apply(r.t, r.Limiter, decodeOne(r.t, former))
		// Nothing is begun: a step of another's rollout is refused.
		if _, _, err := step(r, tighter, manifest.Step{Percent: 60, Begun: true}); !errors.Is(err, weir.ErrConflict) {
			r.t.Errorf("not begun: %v", err)
		}
		for _, percent := range []int{10, 60, 60} {
			if _, staged, err := step(r, tighter, manifest.Step{Percent: percent, Begun: percent > 10}); err != nil || staged == 0 {
				r.t.Fatal(staged, err)
			}
			rpm, _, _ := r.limits()
			if rpm < 2*percent-30 || rpm > 2*percent+30 {
				r.t.Errorf("at %d%%: %d of 200", percent, rpm)
			}
			if p := plan(r.t, r.Limiter, decodeOne(r.t, tighter)); p.Rollout == nil || !p.Rollout.Same || p.Rollout.Percent != percent ||
				p.Rollout.Terms.AbortOn == "" {
				r.t.Errorf("at %d%%: %+v", percent, p.Rollout)
			}
		}
		var stopped *manifest.StoppedError
		_, _, err := step(r, tighter, manifest.Step{Percent: 60, Begun: true, Abort: "too many"})
		if !errors.As(err, &stopped) || stopped.Restore != nil || stopped.Percent != 60 || stopped.Err.Error() != "too many" {
			r.t.Errorf("aborted: %v", err)
		}
		if rpm, tpm, _ := r.limits(); rpm != 0 || tpm != 0 {
			r.t.Errorf("restored: %d %d", rpm, tpm)
		}
		if p := plan(r.t, r.Limiter, decodeOne(r.t, tighter)); p.Rollout != nil || p.Last.Revision != 1 {
			r.t.Errorf("after the rollback: %+v", p.Rollout)
		}
		for _, percent := range []int{10, 100} {
			res, _, err := step(r, tighter, manifest.Step{Percent: percent, Begun: percent > 10})
			if err != nil || percent == 100 && res.Revision != 2 {
				r.t.Error(res, err)
			}
		}
		if p := plan(r.t, r.Limiter, decodeOne(r.t, tighter)); !p.Empty() || p.Rollout != nil {
			r.t.Errorf("at the end: %+v", p.Changes)
		}
	})
}

// A rollout of a manifest that is in force, and that means the same as the last revision, adds no revision.
func TestRolloutOfNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		apply(t, r.Limiter, decodeOne(t, former))
		res, err := r.rollout(former)
		if p := plan(t, r.Limiter, decodeOne(t, former)); err != nil || res.Revision != 1 || p.Last.Revision != 1 || p.Rollout != nil {
			t.Errorf("revision %d, then %d: %v", res.Revision, p.Last.Revision, err)
		}
		apply(t, r.Limiter, decodeOne(t, tighter)) // the lock is free
	})
}
