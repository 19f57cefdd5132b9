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

func newPolicies() *policies {
	p := &policies{seed: maphash.MakeSeed()}
	p.resize(nil, 64)
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

// namespaces are those used so far.
type namespaces struct {
	mu     sync.Mutex
	states map[string]*namespaceState // by opaque id
	kept   atomic.Int64               // how many policies they have
}

// keep caches a policy that only the caller has. If there are more than most in all namespaces together, it removes a
// quarter from each map that has at least half of the average: an eighth of all, or more.
func (ns *namespaces) keep(in *policies, p *Policy, most int) {
	if ns.kept.Add(in.put(p)) <= int64(most) {
		return
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if all := int(ns.kept.Load()); all > most { // no other caller has removed some
		half := all / (4 * len(ns.states))
		for _, s := range ns.states {
			ns.kept.Add(-s.full.drop(half) - s.parents.drop(half))
		}
	}
}

// put adds a policy, replaces the previous one, and returns how many more there are.
func (p *policies) put(n *Policy) (more int64) {
	h := p.hash(n.Entity, n.Resource)
	p.mu.Lock()
	defer p.mu.Unlock()
	n.Resource = p.intern(n.Resource)
	heads := *p.heads.Load()
	at := head(heads, h)
	n.next.Store(at.Load())
	at.Store(n)
	for from := &n.next; from.Load() != nil; from = &from.Load().next {
		if old := from.Load(); old.Entity == n.Entity && old.Resource == n.Resource {
			from.Store(old.next.Load())
			return 0
		}
	}
	if p.size++; 2*p.size > len(heads) { // keep chains short: each step is a cache miss
		p.resize(heads, 2*len(heads))
	}
	return 1
}

// intern returns the one copy of a resource's name. The map is locked.
func (p *policies) intern(resource string) string {
	if s, ok := p.resources[resource]; ok {
		return s
	}
	if p.resources == nil {
		p.resources = make(map[string]string)
	}
	p.resources[resource] = resource
	return resource
}

// drop removes a quarter of the policies, from a random run of the map, if there are at least so many. It returns how
// many it has removed, which are made again when needed.
func (p *policies) drop(least int) (gone int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	heads := *p.heads.Load()
	at := rand.N(len(heads))
	for i := 0; i < len(heads) && p.size >= least && 4*int(gone) < p.size; i++ {
		head := &heads[(at+i)%len(heads)]
		for n := head.Load(); n != nil; n = n.next.Load() {
			gone++
		}
		head.Store(nil)
	}
	p.size, p.resources = p.size-int(gone), nil // there are no more names than policies
	if 8*p.size < len(heads) && len(heads) > 64 {
		p.resize(heads, len(heads)/2)
	}
	return gone
}

// resize moves the map. A node's next only leads to nodes that were moved before it, so readers never loop.
func (p *policies) resize(heads []atomic.Pointer[Policy], n int) {
	resized := make([]atomic.Pointer[Policy], n)
	for i := range heads {
		for n := heads[i].Load(); n != nil; {
			next := n.next.Load()
			at := head(resized, p.hash(n.Entity, n.Resource))
			n.next.Store(at.Load())
			at.Store(n)
			n = next
		}
	}
	p.heads.Store(&resized)
}
