package manifest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/gates"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// gate is a gate whose answers the test sets.
type gate struct {
	begun int
	check func(last bool) error
	open  func(percent int) bool
}

func (g *gate) Open(_ context.Context, percent int) (bool, error) {
	return g.open == nil || g.open(percent), nil
}

func (g *gate) Begin(context.Context, int) error {
	g.begun++
	return nil
}

func (g *gate) Check(_ context.Context, last bool) (bool, error) {
	if g.check == nil {
		return true, nil
	}
	err := g.check(last)
	if errors.Is(err, errWait) {
		return false, nil
	}
	return true, err
}

// rolled rolls out a manifest inside a bubble, on top of one that was applied before.
type rolled struct {
	*weir.Limiter

	store  *faultyManifests
	t      *testing.T
	gate   gate
	stages []int           // nil for those of the rollout that goes on
	used   manifest.Terms  // for the last rollout
	ctx    context.Context //nolint:containedctx // of the rollout
}

func bubble(t *testing.T, f func(t *testing.T, r *rolled)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &faultyManifests{Store: memory.New(nil)}
		lim, err := weir.New(weir.Config{Store: st, CacheTTL: -1})
		must(t, err)
		f(t, &rolled{Limiter: lim, store: st, t: t, stages: []int{5, 50}, ctx: t.Context()})
		must(t, lim.Close())
	})
}

const former = `
namespace: default
system:
  limits:
    rpm: {capacity: 1000}
resources:
  api:
    limits:
      rpm: {capacity: 100}
      gone: {capacity: 7}
`

const tighter = `
namespace: default
system:
  limits:
    rpm: {capacity: 2000}
resources:
  api:
    limits:
      rpm: {capacity: 50}
      tpm: {capacity: 10}
`

// terms returns the terms to roll out by.
func (r *rolled) terms() *manifest.Terms {
	if r.stages == nil {
		return nil
	}
	return &manifest.Terms{Stages: r.stages, Bake: time.Minute, AbortOn: "refusal_rate>0.5"}
}

func (r *rolled) rollout(text string) (manifest.Result, error) {
	r.t.Helper()
	return manifest.Rollout(r.ctx, r.Limiter, plan(r.t, r.Limiter, decodeOne(r.t, text)), manifest.RolloutOptions{
		Terms: r.terms(), Gate: func(_ context.Context, used manifest.Terms) (gates.Gate, error) {
			r.used = used
			return &r.gate, nil
		},
	})
}

// limits returns for how many of 200 entities "rpm" is the new limit, for how many "tpm" is enforced, and the names of the
// first entity's limits.
func (r *rolled) limits() (rpm, tpm int, names []string) {
	r.t.Helper()
	for i := range 200 {
		lease, err := r.Acquire(r.t.Context(), weir.Request{Entity: fmt.Sprint("e", i), Resource: "api", Tokens: weir.Tokens{}})
		must(r.t, err)
		for _, s := range lease.Decision().Statuses {
			switch {
			case s.Limit == "rpm" && s.Shadow:
				r.t.Errorf("e%d: rpm refuses nobody", i)
			case s.Limit == "rpm" && s.Burst == 50:
				rpm++
			case s.Limit == "rpm" && s.Burst != 100:
				r.t.Errorf("e%d: rpm has a burst of %d", i, s.Burst)
			case s.Limit == "tpm" && !s.Shadow:
				tpm++
			}
			if i == 0 {
				names = append(names, s.Limit)
			}
		}
	}
	slices.Sort(names)
	return rpm, tpm, names
}

