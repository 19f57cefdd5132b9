package interleave

import (
	"fmt"
	"strings"
	"testing"
)

func TestExplore(t *testing.T) {
	t.Parallel()
	type counter struct{ n int }
	fresh := func(func()) *counter { return &counter{} }
	torn := func(c *counter, yield func()) { // reads, then writes
		n := c.n
		yield()
		c.n = n + 1
	}
	whole := func(c *counter, yield func()) {
		yield()
		c.n++
	}
	both := func(c *counter) error {
		if c.n != 2 {
			return fmt.Errorf("counted %d", c.n)
		}
		return nil
	}
	if runs, err := explore(fresh, []Script[*counter]{whole, whole}, both); err != nil || runs != 6 {
		t.Errorf("%d interleavings, error %v, want 6 and none", runs, err)
	}
	if _, err := explore(fresh, []Script[*counter]{torn, torn}, both); err == nil || !strings.Contains(err.Error(), "order 0 1") {
		t.Errorf("error %v, want a lost update in the order 0 1", err)
	}
	// One of three scripts ends at once, and one panics.
	bad := func(*counter, func()) { panic("boom") }
	if _, err := explore(fresh, []Script[*counter]{torn, bad, func(*counter, func()) {}}, both); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("error %v, want the panic", err)
	}
	// The subject may yield on behalf of the running script, even from another goroutine.
	type engine struct {
		counter

		call func(func())
	}
	calls := func(yield func()) *engine {
		return &engine{call: func(f func()) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				f()
				yield()
			}()
			<-done
		}}
	}
	update := func(e *engine, _ func()) {
		n := 0
		e.call(func() { n = e.n })
		e.call(func() { e.n = n + 1 })
	}
	_, err := explore(calls, []Script[*engine]{update, update}, func(e *engine) error { return both(&e.counter) })
	if err == nil {
		t.Error("the lost update between two calls was not found")
	}
}
