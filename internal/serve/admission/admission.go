// Package admission limits how many of something may be in use at once, so that no single user takes all.
package admission

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Slots are handed out to principals by name. The name "" is shared by everybody when callers are not distinguished,
// and may hold all slots. A named principal may hold up to three times as many as are free, so three quarters of all
// if it is alone. However many principals take as much as they can, some slots stay free for newcomers, and those
// who hold most are the first to wait. Whoever holds none and waits for slots keeps others waiting; see [New] and
// [Varying]. It is safe for concurrent use.
type Slots struct {
	size  func(alone bool) int
	queue int  // how many may wait of each name
	long  bool // slots may be held for long

	mu      sync.Mutex
	most    int
	taken   int
	last    string    // who called Take last
	others  time.Time // when that was last not who had called before
	holders map[string]*holder
	waiting []*holder // those with a queue; who was served last comes last
}

// ofFree is how many slots a principal may hold for each free one.
const ofFree = 3

// remembered is how many principals are remembered while they hold nothing, so that they are not made anew each time.
const remembered = 1024

// holder is a principal that holds slots or waits for one.
type holder struct {
	name  string
	held  int
	queue []*waiter
}

// waiter waits for n slots, or for as many as there are by then. Turn is closed when it has them.
type waiter struct {
	n    int
	turn chan struct{}
}

// New returns the given number of slots, all free, which may be held for long. As many calls of a name may wait for
// one. Whoever holds none and waits gets its slots before anybody who would then hold as many or more. It keeps nobody
// else waiting, because it may wait for one who returns none.
func New(most int) *Slots {
	s := Varying(func(bool) int { return most }, most)
	s.long = true
	return s
}

// aloneAfter is how long no other name may have called Take for one to be alone: who calls rarely must not find all
// slots taken by who calls always.
const aloneAfter = time.Minute

// Varying returns as many slots as most returns at each Take, by whether no other name has called Take for a minute. If
// these are fewer than are taken, none is free. At most queue calls of a name wait. Function most must be fast. The
// slots must be held briefly: whoever holds none and waits for any number gets them before anybody else gets one.
func Varying(most func(alone bool) int, queue int) *Slots {
	return &Slots{size: most, most: most(true), queue: queue, holders: make(map[string]*holder)}
}

// Try takes a slot if who may have one now. Return each slot with Free.
func (s *Slots) Try(who string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.holder(who)
	defer s.forget(g)
	return s.try(g, 1)
}

// Take takes n slots, or as many as who could have if all were free, and returns their number. It waits for them until
// ctx is done or patience has passed; it then takes none, and returns 0. It does not wait, nor keep anybody waiting, if
// patience is 0 or too many calls of who are already waiting.
func (s *Slots) Take(ctx context.Context, who string, n int, patience time.Duration) int {
	s.mu.Lock()
	if !s.long {
		s.resize(who)
	}
	g := s.holder(who)
	n = min(n, s.share(who))
	if s.try(g, n) {
		s.mu.Unlock()
		return n
	}
	if patience <= 0 || len(g.queue) >= s.queue {
		s.forget(g)
		s.mu.Unlock()
		return 0
	}
	w := &waiter{n, make(chan struct{})}
	if len(g.queue) == 0 {
		s.waiting = append(s.waiting, g)
	}
	g.queue = append(g.queue, w)
	s.mu.Unlock()

	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-w.turn:
		return w.n
	case <-late.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(g.queue, w)
	if i < 0 {
		return w.n // its turn came just now
	}
	g.queue = slices.Delete(g.queue, i, i+1)
	if len(g.queue) == 0 {
		s.dequeue(g)
	}
	s.serve() // those behind it may need fewer
	s.forget(g)
	return 0
}

// resize sets how many slots there are, as who calls Take.
func (s *Slots) resize(who string) {
	now := time.Now()
	if who != s.last {
		if len(s.holders) > 0 { // not the first
			s.others = now
		}
		s.last = who
	}
	if most := s.size(now.Sub(s.others) > aloneAfter); most != s.most {
		s.most = most
		s.serve()
	}
}

// Force takes a slot even if there is none: for a caller that freed one in order to come back, or that inherits
// another's.
func (s *Slots) Force(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enter(s.holder(who), 1)
}

// Free returns a slot that who has taken.
func (s *Slots) Free(who string) { s.Return(who, 1) }

// Return returns n slots that who has taken.
func (s *Slots) Return(who string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.holder(who)
	g.held -= n
	s.taken -= n
	s.serve()
	s.forget(g)
}

// forget removes a holder that holds nothing, if there are many.
func (s *Slots) forget(g *holder) {
	if g.held == 0 && len(g.queue) == 0 && len(s.holders) > remembered {
		delete(s.holders, g.name)
	}
}

// serve hands out what is free to those who wait.
func (s *Slots) serve() {
	for len(s.waiting) > 0 {
		g := s.next()
		if g == nil {
			return
		}
		w := g.queue[0]
		g.queue = g.queue[1:]
		s.dequeue(g)
		if len(g.queue) > 0 {
			s.waiting = append(s.waiting, g)
		}
		s.enter(g, w.n)
		close(w.turn)
	}
}

// next returns the waiting holder that holds least; of several, the one that was served least lately. It is nil if what
// that one needs is kept for it and not free yet, or if none of those waiting may have its slots. Those that hold some
// get theirs, at the latest, once they have returned them.
func (s *Slots) next() (least *holder) {
	for _, g := range s.waiting {
		w := g.queue[0]
		w.n = min(w.n, s.share(g.name))
		switch fits := s.fits(g, w.n); {
		case fits && g.held == 0:
			return g
		case fits && (least == nil || g.held < least.held):
			least = g
		case g.held == 0 && !s.long:
			return nil
		}
	}
	if least == nil || s.kept(least, least.queue[0].n) {
		return nil
	}
	return least
}

// dequeue takes a holder off those who wait.
func (s *Slots) dequeue(g *holder) {
	i := slices.Index(s.waiting, g)
	s.waiting = slices.Delete(s.waiting, i, i+1)
}

// try takes n slots, unless somebody is waiting who gets them first.
func (s *Slots) try(g *holder, n int) bool {
	if len(g.queue) > 0 || !s.fits(g, n) || s.kept(g, n) {
		return false
	}
	s.enter(g, n)
	return true
}

// kept reports whether a holder waits with n slots until another, which holds none, has those that it waits for.
func (s *Slots) kept(g *holder, n int) bool {
	return slices.ContainsFunc(s.waiting, func(w *holder) bool {
		return w.held == 0 && (!s.long || w.queue[0].n <= g.held+n)
	})
}

// share returns how many slots a principal could have if all were free, at least one.
func (s *Slots) share(who string) int {
	if who == "" {
		return max(1, s.most)
	}
	return max(1, min(s.most, (ofFree*s.most+ofFree)/(ofFree+1)))
}

// fits reports whether a holder may have n slots more: each of them is one of those that were free before it.
func (s *Slots) fits(g *holder, n int) bool {
	free := s.most - s.taken - (n - 1) // ahead of the last
	return free > 0 && (g.name == "" || g.held+n-1 < ofFree*free)
}

func (s *Slots) enter(g *holder, n int) {
	g.held += n
	s.taken += n
}

func (s *Slots) holder(who string) *holder {
	g := s.holders[who]
	if g == nil {
		g = &holder{name: who}
		s.holders[who] = g
	}
	return g
}
