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

// plans maps entity and resource to a plan. It is read without locks, because every decision goes through it. A reader
// that meets a concurrent change may miss a plan, which is then made again.
type plans struct {
	limit int
	seed  maphash.Seed
	heads atomic.Pointer[[]atomic.Pointer[planNode]] // the length is a power of two
	mu    sync.Mutex                                 // held by writers
	size  int
	// One copy of each resource's name, which stays in the processor's caches however many entities use it.
	resources map[string]*string
}

// planNode is a plan's entry in the map. With many keys, it is outside the processor's caches at every decision. What
// the quick form of Allow needs is therefore in the node, on one cache line, and what the node refers to, except the
// bucket, is shared between entities.
type planNode struct {
	entity     string
	resource   *string
	next       atomic.Pointer[planNode]
	ref        store.Ref     // of the plan's first link
	one        *store.Charge // of the plan
	plan       *plan
	expires    uint32        // in ticks; after this, the quick form is not used
	generation atomic.Uint32 // low bits of the space's generation at which the plan was valid
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

// put adds a plan that is in no map yet, and replaces the previous one.
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
	if 2*p.size > len(heads) { // keep chains short: each step is a cache miss
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

// drop removes about an eighth of the plans, from a random run of the map. They are made again when needed.
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

// grow doubles the map. A node's next only leads to nodes that were moved before it, so readers never loop.
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
