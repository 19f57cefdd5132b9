package weir

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// space is a namespace as this process knows it: the plans made so far, what changed since, and who waits.
type space struct {
	id     string
	plans  *plans // with the entity's own limits
	chains *plans // without: for requests that bring limits along
	hits   counter
	queues queues
	// unavailable is what the system's record says of that, as it was read last.
	unavailable atomic.Pointer[Unavailable]

	generation atomic.Uint64 // how many changes were made through this process
	mu         sync.Mutex
	changes    []change // the last ones
}

// change is what a change of the catalog concerns.
type change struct {
	all      bool   // every plan
	entity   string // plans that charge this entity…
	resource string // …or that are of this resource; with both: plans that charge the entity and are of the resource
}

func newSpace(id string, entries int) *space {
	return &space{id: id, plans: newPlans(entries), chains: newPlans(entries)}
}

// maxChanges is how many changes are remembered one by one; a plan that missed more is made again.
const maxChanges = 256

// changed invalidates the plans that a change concerns.
func (s *space) changed(c change) {
	defer s.queues.changed()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.changes) == maxChanges {
		s.changes = slices.Delete(s.changes, 0, maxChanges/2)
	}
	s.changes = append(s.changes, c)
	s.generation.Add(1)
}

// current reports whether nothing that concerns a plan has changed through this process since it was made.
func (s *space) current(p *plan) bool {
	g := s.generation.Load()
	if p.generation.Load() == g {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g = s.generation.Load()
	missed := g - p.generation.Load()
	if missed > uint64(len(s.changes)) {
		return false
	}
	for _, c := range s.changes[len(s.changes)-int(missed):] {
		if c.concerns(p) {
			return false
		}
	}
	p.generation.Store(g)
	return true
}

func (c change) concerns(p *plan) bool {
	if c.all || c.entity == "" {
		return c.all || c.resource == p.resource
	}
	return (c.resource == "" || c.resource == p.resource) &&
		slices.Contains(p.chain, c.entity)
}

// counter counts on several cache lines, since every decision counts.
type counter [16]struct {
	n atomic.Uint64
	_ [56]byte
}

// add counts one on the line of the goroutine, going by where its stack lies.
func (c *counter) add() {
	var here byte
	c[uintptr(unsafe.Pointer(&here))>>12%uintptr(len(c))].n.Add(1)
}

func (c *counter) total() (n uint64) {
	for i := range c {
		n += c[i].n.Load()
	}
	return n
}