// A tightened limit applies to more and more entities, and no entity is ever without a limit. Loosened and removed limits
// wait for the end.
func TestRollout(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		apply(t, r.Limiter, decodeOne(t, former))
		var seen []int
		r.gate.check = func(last bool) error {
			if last {
				rpm, tpm, names := r.limits()
				seen = append(seen, rpm)
				if rpm == 0 || tpm == 0 || !slices.Equal(names, []string{"gone", "rpm", "tpm"}) {
					t.Errorf("%d new, %d of the new limit, limits %v", rpm, tpm, names)
				}
				system, err := admin.New(r.Limiter).Limits.Get(t.Context(), admin.Scope{})
				if err != nil || system.Limits[0].Amount != 1000 {
					t.Errorf("%v, %v", system, err)
				}
			}
			return nil
		}
		began := time.Now()
		res, err := r.rollout(tighter)
		must(t, err)
		if took := time.Since(began); took < 2*time.Minute || took > 3*time.Minute {
			t.Errorf("took %s", took)
		}
		if len(seen) != 2 || seen[0] > 25 || seen[1] < 75 || seen[1] > 125 {
			t.Errorf("of 200 entities %v", seen)
		}
		if rpm, tpm, names := r.limits(); rpm != 200 || tpm != 200 || !slices.Equal(names, []string{"rpm", "tpm"}) {
			t.Errorf("%d, %d, %v", rpm, tpm, names)
		}
		if res.Revision != 2 || !plan(t, r.Limiter, decodeOne(t, tighter)).Empty() || r.gate.begun != 2 {
			t.Errorf("%+v, %d stages", res, r.gate.begun)
		}
	})
}

var errWait = errors.New("nothing was decided")

var errTooMany = errors.New("too many are refused")

// If a gate closes at either stage, or the rollout is interrupted, everything is as before, and the rollout can start
// again.
func TestRolloutStopped(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]int{"first stage": 1, "second stage": 2} {
		for _, interrupt := range []bool{false, true} {
			t.Run(fmt.Sprint(name, interrupt), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T, r *rolled) {
					apply(t, r.Limiter, decodeOne(t, former))
					ctx, stop := context.WithCancel(t.Context())
					r.ctx = ctx
					r.gate.check = func(bool) error {
						if r.gate.begun < at {
							return nil
						}
						if stop(); interrupt {
							return nil
						}
						return errTooMany
					}
					want := errTooMany
					if interrupt {
						want = context.Canceled
					}
					_, err := r.rollout(tighter)
					if stopped, ok := errors.AsType[*manifest.StoppedError](err); !ok || !errors.Is(err, want) || stopped.Restore != nil || stopped.Percent != []int{0, 5, 50}[at] {
						t.Fatalf("error %v", err)
					}
					if p := plan(t, r.Limiter, decodeOne(t, former)); !p.Empty() {
						t.Errorf("not as before: %+v", p.Changes)
					}
					if rpm, _, names := r.limits(); rpm != 0 || !slices.Equal(names, []string{"gone", "rpm"}) {
						t.Errorf("%d, %v", rpm, names)
					}
					r.gate.check, r.ctx = nil, t.Context()
					_, err = r.rollout(tighter)
					must(t, err)
				})
			})
		}
	}
}

// If the process dies, the stage stays as it is. The same rollout can continue or go back to the state before it began;
// another rollout is refused.
func TestRolloutGoesOn(t *testing.T) {
	t.Parallel()
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprint(back), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rolled) {
				apply(t, r.Limiter, decodeOne(t, former))
				died := make(chan bool)
				go func() {
					defer close(died)
					r.gate.check = func(bool) error {
						if r.gate.begun == 2 {
							panic("killed")
						}
						return nil
					}
					defer func() { _ = recover() }()
					_, _ = r.rollout(tighter)
				}()
				<-died
				time.Sleep(time.Minute) // until the lock expires
				if rpm, _, _ := r.limits(); rpm < 75 {
					t.Errorf("%d: the stage did not stay", rpm)
				}
				r.gate = gate{}
				var other *manifest.UnfinishedError
				if _, err := r.rollout(former); !errors.As(err, &other) || other.Percent != 50 {
					t.Errorf("error %v", err)
				}
				p := plan(t, r.Limiter, decodeOne(t, tighter))
				if o := p.Rollout; o == nil || !o.Same || o.Percent != 50 || o.Terms.AbortOn != "refusal_rate>0.5" {
					t.Errorf("planned: %+v", o)
				}
				if o := plan(t, r.Limiter, decodeOne(t, former)).Rollout; o == nil || o.Same {
					t.Errorf("another version: %+v", o)
				}
				if _, err := manifest.Apply(t.Context(), r.Limiter, p, manifest.ApplyOptions{}); !errors.As(err, &other) || !other.Same {
					t.Errorf("applied at once: %v", err)
				}
				if !back {
					r.stages = nil // by those that are stored
					_, err := r.rollout(tighter)
					must(t, err)
					if used := r.used; !slices.Equal(used.Stages, []int{5, 50}) || used.Bake != time.Minute || used.AbortOn != "refusal_rate>0.5" {
						t.Errorf("continued by %+v", used)
					}
					if rpm, _, _ := r.limits(); rpm != 200 || r.gate.begun != 1 {
						t.Errorf("%d, %d stages", rpm, r.gate.begun)
					}
					return
				}
				r.gate.check = func(bool) error { return errTooMany }
				if _, err := r.rollout(tighter); !errors.Is(err, errTooMany) {
					t.Errorf("error %v", err)
				}
				if p := plan(t, r.Limiter, decodeOne(t, former)); !p.Empty() {
					t.Errorf("not as before: %+v", p.Changes)
				}
			})
		})
	}
}

