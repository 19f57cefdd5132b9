package policy

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// policies maps entity and resource to a policy. It is read without locks, because every decision goes through it. A
// reader that meets a concurrent change may miss a policy, which is then made again.
type policies struct {
	limit int
	seed  maphash.Seed
	heads atomic.Pointer[[]atomic.Pointer[Policy]] // the length is a power of two
	mu    sync.Mutex                               // held by writers
	size  int
	// One copy of each resource's name, which stays in the processor's caches however many entities use it.
	resources map[string]string
}

// policies returns the map of policies with or without the entity's own limits.
func (s *namespaceState) policies(own bool) *policies {
	if own {
		return s.full
	}
	return s.parents
}

func newPolicies(limit int) *policies {
	p := &policies{limit: limit, seed: maphash.MakeSeed()}
	p.clear()
	return p
}

func (p *policies) hash(entity, resource string) uint64 {
	return maphash.String(p.seed, entity) ^ bits.RotateLeft64(maphash.String(p.seed, resource), 29)
}

func head(heads []atomic.Pointer[Policy], hash uint64) *atomic.Pointer[Policy] {
	return &heads[hash&uint64(len(heads)-1)]
}

func (p *policies) find(entity, resource string) *Policy {
	h := p.hash(entity, resource)
	for n := head(*p.heads.Load(), h).Load(); n != nil; n = n.next.Load() {
		if n.Entity == entity && n.Resource == resource {
			return n
		}
	}
	return nil
}

// put adds a policy that only the caller has, and replaces the previous one.
func (p *policies) put(n *Policy) {
	h := p.hash(n.Entity, n.Resource)
	p.mu.Lock()
	defer p.mu.Unlock()
	n.Resource = p.intern(n.Resource)
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
		if old.Entity == n.Entity && old.Resource == n.Resource {
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
func (p *policies) intern(resource string) string {
	if s, ok := p.resources[resource]; ok {
		return s
	}
	if p.resources == nil || len(p.resources) >= p.limit {
		p.resources = make(map[string]string)
	}
	p.resources[resource] = resource
	return resource
}

// drop removes about an eighth of the policies, from a random run of the map. They are made again when needed.
func (p *policies) drop(heads []atomic.Pointer[Policy]) {
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
func (p *policies) grow(heads []atomic.Pointer[Policy]) {
	grown := make([]atomic.Pointer[Policy], 2*len(heads))
	for i := range heads {
		for n := heads[i].Load(); n != nil; {
			next := n.next.Load()
			at := head(grown, p.hash(n.Entity, n.Resource))
			n.next.Store(at.Load())
			at.Store(n)
			n = next
		}
	}
	p.heads.Store(&grown)
}

func (p *policies) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	heads := make([]atomic.Pointer[Policy], 64)
	p.heads.Store(&heads)
	p.size = 0
}

func (p *policies) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}
