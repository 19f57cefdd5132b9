// Package coalesce lets callers share writes. On a lane at most one write is under way; those who arrive meanwhile
// wait, and as many of them as its driver lets board ride together on the next.
package coalesce

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Rider is what waits on a lane: a type that embeds [Ticket].
type Rider interface {
	comparable
	ticket() *Ticket
}

// Ticket is a rider's place on a lane. The zero value is ready for one ride.
type Ticket struct {
	done      chan struct{}
	aboard    bool
	answered  bool
	abandoned bool
}

func (t *Ticket) ticket() *Ticket { return t }

// Abandoned reports whether the caller has given up. What such a rider was to be given is the driver's to take back.
// The lane must be locked.
func (t *Ticket) Abandoned() bool { return t.abandoned }

// Driver decides what a lane's writes carry, and makes them.
type Driver[R Rider] interface {
	// Board decides, with the lane locked, who rides on the next write. It answers those whose fate is known
	// already ([Lane.Answer]), and returns those who go on waiting, and whether there is a write to make. If
	// there is none, after says in how long to ask again, should nobody join before; 0: not until somebody does.
	Board(waiting []R) (left []R, ready bool, after time.Duration)
	// Carry makes the write that Board prepared, with the lane unlocked. It answers everyone aboard, or puts them
	// back ([Lane.Back]).
	Carry()
}

// Lane is the way to one key. Its lock also guards what the driver remembers of the key. Create it with [New].
type Lane[R Rider] struct {
	sync.Mutex

	fleet   *Fleet
	driver  Driver[R]
	waiting []R
	moving  bool
	timer   *time.Timer
}

// New returns a lane of a fleet.
func New[R Rider](fleet *Fleet, driver Driver[R]) *Lane[R] {
	return &Lane[R]{fleet: fleet, driver: driver}
}

// Add has a rider wait for the next write, and sets the lane moving if it stands still. The lane must be locked.
func (l *Lane[R]) Add(r R) {
	if t := r.ticket(); t.done == nil {
		t.done = make(chan struct{})
	}
	l.waiting = append(l.waiting, r)
	l.start()
}

// AddFirst is Add for a rider that nobody is to come before.
func (l *Lane[R]) AddFirst(r R) {
	l.Add(r)
	n := len(l.waiting) - 1
	copy(l.waiting[1:], l.waiting[:n])
	l.waiting[0] = r
}

// Waiting returns who waits, in order. The lane must be locked.
func (l *Lane[R]) Waiting() []R { return l.waiting }

// Idle reports whether nobody waits and no write is under way. The lane must be locked.
func (l *Lane[R]) Idle() bool { return !l.moving && len(l.waiting) == 0 }

// Board marks a rider as aboard the next write: from now on it can only be abandoned, not taken off. The lane must
// be locked.
func (l *Lane[R]) Board(r R) { r.ticket().aboard = true }

// Answer ends a ride. The lane must be locked.
func (l *Lane[R]) Answer(r R) {
	t := r.ticket()
	t.answered = true
	if t.done != nil {
		close(t.done)
	}
}

// Back puts riders in front of those who wait. The lane must be locked.
func (l *Lane[R]) Back(rs []R) {
	for _, r := range rs {
		r.ticket().aboard = false
	}
	l.waiting = slices.Concat(rs, l.waiting)
}

// Wait waits until the rider is answered, and returns nil, or until ctx ends. Then the rider leaves the lane, or is
// abandoned if it is aboard a write that is under way, and the context's error is returned.
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

// start sets the lane moving. The lane must be locked.
func (l *Lane[R]) start() {
	if l.moving {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.moving = true
	l.fleet.run(l)
}

// kick ends a pause.
func (l *Lane[R]) kick() {
	l.Lock()
	defer l.Unlock()
	if l.timer != nil {
		l.start()
	}
}

// move makes writes until there is none to make.
func (l *Lane[R]) move() {
	for {
		l.Lock()
		left, ready, after := l.driver.Board(l.waiting)
		l.waiting = left
		if !ready {
			l.moving = false
			if after > 0 {
				l.timer = time.AfterFunc(after, l.kick)
				l.fleet.park(l)
			}
			l.Unlock()
			return
		}
		l.Unlock()
		l.driver.Carry()
	}
}

// Drop takes those that gone names off the lane. The lane must be locked.
func (l *Lane[R]) Drop(gone func(R) bool) { l.waiting = slices.DeleteFunc(l.waiting, gone) }
