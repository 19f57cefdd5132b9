// Package interleave runs small protocols through every interleaving of their steps.
package interleave

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Script is one thread of control over a subject. At each yield, other scripts may run before it continues. It must not
// yield while it holds a lock that others wait for.
type Script[S any] func(subject S, yield func())

// Steps returns the script that runs steps one after another, yielding between any two.
func Steps[S any](steps ...func(subject S)) Script[S] {
	return func(subject S, yield func()) {
		for i, step := range steps {
			if i > 0 {
				yield()
			}
			step(subject)
		}
	}
}

// maxRuns is the largest number of interleavings explored.
const maxRuns = 20_000

// Explore runs scripts through every interleaving at their yields, up to 20,000, each over a fresh subject, and checks
// the subject when all scripts have ended. Only one script runs at a time, so an interleaving is reproducible, and the
// order that failed is reported.
//
// A subject may yield on behalf of the running script: the function passed to fresh may be called from any goroutine,
// by one at a time. So a fake engine that yields at each call is explored call by call.
func Explore[S any](t testing.TB, fresh func(yield func()) S, scripts []Script[S], check func(S) error) {
	t.Helper()
	runs, err := explore(fresh, scripts, check)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d interleavings", runs)
}

func explore[S any](fresh func(yield func()) S, scripts []Script[S], check func(S) error) (runs int, err error) {
	var path []choice
	for runs < maxRuns {
		path, err = interleave(path, fresh, scripts, check)
		runs++
		if err != nil {
			return runs, fmt.Errorf("interleaving %d, scripts in the order %s: %w", runs, order(path), err)
		}
		for len(path) > 0 && path[len(path)-1].taken+1 == len(path[len(path)-1].ready) {
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			break
		}
		path[len(path)-1].taken++
	}
	return runs, nil
}

// choice is the set of scripts that could continue, and which of them did.
type choice struct {
	ready []int
	taken int
}

func order(path []choice) string {
	var b strings.Builder
	for _, c := range path {
		fmt.Fprint(&b, c.ready[c.taken], " ")
	}
	return strings.TrimSpace(b.String())
}

// thread is a running script.
type thread struct {
	proceed chan struct{}
	done    bool
}

// interleave runs the scripts once: in the order of path, and after its end always the first ready script. It returns
// the whole path.
func interleave[S any](
	path []choice, fresh func(func()) S, scripts []Script[S], check func(S) error,
) ([]choice, error) {
	threads := make([]*thread, len(scripts))
	paused := make(chan any) // nil, or what the script panicked with
	var running *thread
	yield := func() {
		me := running
		if me == nil {
			return // while the subject is created or checked
		}
		paused <- nil
		<-me.proceed
	}
	subject := fresh(yield)
	for i, script := range scripts {
		th := &thread{proceed: make(chan struct{})}
		threads[i] = th
		go func() {
			<-th.proceed
			defer func() {
				th.done = true
				paused <- recover()
			}()
			script(subject, yield)
		}()
	}
	var failure any
	for n := 0; ; n++ {
		var ready []int
		for i, th := range threads {
			if !th.done {
				ready = append(ready, i)
			}
		}
		if len(ready) == 0 {
			break
		}
		if n < len(path) && !slices.Equal(path[n].ready, ready) {
			path = path[:n] // the scripts took another course than last time
		}
		if n == len(path) {
			path = append(path, choice{ready: ready})
		}
		running = threads[path[n].ready[path[n].taken]]
		running.proceed <- struct{}{}
		if p := <-paused; p != nil && failure == nil {
			failure = p
		}
	}
	running = nil
	if failure != nil {
		return path, fmt.Errorf("panic: %v", failure)
	}
	return path, check(subject)
}
