package weirtest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store/memory"
)

// Limiter is a limiter under a test's control; its field Limiter goes to the code that is tested. Whatever can fail ends
// the test, so that its methods are for the test's own goroutine, except that Advance, Now, Fail and Slow may be called
// from any.
type Limiter struct {
	*weir.Limiter

	t      testing.TB
	clock  *clock
	faults *faults
}

// New returns a limiter of the default namespace, with limits for all entities on all resources; without any, SetLimits
// sets them. Its clock stands at midnight of January 1, 2026, UTC, until Advance turns it: tests that go by it never
// depend on how fast they are. (Who asks for usage says From and To, whose defaults go by today.) It is closed when the
// test ends. A test that goes on in a bubble of testing/synctest makes it there.
func New(t testing.TB, limits ...weir.Limit) *Limiter {
	t.Helper()
	l := &Limiter{t: t, clock: newClock()}
	st := memory.New(&memory.Config{Now: l.clock.now})
	l.faults = &faults{Store: st, ledger: st}
	lim, err := weir.New(weir.Config{Store: l.faults, Cooldown: -1}) // faults show at once, and end at once
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

// SetLimits sets the limits of an entity on a resource; with an empty entity those of all entities on the resource, with
// an empty resource those of the entity on all resources, with both empty those of all on all. It works while the store
// fails. See [weir.Limiter.SetLimits], which it hides.
func (l *Limiter) SetLimits(entity, resource string, limits ...weir.Limit) {
	l.t.Helper()
	if err := l.Limiter.SetLimits(spared(l.t.Context()), weir.Scope{Entity: entity, Resource: resource}, limits...); err != nil {
		l.t.Fatalf("weirtest: set limits: %v", err)
	}
}

// Spent returns how many tokens of a limit an entity has spent on a resource in all, less what was given back; time
// does not change it. It is 0 before the first request. It works while the store fails. A limit that the bucket does not
// have ends the test.
func (l *Limiter) Spent(entity, resource, limit string) int64 {
	l.t.Helper()
	b, err := l.Bucket(spared(l.t.Context()), entity, resource)
	switch {
	case errors.Is(err, weir.ErrNotFound):
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

// Now returns what the limiter's clock shows.
func (l *Limiter) Now() time.Time { return l.clock.now() }

// Advance turns the limiter's clock on by d, which must not be negative: time has passed, and tokens were issued. It wakes
// nobody who waits: see RunClock.
func (l *Limiter) Advance(d time.Duration) {
	l.t.Helper()
	if d < 0 {
		l.t.Errorf("weirtest: advance: time does not run backwards: %s", d)
		return
	}
	l.clock.advance(d)
}

// RunClock lets the limiter's clock run on with time.Now from what it shows. It is for tests in a bubble of
// testing/synctest, where sleeping then turns it, and [weir.Limiter.Wait] waits in no time. Outside, a test would depend
// on how fast it is.
func (l *Limiter) RunClock() { l.clock.run() }

// Fail makes every call of the store fail with err from now on; nil makes it answer again. Requests then come to what
// on_unavailable says: [weir.ErrUnavailable], unless SetOnUnavailable, before the store fails, or the request itself chose
// to admit.
func (l *Limiter) Fail(err error) { l.faults.fail(err) }

// Slow makes every call of the store take d from now on, or until its context ends: the limiter gives up after
// a second. 0 makes it answer at once again. The time is that of time.Now, which a bubble of testing/synctest spares.
func (l *Limiter) Slow(d time.Duration) { l.faults.slow(d) }

// spared returns a context whose calls of the store do not fail.
func spared(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), sparedKey{}, true)
}
