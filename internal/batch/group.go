package batch

import "sync"

// Group is the goroutines of a store: those of its queues, and others. The zero value is ready to use.
type Group struct {
	mu      sync.Mutex
	still   sync.Cond // signals that running became 0; its lock is mu
	running int
	closed  bool // no goroutine begins any more
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

// Flush waits until no goroutine runs.
func (g *Group) Flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.still.L = &g.mu
	for g.running > 0 {
		g.still.Wait()
	}
}

// Close waits for the goroutines, which first answer all jobs that wait, and keeps others from starting. It is
// idempotent.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.Flush()
}

func (g *Group) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.running++
	}
	return !g.closed
}

func (g *Group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running == 0 {
		g.still.Broadcast()
	}
}