// kill begins a rollout and ends it at its first check as a crash would: its lock remains.
func (r *rolled) kill() {
	died := make(chan bool)
	go func() {
		defer close(died)
		r.gate.check = func(bool) error { panic("killed") }
		defer func() { _ = recover() }()
		_, _ = r.rollout(tighter)
	}()
	<-died
}

// An export of what a killed rollout left declares it: applying it leaves each entity the limit that it has.
func TestExportInRollout(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		apply(t, r.Limiter, decodeOne(t, former))
		r.kill()
		time.Sleep(time.Minute) // until the lock expires
		before, _, _ := r.limits()
		m, _, err := manifest.Export(t.Context(), r.Limiter, manifest.DefaultName)
		must(t, err)
		read := decodeOne(t, string(m.Text()))
		if p := plan(t, r.Limiter, read); !p.Empty() {
			t.Errorf("%s\n%+v", m.Text(), p.Changes)
		}
		apply(t, r.Limiter, read)
		if rpm, _, _ := r.limits(); rpm != before || rpm == 0 { // and none is in shadow
			t.Errorf("%d of 200 entities, before %d", rpm, before)
		}
	})
}

// A stage whose gate has nothing to judge by does not end.
func TestRolloutWaitsForRequests(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		apply(t, r.Limiter, decodeOne(t, former))
		began := time.Now()
		r.gate.check = func(bool) error {
			if time.Since(began) < time.Hour {
				return errWait
			}
			return nil
		}
		_, err := r.rollout(tighter)
		must(t, err)
		if took := time.Since(began); took < time.Hour || took > time.Hour+5*time.Minute {
			t.Errorf("took %s", took)
		}
	})
}

// No stage begins before the gate lets it, not even the last. Until then, the stage before stays in force and is watched.
func TestRolloutWaits(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		apply(t, r.Limiter, decodeOne(t, former))
		began := time.Now()
		var checks atomic.Int64
		r.gate.open = func(percent int) bool { // each an hour after the one before
			return time.Since(began).Hours() >= map[int]float64{5: 1, 50: 2, 100: 3}[percent]
		}
		r.gate.check = func(bool) error {
			checks.Add(1)
			return nil
		}
		ended := make(chan error)
		go func() {
			_, err := r.rollout(tighter)
			ended <- err
		}()
		for hour, want := range []int{0, 10, 100} {
			time.Sleep(time.Until(began.Add(time.Duration(hour)*time.Hour + 59*time.Minute)))
			if rpm, _, _ := r.limits(); rpm > 2*want || rpm < want/2 {
				t.Errorf("hour %d: %d of 200 entities", hour, rpm)
			}
			if n, most := checks.Load(), int64(hour*12*60); n > most+5 || n < most-30 {
				t.Errorf("hour %d: looked %d times", hour, n)
			}
		}
		must(t, <-ended)
		if rpm, _, _ := r.limits(); rpm != 200 {
			t.Errorf("%d entities at the end", rpm)
		}
	})
	bubble(t, func(t *testing.T, r *rolled) { // a rollout that waits for its gate can still be rolled back
		apply(t, r.Limiter, decodeOne(t, former))
		r.gate.open = func(percent int) bool { return percent < 50 }
		r.gate.check = func(bool) error {
			if time.Now().UTC().Minute() > 10 {
				return errTooMany
			}
			return nil
		}
		_, err := r.rollout(tighter)
		var stopped *manifest.StoppedError
		if !errors.As(err, &stopped) || !errors.Is(err, errTooMany) || stopped.Restore != nil || stopped.Percent != 5 {
			t.Fatalf("error %v", err)
		}
		if p := plan(t, r.Limiter, decodeOne(t, former)); !p.Empty() {
			t.Errorf("not as before: %+v", p.Changes)
		}
	})
}

