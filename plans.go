package weir

import (
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/store"
)

// plans is a map from entity and resource to plan that is read without locks: it stands before every decision.
// A reader that meets a change under way may miss a plan; it is then made again.
type plans struct {
	limit int
	seed  maphash.Seed
	heads atomic.Pointer[[]atomic.Pointer[planNode]] // a power of two
	mu    sync.Mutex                                 // of writers
	size  int
	// One copy of each resource's name, which stays in the processor's caches however many entities use it.
	resources map[string]*string
}

// planNode is a plan's place in the map. With many keys every decision finds it outside the processor's caches, so
// that what the quick form of Allow needs is here, on one cache line, and what it leads to beside the bucket is shared
// between entities.
type planNode struct {
	entity     string
	resource   *string
	next       atomic.Pointer[planNode]
	ref        store.Ref     // of the plan's first link
	one        *store.Charge // of the plan
	plan       *plan
	expires    uint32        // in ticks; the quick form is not for later
	generation atomic.Uint32 // of the space, its low bits: the plan was good then
}

func newPlans(limit int) *plans {
	p := &plans{limit: limit, seed: maphash.MakeSeed()}
	p.clear()
	return p
}

func (p *plans) hash(entity, resource string) uint64 {
	return maphash.String(p.seed, entity) ^ bits.RotateLeft64(maphash.String(p.seed, resource), 29)
}

func head(heads []atomic.Pointer[planNode], hash uint64) *atomic.Pointer[planNode] {
	return &heads[hash&uint64(len(heads)-1)]
}

func (p *plans) find(entity, resource string) *planNode {
	h := p.hash(entity, resource)
	for n := head(*p.heads.Load(), h).Load(); n != nil; n = n.next.Load() {
		if n.entity == entity && *n.resource == resource {
			return n
		}
	}
	return nil
}

func (p *plans) get(entity, resource string) *plan {
	if n := p.find(entity, resource); n != nil {
		return n.plan
	}
	return nil
}

// put adds a plan that is in no map yet, in the place of the one that there was.
func (p *plans) put(pl *plan) {
	h := p.hash(pl.entity, pl.resource)
	p.mu.Lock()
	defer p.mu.Unlock()
	n := pl.node
	if n == nil {
		n = &planNode{}
	}
	n.entity, n.resource, n.plan, n.one = pl.entity, p.intern(pl.resource), pl, pl.one
	n.expires = uint32(max(0, min(pl.expires/tick-1, math.MaxUint32)))
	n.generation.Store(uint32(pl.generation.Load()))
	heads := *p.heads.Load()
	at := head(heads, h)
	n.next.Store(at.Load())
	at.Store(n)
	p.size++
	for from := &n.next; ; {
		old := from.Load()
		if old == nil {
			break
		}
		if old.entity == pl.entity && *old.resource == pl.resource {
			from.Store(old.next.Load())
			p.size--
			break
		}
		from = &old.next
	}
	if p.size > p.limit {
		p.drop(heads)
	}
	if 2*p.size > len(heads) { // short chains: each step is a cache miss
		p.grow(heads)
	}
}

// intern returns the one copy of a resource's name. The map is locked.
func (p *plans) intern(resource string) *string {
	if s := p.resources[resource]; s != nil {
		return s
	}
	if p.resources == nil || len(p.resources) >= p.limit {
		p.resources = make(map[string]*string)
	}
	p.resources[resource] = &resource
	return &resource
}

// drop forgets about an eighth of the plans, a random run of the map. They are made again when needed.
func (p *plans) drop(heads []atomic.Pointer[planNode]) {
	at := rand.N(len(heads))
	for i := 0; i < len(heads) && p.size > p.limit-p.limit/8; i++ {
		head := &heads[(at+i)%len(heads)]
		for n := head.Load(); n != nil; n = n.next.Load() {
			p.size--
		}
		head.Store(nil)
	}
}

// grow doubles the map. A node's next only ever leads to nodes that were moved before it, so no reader runs in circles.
func (p *plans) grow(heads []atomic.Pointer[planNode]) {
	grown := make([]atomic.Pointer[planNode], 2*len(heads))
	for i := range heads {
		for n := heads[i].Load(); n != nil; {
			next := n.next.Load()
			at := head(grown, p.hash(n.entity, *n.resource))
			n.next.Store(at.Load())
			at.Store(n)
			n = next
		}
	}
	p.heads.Store(&grown)
}

func (p *plans) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	heads := make([]atomic.Pointer[planNode], 64)
	p.heads.Store(&heads)
	p.size = 0
}

func (p *plans) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}
