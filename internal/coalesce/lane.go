// Package coalesce lets callers share writes. A lane has at most one write under way. Callers that arrive meanwhile wait,
// and as many of them as the lane's driver boards ride together on the next write.
package coalesce

import (
	"context"
	"fmt"
	"runtime/debug"
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
	leads     bool          // its caller is about to make the lane's next write
	aboard    bool
	answered  bool
	abandoned bool
}

func (t *Ticket) ticket() *Ticket { return t }

// Abandoned reports whether the caller has given up. The driver must take back whatever such a rider is granted. The lane
// must be locked.
func (t *Ticket) Abandoned() bool { return t.abandoned }

// Driver decides what a lane's writes carry, and makes them.
type Driver[R Rider] interface {
	// Board decides, with the lane locked, which riders go on the next write. It answers riders whose outcome is already
	// known ([Lane.Answer]), and returns those that keep waiting and whether there is a write to make. If there is none,
	// after is the time until Board is called again, unless a rider joins earlier. 0: only when a rider joins.
	Board(waiting []R) (left []R, ready bool, after time.Duration)
	// Carry makes the write that Board prepared, with the lane unlocked. It answers every rider aboard or puts it back
	// ([Lane.Back]), and returns how long the lane then rests. If ctx ends before the write does, or the write could not
	// be left to another goroutine in that case, Carry returns false without touching any rider aboard. It is then called
	// again, on another goroutine and with a context that never ends, and completes what it began.
	Carry(ctx context.Context) (done bool, rest time.Duration)
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

	// Only the goroutine that moves the lane accesses these.
	planned bool          // a write was prepared and has not ended
	rest    time.Duration // how long to wait before the next write
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

// Lead is Add for a caller that calls [Lane.Wait] next, without delay. If the lane is idle, that caller makes the first
// write itself, which saves two hand-overs between goroutines. The lane must be locked.
func (l *Lane[R]) Lead(r R) {
	if l.moving {
		l.Add(r)
		return
	}
	l.waiting = append(l.waiting, r)
	r.ticket().leads = l.begin()
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
	if t.done != nil {
		close(t.done)
	}
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
	if t.leads && l.lead(ctx, t) {
		return nil
	}
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

// lead makes the lane's next write as far as ctx allows, leaves any later writes to another goroutine, and reports
// whether the rider was answered.
func (l *Lane[R]) lead(ctx context.Context, t *Ticket) bool {
	t.leads = false
	returned := false
	defer func() {
		if !returned {
			crash(recover())
		}
	}()
	stands := l.first(ctx)
	returned = true
	if stands {
		l.fleet.end()
	} else {
		defer l.fleet.pass(l) // after t.done is set, so that the rider can be answered
	}
	l.Lock()
	defer l.Unlock()
	if !t.answered {
		t.done = make(chan struct{})
	}
	return t.answered
}

// crash ends the process after a panic on a caller's goroutine, as one on a goroutine of the store does. A server may recover
// from panics of its handlers, and would go on with a lane that nobody moves and a write of which nothing is known.
func crash(reason any) {
	stack := debug.Stack()
	go func() { panic(fmt.Sprintf("coalesce: panic while a caller made a write: %v\n\n%s", reason, stack)) }()
	select {}
}

// first makes one write, and reports whether the lane is then idle.
func (l *Lane[R]) first(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	if !l.board() {
		return true
	}
	return l.carry(ctx) && l.rest == 0 && !l.board()
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
	for {
		if l.rest > 0 {
			time.Sleep(l.rest)
			l.rest = 0
		}
		if !l.planned && !l.board() {
			return
		}
		l.carry(context.Background())
	}
}

// board asks the driver to prepare a write. If there is none to make, the lane becomes idle.
func (l *Lane[R]) board() bool {
	l.Lock()
	defer l.Unlock()
	var after time.Duration
	l.waiting, l.planned, after = l.driver.Board(l.waiting)
	if !l.planned {
		l.moving = false
		if after > 0 {
			l.timer = time.AfterFunc(after, l.kick)
			l.fleet.park(l)
		}
	}
	return l.planned
}

// carry makes the prepared write, and reports whether it ended.
func (l *Lane[R]) carry(ctx context.Context) bool {
	done, rest := l.driver.Carry(ctx)
	l.planned, l.rest = !done, rest
	return done
}

// Drop removes the riders for which gone returns true. The lane must be locked.
func (l *Lane[R]) Drop(gone func(R) bool) { l.waiting = slices.DeleteFunc(l.waiting, gone) }
