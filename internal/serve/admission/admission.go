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
// who hold most are the first to wait. It is safe for concurrent use.
type Slots struct {
	most int

	mu      sync.Mutex
	taken   int
	waiting int
	holders map[string]*holder // never removed: there are no more names than tokens
}

// ofFree is how many slots a principal may hold for each free one.
const ofFree = 3

// holder is a principal that holds slots or waits for one.
type holder struct {
	known bool // has a name
	held  int
	queue []chan struct{} // each is closed when its turn comes
}

// New returns the given number of slots, all free.
func New(most int) *Slots { return &Slots{most: most, holders: make(map[string]*holder)} }

// Try takes a slot if who may have one now. Return each slot with Free.
func (s *Slots) Try(who string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.try(s.holder(who))
}

// Take is Try, but waits for a slot until ctx is done or patience has passed. It does not wait if as many calls of
// who are already waiting as there are slots.
func (s *Slots) Take(ctx context.Context, who string, patience time.Duration) bool {
	s.mu.Lock()
	g := s.holder(who)
	if s.try(g) {
		s.mu.Unlock()
		return true
	}
	if len(g.queue) >= s.most {
		s.mu.Unlock()
		return false
	}
	turn := make(chan struct{})
	g.queue = append(g.queue, turn)
	s.waiting++
	s.mu.Unlock()

	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-turn:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(g.queue, turn)
	if i < 0 {
		return true // its turn came just now
	}
	g.queue = slices.Delete(g.queue, i, i+1)
	s.waiting--
	return false
}

// Force takes a slot even if there is none: for a caller that freed one in order to come back, or that inherits
// another's.
func (s *Slots) Force(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enter(s.holder(who))
}

// Free returns a slot that who has taken.
func (s *Slots) Free(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holder(who).held--
	s.taken--
	for s.waiting > 0 {
		g := s.next()
		if g == nil {
			return
		}
		close(g.queue[0])
		g.queue = g.queue[1:]
		s.waiting--
		s.enter(g)
	}
}

// next returns the waiting holder that holds least, or nil if none of those waiting may have a slot.
func (s *Slots) next() (least *holder) {
	for _, g := range s.holders {
		if len(g.queue) > 0 && s.fits(g) && (least == nil || g.held < least.held) {
			least = g
		}
	}
	return least
}

func (s *Slots) try(g *holder) bool {
	if len(g.queue) > 0 || !s.fits(g) {
		return false
	}
	s.enter(g)
	return true
}

func (s *Slots) fits(g *holder) bool {
	free := s.most - s.taken
	return free > 0 && (!g.known || g.held < ofFree*free)
}

func (s *Slots) enter(g *holder) {
	g.held++
	s.taken++
}

func (s *Slots) holder(who string) *holder {
	g := s.holders[who]
	if g == nil {
		g = &holder{known: who != ""}
		s.holders[who] = g
	}
	return g
}
