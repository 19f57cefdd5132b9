package coalesce

import (
	"maps"
	"slices"
	"sync"
)

// Fleet is the set of a store's lanes. The zero value is ready to use.
type Fleet struct {
	mu     sync.Mutex
	moving int
	still  sync.Cond          // signals that moving became 0; its lock is mu
	parked map[mover]struct{} // lanes that pause until their timer fires
	urgent int                // number of flushes under way, plus one once closed
	idle   []chan mover       // goroutines that wait for work, the most recent last
	closed bool
}

// mover is a lane, whatever its riders are.
type mover interface {
	move()
	kick()
}

// maxIdle is how many idle goroutines are kept.
const maxIdle = 256

// begin counts a lane as moving, and ends its pause in the same step. Between two separate steps, a flush would take it
// for idle.
func (f *Fleet) begin(m mover) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.parked, m)
	f.moving++
}

func (f *Fleet) ended() {
	if f.moving--; f.moving == 0 {
		f.still.Broadcast()
	}
}

// pass hands a moving lane to a goroutine, which moves it until it is idle. Idle goroutines are preferred: a call of
// the SDK needs a deep stack, which a new goroutine would have to grow first.
func (f *Fleet) pass(m mover) {
	f.mu.Lock()
	defer f.mu.Unlock()
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

// rest counts a lane as idle, and reports whether its goroutine should wait for another lane.
func (f *Fleet) rest(next chan mover) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended()
	if f.closed || len(f.idle) == maxIdle {
		return false
	}
	f.idle = append(f.idle, next)
	return true
}

// dismiss ends the goroutines that wait for work, and keeps others from waiting.
func (f *Fleet) dismiss() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, next := range f.idle {
		close(next)
	}
	f.idle = nil
}

// Urgent reports whether writes must not be delayed, because the fleet is being flushed or closed.
func (f *Fleet) Urgent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.urgent > 0
}

// Flush ends all pauses and returns when every lane is idle.
func (f *Fleet) Flush() {
	f.hurry(1)
	defer f.hurry(-1)
	f.wait()
}

// Close ends all pauses, present and future, and returns when every lane is idle.
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
		f.mu.Unlock() // kick locks the lane, whose lock is acquired before mu
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
