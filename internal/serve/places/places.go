// Package places limits how many of something may be in use at once, so that no single user takes all.
package places

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Places are handed out to principals by name. The name "" is shared by everybody when callers are not told apart,
// and may hold all places. A named principal may hold up to three times as many as are free, so three quarters of all
// if it is alone. However many principals take as much as they can, some places stay free for newcomers, and those
// who hold most are the first to wait. It is safe for concurrent use.
type Places struct {
	most int

	mu      sync.Mutex
	taken   int
	waiting int
	guests  map[string]*guest // never removed: there are no more names than tokens
}

// ofFree is how many places a principal may hold for each free one.
const ofFree = 3

// guest is a principal that holds places or waits for one.
type guest struct {
	known bool // has a name
	held  int
	queue []chan struct{} // each is closed when its turn comes
}

// New returns the given number of places, all free.
func New(most int) *Places { return &Places{most: most, guests: make(map[string]*guest)} }

// Try takes a place if who may have one now. Return each place with Free.
func (p *Places) Try(who string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.try(p.guest(who))
}

// Take is Try, but waits for a place until ctx is done or patience has passed. It does not wait if as many calls of
// who are already waiting as there are places.
func (p *Places) Take(ctx context.Context, who string, patience time.Duration) bool {
	p.mu.Lock()
	g := p.guest(who)
	if p.try(g) {
		p.mu.Unlock()
		return true
	}
	if len(g.queue) >= p.most {
		p.mu.Unlock()
		return false
	}
	turn := make(chan struct{})
	g.queue = append(g.queue, turn)
	p.waiting++
	p.mu.Unlock()

	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-turn:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(g.queue, turn)
	if i < 0 {
		return true // its turn came just now
	}
	g.queue = slices.Delete(g.queue, i, i+1)
	p.waiting--
	return false
}

// Force takes a place even if there is none: for a caller that freed one in order to come back, or that inherits
// another's.
func (p *Places) Force(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enter(p.guest(who))
}

// Free returns a place that who has taken.
func (p *Places) Free(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.guest(who).held--
	p.taken--
	for p.waiting > 0 {
		g := p.next()
		if g == nil {
			return
		}
		close(g.queue[0])
		g.queue = g.queue[1:]
		p.waiting--
		p.enter(g)
	}
}

// next returns the waiting guest that holds least, or nil if none of those waiting may have a place.
func (p *Places) next() (least *guest) {
	for _, g := range p.guests {
		if len(g.queue) > 0 && p.fits(g) && (least == nil || g.held < least.held) {
			least = g
		}
	}
	return least
}

func (p *Places) try(g *guest) bool {
	if len(g.queue) > 0 || !p.fits(g) {
		return false
	}
	p.enter(g)
	return true
}

func (p *Places) fits(g *guest) bool {
	free := p.most - p.taken
	return free > 0 && (!g.known || g.held < ofFree*free)
}

func (p *Places) enter(g *guest) {
	g.held++
	p.taken++
}

func (p *Places) guest(who string) *guest {
	g := p.guests[who]
	if g == nil {
		g = &guest{known: who != ""}
		p.guests[who] = g
	}
	return g
}
