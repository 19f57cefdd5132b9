package coalesce

import (
	"maps"
	"slices"
	"sync"
)

// Fleet is all lanes of a store. The zero value is ready.
type Fleet struct {
	mu     sync.Mutex
	moving int
	still  sync.Cond          // moving became 0; its lock is mu
	parked map[mover]struct{} // lanes that wait for their time
	urgent int                // flushes under way, and one more once closed
	idle   []chan mover       // goroutines that wait for work, the latest last
	closed bool
}

// mover is a lane.
type mover interface {
	move()
	kick()
}

// maxIdle is how many goroutines are kept.
const maxIdle = 256

// run has a lane move. The goroutine is one that has done so before, if there is one: a call of the SDK needs a deep
// stack, which a new one would have to grow each time. The lane waits no more in the same step in which it moves: in between
// a flush would see it do neither.
func (f *Fleet) run(m mover) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.parked, m)
	f.moving++
	if n := len(f.idle); n > 0 {
		f.idle[n-1] <- m
		f.idle = f.idle[:n-1]
		return
	}
	go f.work(m)
}

func (f *Fleet) work(m mover) {
	next := make(chan mover, 1)
	for m.move(); f.rest(next); m.move() {
		var more bool
		if m, more = <-next; !more {
			return
		}
	}
}

// rest notes that a lane stands still, and reports whether its goroutine is to wait for another.
func (f *Fleet) rest(next chan mover) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moving--; f.moving == 0 {
		f.still.Broadcast()
	}
	if f.closed || len(f.idle) == maxIdle {
		return false
	}
	f.idle = append(f.idle, next)
	return true
}

// dismiss ends the goroutines that wait, now and later.
func (f *Fleet) dismiss() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, next := range f.idle {
		close(next)
	}
	f.idle = nil
}

// Urgent reports whether nothing may wait for company: the fleet is being flushed or closed.
func (f *Fleet) Urgent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.urgent > 0
}

// Flush ends all pauses and returns when every lane stands still.
func (f *Fleet) Flush() {
	f.hurry(1)
	defer f.hurry(-1)
	f.wait()
}

// Close has nothing wait for company any more, and returns when every lane stands still.
func (f *Fleet) Close() {
	f.hurry(1)
	f.wait()
	f.dismiss()
}

func (f *Fleet) hurry(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.urgent += n
}

func (f *Fleet) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.still.L == nil {
		f.still.L = &f.mu
	}
	for f.moving > 0 || len(f.parked) > 0 {
		lanes := slices.Collect(maps.Keys(f.parked))
		if len(lanes) == 0 {
			f.still.Wait()
			continue
		}
		f.mu.Unlock() // a lane's lock comes first
		for _, l := range lanes {
			l.kick()
		}
		f.mu.Lock()
	}
}

func (f *Fleet) park(m mover) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parked == nil {
		f.parked = make(map[mover]struct{})
	}
	f.parked[m] = struct{}{}
}
