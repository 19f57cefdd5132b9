package manifest

import (
	"context"
	"time"
)

// Gate watches a rollout.
type Gate interface {
	// Open reports whether the rollout may proceed to percent of the entities now or, at 100, to all of them with the
	// rest of the plan. It is polled until it may, while the previous stage stays in force. An error rolls back.
	Open(ctx context.Context, percent int) (bool, error)
	// Begin is called when a stage has begun.
	Begin(ctx context.Context, percent int) error
	// Check is polled while a stage is in force, with last set once the stage was watched long enough. It reports
	// whether the stage may then end; until it may, it is watched further. An error rolls back.
	Check(ctx context.Context, last bool) (bool, error)
}

// watchEvery is how often a gate is polled, and the lock extended, while a stage is watched.
const watchEvery = lockTTL / 6

// watched reports to the gate which stage is in force.
func (r *rollout) watched(ctx context.Context) error {
	r.begun = true
	return r.gate.Begin(ctx, r.state.Percent)
}

// bake watches a stage.
func (r *rollout) bake(ctx context.Context) error {
	if err := r.watched(ctx); err != nil {
		return err
	}
	for until := time.Now().Add(r.state.Terms.Bake); ; {
		left := time.Until(until)
		if left <= 0 {
			left = watchEvery
		}
		if err := r.pause(ctx, min(left, watchEvery)); err != nil {
			return err
		}
		last := !time.Now().Before(until)
		if passed, err := r.gate.Check(ctx, last); err != nil || last && passed {
			return err
		}
	}
}

// pause sleeps and extends the lock.
func (r *rollout) pause(ctx context.Context, d time.Duration) error {
	if err := sleep(ctx, d); err != nil {
		return err
	}
	return r.lock.Extend(ctx)
}

// wait waits until the gate lets the next stage begin.
func (r *rollout) wait(ctx context.Context, percent int) error {
	for {
		open, err := r.gate.Open(ctx, percent)
		if err != nil || open {
			return err
		}
		if err = r.pause(ctx, watchEvery); err == nil && r.begun {
			_, err = r.gate.Check(ctx, false)
		}
		if err != nil {
			return err
		}
	}
}
