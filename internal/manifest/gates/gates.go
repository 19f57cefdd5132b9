// Package gates decides how far a rollout may go.
package gates

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

// Every is how often a gate is polled.
const Every = 5 * time.Second

// Bake watches a stage that is in force, for at least some time.
func Bake(ctx context.Context, g Gate, percent int, least time.Duration, pause Pause) error {
	if err := g.Begin(ctx, percent); err != nil {
		return err
	}
	for until := time.Now().Add(least); ; {
		left := time.Until(until)
		if left <= 0 {
			left = Every
		}
		if err := pause(ctx, min(left, Every)); err != nil {
			return err
		}
		last := !time.Now().Before(until)
		if passed, err := g.Check(ctx, last); err != nil || last && passed {
			return err
		}
	}
}

// Await waits until the gate lets a stage begin. begun reports that one is in force and being watched.
func Await(ctx context.Context, g Gate, percent int, begun bool, pause Pause) error {
	for {
		open, err := g.Open(ctx, percent)
		if err != nil || open {
			return err
		}
		if err = pause(ctx, Every); err == nil && begun {
			_, err = g.Check(ctx, false)
		}
		if err != nil {
			return err
		}
	}
}

// Pause waits between two looks at a gate.
type Pause func(context.Context, time.Duration) error

// Sleep is a [Pause].
func Sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
	return ctx.Err()
}