// After a crash, the stage in force is watched while the next one, from a different list of stages, waits for its gate.
func TestRolloutWaitsAfterDeath(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		apply(t, r.Limiter, decodeOne(t, former))
		r.kill()
		time.Sleep(time.Minute) // until the lock expires
		r.stages = []int{75}
		r.gate = gate{open: func(int) bool { return false }, check: func(bool) error { return errTooMany }}
		if _, err := r.rollout(tighter); !errors.Is(err, errTooMany) || r.gate.begun != 1 {
			t.Errorf("error %v, %d stages", err, r.gate.begun)
		}
		if p := plan(t, r.Limiter, decodeOne(t, former)); !p.Empty() {
			t.Errorf("not as before: %+v", p.Changes)
		}
	})
}

// Records that others change during a rollout are left to them.
func TestRolloutLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		apply(t, r.Limiter, decodeOne(t, former))
		r.gate.check = func(bool) error {
			must(t, admin.New(r.Limiter).Limits.Set(t.Context(), admin.Scope{Resource: "api"}, weir.PerMinute("rpm", 3)))
			return errTooMany
		}
		_, err := r.rollout(tighter)
		var stopped *manifest.StoppedError
		if !errors.As(err, &stopped) || !errors.Is(stopped.Restore, weir.ErrConflict) {
			t.Errorf("error %v", err)
		}
		ls, err := admin.New(r.Limiter).Limits.Get(t.Context(), admin.Scope{Resource: "api"})
		if err != nil || len(ls.Limits) != 1 || ls.Limits[0].Amount != 3 {
			t.Errorf("%v, %v", ls, err)
		}
	})
}

// faultyManifests is a store that refuses writes of manifests once dead is set, or loses the answer to the next one.
type faultyManifests struct {
	*memory.Store

	dead, loses bool
}

func (f *faultyManifests) Commit(ctx context.Context, writes ...store.Write) error {
	ours := slices.ContainsFunc(writes, func(w store.Write) bool { return w.Record.Key.Kind == store.KindManifest })
	if ours && f.dead {
		return errTooMany
	}
	err := f.Store.Commit(ctx, writes...)
	if ours && f.loses {
		f.loses = false
		return errTooMany
	}
	return err
}

// A process that dies after the last stage, when all records are final and only the revision is missing, leaves a rollout
// that can be continued.
func TestRolloutGoesOnAtTheEnd(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		apply(t, r.Limiter, decodeOne(t, former))
		r.gate.check = func(last bool) error {
			r.store.dead = last && r.gate.begun == 2
			return nil
		}
		if _, err := r.rollout(tighter); !errors.Is(err, errTooMany) {
			t.Fatalf("error %v", err)
		}
		r.store.dead = false
		if p := plan(t, r.Limiter, decodeOne(t, tighter)); !p.Empty() {
			t.Fatalf("died too early: %+v", p.Changes)
		}
		time.Sleep(time.Minute) // until the lock expires
		r.gate = gate{}
		res, err := r.rollout(tighter)
		must(t, err)
		if rpm, _, _ := r.limits(); rpm != 200 || res.Revision != 2 {
			t.Errorf("%d entities, revision %d", rpm, res.Revision)
		}
	})
}
