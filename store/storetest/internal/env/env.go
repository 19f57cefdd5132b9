// Package env is what the suites share: the harness that they run on, and an open store with helpers to call it and to
// check its answers. Suites import it with a dot, so that a scenario reads as the calls that it makes.
package env

import (
	"context"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
)

// Token is one token in the store interface's unit, millitokens.
const Token = 1000

// Noon is the default start time of a test, deliberately not a round number in any unit.
var Noon = time.Date(2026, time.March, 1, 12, 34, 56, 789_012_345, time.UTC)

// TB is what an env needs of a test. Both *testing.T and *rapid.T implement it.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Context() context.Context
}

// Env is an open store and its clock, with helpers for tests.
type Env struct {
	TB

	Outer   testing.TB // for files and clean-up
	Harness Harness
	Clock   *Clock
	Store   store.Store
}

// Open opens a fresh store at a given time. Failures go to t; outer closes the store.
func Open(t TB, outer testing.TB, h Harness, at time.Time) *Env {
	outer.Helper()
	clock := NewClock(at)
	s := h.Open(outer, clock)
	outer.Cleanup(func() {
		if err := s.Close(); err != nil {
			outer.Errorf("close: %v", err)
		}
	})
	return &Env{TB: t, Outer: outer, Harness: h, Clock: clock, Store: s}
}

// Peer returns another client of the same data.
func (e *Env) Peer() *Env {
	e.Helper()
	s := e.Harness.Peer(e.Outer, e.Store, e.Clock)
	e.Outer.Cleanup(func() {
		if err := s.Close(); err != nil {
			e.Outer.Errorf("close peer: %v", err)
		}
	})
	p := *e
	p.Store = s
	return &p
}

// Quiesce waits for the background work of the store.
func (e *Env) Quiesce() {
	e.Helper()
	if e.Harness.Quiesce != nil {
		e.Harness.Quiesce(e.Outer, e.Store)
	}
}

// Brief reports whether to repeat less: over a network, and with go test -short.
func (h Harness) Brief() bool { return h.Caps.Remote || testing.Short() }

// Some returns how often to repeat: n times, or a tenth of that in brief.
func (e *Env) Some(n int) int {
	if e.Harness.Brief() {
		return max(1, n/10)
	}
	return n
}

// Each runs f in n goroutines at once and waits. f must not call anything that ends the test, such as Fatalf.
func (e *Env) Each(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// Property is rapid.Check with fewer runs in brief.
func Property(t testing.TB, h Harness, prop func(rt *rapid.T)) {
	t.Helper()
	done, failed := 0, false
	rapid.Check(t, func(rt *rapid.T) {
		if h.Brief() && done >= 10 && !failed {
			return
		}
		defer func() {
			if p := recover(); p != nil { // rapid fails a property by panicking
				failed = true
				panic(p)
			}
		}()
		prop(rt)
		done++
	})
}
