package weir

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// space is what this process knows of a namespace: the plans made so far, recent changes, and the waiters.
type space struct {
	id     string
	plans  *plans // with the entity's own limits
	chains *plans // without the entity's own limits: for requests that bring limits
	hits   counter
	queues queues
	// unavailable is the on_unavailable of the system's record, as last read.
	unavailable atomic.Pointer[OnUnavailable]

	generation atomic.Uint64 // number of changes made through this process
	mu         sync.Mutex
	changes    []change // the most recent ones
}

// change is the scope of a change of the catalog.
type change struct {
	all      bool   // every plan
	entity   string // plans that charge this entity…
	resource string // …or that are for this resource; if both are set, plans that charge the entity and are for the resource
}

func newSpace(id string, entries int) *space {
	return &space{id: id, plans: newPlans(entries), chains: newPlans(entries)}
}

// maxChanges is how many changes are remembered individually; a plan that missed more is made again.
const maxChanges = 256

// changed invalidates the plans that a change affects.
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

// current reports whether nothing that affects a plan has changed through this process since the plan was made.
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

// counter counts on several cache lines, because every decision counts.
type counter [16]struct {
	n atomic.Uint64
	_ [56]byte
}

// add increments the cache line of the goroutine, chosen by the address of its stack.
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
