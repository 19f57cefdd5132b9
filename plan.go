package weir

import (
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// plan is what is needed to decide requests of one entity on one resource: which buckets they charge, and which limits
// apply. It is made from cached records, and lives until they expire or one of them changes through this process.
type plan struct {
	entity, resource string
	expires          int64         // nanoseconds since the limiter's start
	generation       atomic.Uint64 // of the space, up to which the plan is known to be valid

	space             *space
	chain             []string      // the entity and its parents as far as they are charged
	links             []link        // the members of the chain that have limits
	own               link          // in a plan for requests that bring limits: the entity, without limits
	allow             []store.Debit // the debits of Allow; nil if no limit counts requests
	one               *store.Charge // what Allow charges, if it is one limit of one bucket
	node              *planNode     // where the plan is kept; its Ref is the first link's
	onUnavailable     OnUnavailable // unless the request sets it
	usesBroaderLimits bool          // it uses more general limits, because an entity's own are not known
	nearLimit         Thresholds    // from the system's record; nil for the default
	shadows           bool          // some limit is in shadow
	share             Share         // the share that the limits are scaled by
	forgotten         sync.Once     // for the cached records that it was made from
	refusals          atomic.Int64  // by Allow, not yet collected by the meter
}

// link is one bucket of a plan.
type link struct {
	bucket   store.Bucket
	source   Source
	manifest string // the manifest that declares the limits
	limits   []store.Limit
	shadow   shadows       // the limits that are in shadow for the entity
	one      *store.Charge // of the view that the limits come from
	epoch    uint64
}

// countsRequests reports whether [Limiter.Allow] charges a limit of that name.
func countsRequests(name string) bool {
	switch name {
	case "rps", "rpm", "rph", "rpd", "requests":
		return true
	}
	return false
}

// oneCharge returns what Allow charges if these are all the limits and there is exactly one; otherwise nil.
func oneCharge(limits []store.Limit) *store.Charge {
	if len(limits) != 1 || !countsRequests(limits[0].Name) {
		return nil
	}
	return &store.Charge{Limit: &limits[0], Amount: 1000}
}

// prepareAllow makes the debits of [Limiter.Allow] once for all calls.
func (p *plan) prepareAllow() {
	counts := false
	debits := make([]store.Debit, len(p.links))
	for i := range p.links {
		lk := &p.links[i]
		charges := make([]store.Charge, len(lk.limits))
		for j := range charges {
			charges[j].Limit, charges[j].Shadow = &lk.limits[j], lk.shadow.has(j)
			if countsRequests(lk.limits[j].Name) {
				charges[j].Amount = 1000
				counts = true
			}
		}
		debits[i] = store.Debit{Bucket: lk.bucket, Charges: charges, Epoch: lk.epoch}
	}
	if counts {
		p.allow = debits
	}
	if len(p.links) == 1 && !p.shadows && p.share.Num > 0 {
		p.one = p.links[0].one
	}
}

// countRefusal counts a refusal of Allow.
func (p *plan) countRefusal(m *meter.Recorder) {
	m.RefusedOne(&p.refusals, store.Bucket{Namespace: p.space.id, Entity: p.entity, Resource: p.resource}, p.one)
}

// shadows is the set of limits that are in shadow for an entity, one bit for each.
type shadows uint64

const _ = uint(64 - record.MaxLimits) // one bit for each

func (s shadows) has(i int) bool { return s>>i&1 != 0 }

// shadowsOf returns which limits are in shadow for an entity. If all limits are enforced for everybody, enforce is nil.
func shadowsOf(entity string, limits []store.Limit, enforce []Enforce) (s shadows) {
	for i, e := range enforce {
		if !record.Enforce(e).Covers(entity, limits[i].Name) {
			s |= 1 << i
		}
	}
	return s
}

// leaveOut replaces limits by their former rate, if they have one, for an entity outside their percentage.
func (lk *link) leaveOut(former []store.Limit) {
	if former == nil || lk.shadow == 0 {
		return
	}
	lk.limits = slices.Clone(lk.limits)
	for i := range former {
		if lk.shadow.has(i) && former[i].Name != "" {
			lk.limits[i] = former[i]
			lk.shadow &^= 1 << i
		}
	}
	lk.one = oneCharge(lk.limits)
}

// leaveOut removes from a decided lease what the store left out. What was never taken is never given back, and nothing
// is forced on a limit that would have refused the request: if it were enforced, there would be no lease. From here on,
// a charge in shadow is one that was left out.
func (le *Lease) leaveOut() {
	le.decisionLocked() // from the amounts that were requested
	n := 0
	for i := range le.debits {
		for j := range le.debits[i].Charges {
			c := &le.debits[i].Charges[j]
			if c.Shadow = c.Shadow && le.levels[n].Refused; c.Shadow {
				c.Amount = 0
			}
			n++
		}
	}
}

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
	bucket     atomic.Value  // where a store in the process keeps the only bucket
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
