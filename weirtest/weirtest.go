package weirtest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// Limiter is a limiter under a test's control. Pass its field Limiter to the code under test. Its methods end the test
// if something fails, so call them from the test's own goroutine, except Advance, Now, Fail and Slow, which may be
// called from any goroutine.
type Limiter struct {
	*weir.Limiter

	t      testing.TB
	clock  *clock
	faults *faults
}

// New returns a limiter of the default namespace, with limits for all entities on all resources; without any, use
// SetLimits. Its clock stands at midnight of January 1, 2026, UTC, until Advance moves it, so tests that use it never
// depend on how fast they run. (Queries for usage must set From and To, whose defaults depend on today's date.) The
// limiter is closed when the test ends. If the test uses a testing/synctest bubble, call New inside it.
func New(t testing.TB, limits ...weir.Limit) *Limiter {
	t.Helper()
	l := &Limiter{t: t, clock: newClock()}
	st := memory.New(&memory.Config{Now: l.clock.now})
	l.faults = &faults{Store: st, ledger: st}
	lim, err := weir.New(weir.Config{Store: l.faults, Cooldown: -1}) // faults take effect and end at once
	if err != nil {
		t.Fatalf("weirtest: %v", err)
	}
	l.Limiter = lim
	t.Cleanup(func() {
		if err := lim.Close(); err != nil {
			t.Errorf("weirtest: close: %v", err)
		}
	})
	if len(limits) > 0 {
		l.SetLimits("", "", limits...)
	}
	return l
}

// SetLimits sets the limits of an entity on a resource. With an empty entity, it sets those of all entities on the
// resource; with an empty resource, those of the entity on all resources; with both empty, those of all entities on all
// resources. It works while the store fails.
func (l *Limiter) SetLimits(entity, resource string, limits ...weir.Limit) {
	l.t.Helper()
	if err := admin.New(l.Limiter).Limits.Set(
		spared(l.t.Context()), admin.Scope{Entity: entity, Resource: resource}, limits...,
	); err != nil {
		l.t.Fatalf("weirtest: set limits: %v", err)
	}
}

// Spent returns how many tokens of a limit an entity has spent on a resource in total, less those given back. It does
// not change with time, and is 0 before the first request. It works while the store fails. If the bucket does not have
// the limit, Spent ends the test.
func (l *Limiter) Spent(entity, resource, limit string) int64 {
	l.t.Helper()
	b, err := admin.New(l.Limiter).Buckets.Get(spared(l.t.Context()), entity, resource)
	switch {
	case errors.Is(err, weir.ErrNotFound), err == nil && b.ID == 0:
		return 0
	case err != nil:
		l.t.Fatalf("weirtest: spent: %v", err)
	}
	var spent int64
	var names []string
	for i := range b.Limits {
		name := b.Limits[i].Limit.Name
		names = append(names, name)
		if name == limit {
			spent += b.Limits[i].Debited - b.Limits[i].Returned
		}
	}
	if !slices.Contains(names, limit) {
		l.t.Fatalf("weirtest: spent: %s has no limit %q on %s, it has %q", entity, limit, resource, names)
	}
	return spent
}

// Now returns the time on the limiter's clock.
func (l *Limiter) Now() time.Time { return l.clock.now() }

// Advance moves the limiter's clock forward by d, which must not be negative: time has passed, and tokens were issued.
// It does not wake waiters: see RunClock.
func (l *Limiter) Advance(d time.Duration) {
	l.t.Helper()
	if d < 0 {
		l.t.Errorf("weirtest: advance: time does not run backwards: %s", d)
		return
	}
	l.clock.advance(d)
}

// RunClock makes the limiter's clock run with time.Now, from the time that it shows. It is for tests in a
// testing/synctest bubble, where sleeping then advances it, and [weir.Limiter.Wait] takes no real time. Outside a
// bubble, a test would depend on how fast it runs.
func (l *Limiter) RunClock() { l.clock.run() }

// Fail makes every call to the store fail with err from now on; nil makes the store answer again. Requests are then
// decided by on_unavailable: they fail with [weir.ErrUnavailable], unless admin.Limits.SetOnUnavailable chose to admit
// before the store failed.
func (l *Limiter) Fail(err error) { l.faults.fail(err) }

// Slow makes every call to the store take d from now on, or until its context ends: the limiter gives up after a
// second. 0 makes the store answer at once again. The delay is measured by time.Now, so it takes no real time in a
// testing/synctest bubble.
func (l *Limiter) Slow(d time.Duration) { l.faults.slow(d) }

// spared returns a context whose calls to the store do not fail.
func spared(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), sparedKey{}, true)
}
