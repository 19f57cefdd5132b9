package manifest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/manifest"
)

const tightest = `
namespace: default
resources:
  api:
    limits:
      rpm: {capacity: 40}
`

// A rollout that was stopped for longer than its lock lasts rolls back nothing that others have applied since.
func TestRolloutThatLostItsLock(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		apply(t, r.Limiter, decodeOne(t, former))
		r.gate.check = func(bool) error {
			time.Sleep(time.Minute) // until the lock expires
			apply(t, r.Limiter, decodeOne(t, tightest))
			return errTooMany
		}
		_, err := r.rollout(tighter)
		if !errors.Is(err, errTooMany) || !errors.Is(err, weir.ErrConflict) {
			t.Errorf("error %v", err)
		}
		if p := plan(t, r.Limiter, decodeOne(t, tightest)); !p.Empty() {
			t.Errorf("what was applied is no longer in force: %s", changes(p))
		}
	})
}

// A rollout holds its lock also after a lost answer, so that it is rolled back.
func TestRolloutHoldsItsLock(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		apply(t, r.Limiter, decodeOne(t, former))
		r.gate.check = func(bool) error {
			r.store.loses = r.gate.begun == 2
			return nil
		}
		_, err := r.rollout(tighter)
		var stopped *manifest.StoppedError
		if !errors.As(err, &stopped) || !errors.Is(err, errTooMany) || stopped.Restore != nil {
			t.Errorf("error %v", err)
		}
		if p := plan(t, r.Limiter, decodeOne(t, former)); !p.Empty() || p.Rollout != nil {
			t.Errorf("not as before: %s, %+v", changes(p), p.Rollout)
		}
	})
}

// An apply of another version ends a rollout, also if nothing has to be changed for it.
func TestApplyOfNothingEndsRollout(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		apply(t, r.Limiter, decodeOne(t, former))
		died := make(chan bool)
		go func() {
			defer close(died)
			defer func() { _ = recover() }()
			r.gate.open = func(int) bool { panic("killed") }
			_, _ = r.rollout(tighter)
		}()
		<-died
		time.Sleep(time.Minute) // until the lock expires
		if p := plan(t, r.Limiter, decodeOne(t, former)); p.Rollout == nil || !p.Empty() {
			t.Fatalf("%+v, %s", p.Rollout, changes(p))
		}
		apply(t, r.Limiter, decodeOne(t, former))
		if p := plan(t, r.Limiter, decodeOne(t, former)); p.Rollout != nil {
			t.Errorf("not ended: %+v", p.Rollout)
		}
	})
}
