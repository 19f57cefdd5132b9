// Package coalesce lets callers share writes. A lane has at most one write under way. Callers that arrive meanwhile
// wait, and as many of them as the lane's driver boards ride together on the next write.
package coalesce

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Rider is a request that waits on a lane. It is a type that embeds [Ticket].
type Rider interface {
	comparable
	ticket() *Ticket
}

// Ticket is a rider's place on a lane. The zero value is ready for one ride.
type Ticket struct {
	done      chan struct{} // nil until the rider can be waited for
	aboard    bool
	answered  bool
	abandoned bool
}

func (t *Ticket) ticket() *Ticket { return t }

// Abandoned reports whether the caller has given up. The driver must take back whatever such a rider is granted. The
// lane must be locked.
func (t *Ticket) Abandoned() bool { return t.abandoned }

// Driver decides what a lane's writes carry, and makes them.
type Driver[R Rider] interface {
	// Board decides, with the lane locked, which riders go on the next write. It answers riders whose outcome is
	// already known ([Lane.Answer]), and returns those that keep waiting and whether there is a write to make. If there
	// is none, after is the time until Board is called again, unless a rider joins earlier. 0: only when a rider joins.
	Board(waiting []R) (left []R, ready bool, after time.Duration)
	// Carry makes the write that Board prepared, with the lane unlocked. It answers every rider aboard or puts it back
	// ([Lane.Back]), and returns how long the lane then rests.
	Carry() (rest time.Duration)
}

// Lane serializes the writes to one key. Its lock also guards what the driver remembers of the key. Create a Lane with
// [New].
type Lane[R Rider] struct {
	sync.Mutex

	fleet   *Fleet
	driver  Driver[R]
	waiting []R
	moving  bool
	timer   *time.Timer
}

// New returns a lane that belongs to fleet.
func New[R Rider](fleet *Fleet, driver Driver[R]) *Lane[R] {
	return &Lane[R]{fleet: fleet, driver: driver}
}

// Add queues a rider for the next write, and starts the lane if it is idle. The lane must be locked.
func (l *Lane[R]) Add(r R) {
	if t := r.ticket(); t.done == nil {
		t.done = make(chan struct{})
	}
	l.waiting = append(l.waiting, r)
	if l.begin() {
		l.fleet.pass(l)
	}
}

// AddFirst is Add for a rider that goes ahead of all others. The lane must be locked.
func (l *Lane[R]) AddFirst(r R) {
	l.Add(r)
	n := len(l.waiting) - 1
	copy(l.waiting[1:], l.waiting[:n])
	l.waiting[0] = r
}

// Waiting returns the waiting riders, in order. The lane must be locked.
func (l *Lane[R]) Waiting() []R { return l.waiting }

// Idle reports whether no rider waits and no write is under way. The lane must be locked.
func (l *Lane[R]) Idle() bool { return !l.moving && len(l.waiting) == 0 }

// Board marks a rider as aboard the next write. From then on it can only be abandoned, not taken off. The lane must be
// locked.
func (l *Lane[R]) Board(r R) { r.ticket().aboard = true }

// Answer ends a ride. The lane must be locked.
func (l *Lane[R]) Answer(r R) {
	t := r.ticket()
	t.answered = true
	close(t.done)
}

// Back puts riders ahead of those that wait. The lane must be locked.
func (l *Lane[R]) Back(rs []R) {
	for _, r := range rs {
		r.ticket().aboard = false
	}
	l.waiting = slices.Concat(rs, l.waiting)
}

// Wait waits until the rider is answered, and then returns nil, or until ctx ends. In that case the rider leaves the
// lane, or is abandoned if it is aboard a write under way, and Wait returns the context's error.
func (l *Lane[R]) Wait(ctx context.Context, r R) error {
	t := r.ticket()
	select {
	case <-t.done:
		return nil
	default:
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
	}
	l.Lock()
	defer l.Unlock()
	if t.answered {
		return nil
	}
	if i := slices.Index(l.waiting, r); i >= 0 && !t.aboard {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	t.abandoned = true
	return ctx.Err()
}

// begin marks the lane as moving, and reports whether it was idle. The lane must be locked.
func (l *Lane[R]) begin() bool {
	if l.moving {
		return false
	}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.moving = true
	l.fleet.begin(l)
	return true
}

// kick ends the pause that Board asked for.
func (l *Lane[R]) kick() {
	l.Lock()
	defer l.Unlock()
	if l.timer != nil && l.begin() {
		l.fleet.pass(l)
	}
}

// move makes writes until there are none left to make.
func (l *Lane[R]) move() {
	for l.board() {
		if rest := l.driver.Carry(); rest > 0 {
			time.Sleep(rest)
		}
	}
}

// board makes the driver prepare a write, and reports whether there is one. If there is none, the lane becomes idle.
func (l *Lane[R]) board() bool {
	l.Lock()
	defer l.Unlock()
	var ready bool
	var after time.Duration
	l.waiting, ready, after = l.driver.Board(l.waiting)
	if !ready {
		l.moving = false
		if after > 0 {
			l.timer = time.AfterFunc(after, l.kick)
			l.fleet.park(l)
		}
	}
	return ready
}

// Drop removes the riders for which gone returns true. The lane must be locked.
func (l *Lane[R]) Drop(gone func(R) bool) { l.waiting = slices.DeleteFunc(l.waiting, gone) }
