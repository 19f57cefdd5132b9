package batch

import "sync"

// Group is the goroutines of a store: those of its queues, and others. The zero value is ready to use.
type Group struct {
	mu      sync.Mutex // no goroutine begins once closed
	closed  bool
	running sync.WaitGroup
}

// Go runs f on a goroutine of its own. It returns false, without running f, once the group is closed.
func (g *Group) Go(f func()) bool {
	if !g.begin() {
		return false
	}
	go func() {
		defer g.end()
		f()
	}()
	return true
}

// Close waits for the goroutines, which first answer all jobs that wait, and keeps others from starting. It is
// idempotent.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.running.Wait()
}

func (g *Group) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.running.Add(1)
	}
	return !g.closed
}

func (g *Group) end() { g.running.Done() }
