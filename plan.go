package weir

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/store"
)

// plan is what there is to know about requests of one entity on one resource: whom they charge and which limits
// apply. It is made from cached records and lives as long as they do, or until one of them changes through this
// process.
//
// With many keys every decision finds its plan outside the processor's caches, so what Allow needs of it comes first,
// on two cache lines, in the order in which it is needed.
type plan struct {
	entity, resource string
	next             atomic.Pointer[plan] // in plans
	expires          int64                // nanoseconds since the limiter's start
	generation       atomic.Uint64        // of the space, up to which the plan is known to be good
	ref              store.Ref            // of the first link

	charge [1]store.Charge // of allow, for one limit
	debit  [1]store.Debit  // of allow, for one bucket
	hash   uint64
	allow  []store.Debit // the debits of Allow, if they are more than debit; nil if no limit counts requests

	space         *space
	chain         []string // the entity and its parents as far as they are charged
	links         []link   // those of the chain that have limits
	own           link     // of a plan for requests that bring limits along: the entity, without limits
	onUnavailable Unavailable
	forgotten     sync.Once // what it was made of
}

// link is one bucket of a plan.
type link struct {
	bucket store.Bucket
	source Source
	limits []store.Limit
	epoch  uint64
	ref    *store.Ref
}

// countsRequests says which limits [Limiter.Allow] charges.
func countsRequests(name string) bool {
	switch name {
	case "rps", "rpm", "rph", "rpd", "requests":
		return true
	}
	return false
}

// prepareAllow makes the debits of [Limiter.Allow], once for all calls.
func (p *plan) prepareAllow() {
	counts := false
	debits, charges := p.debit[:0], p.charge[:0]
	if len(p.links) > 0 {
		p.links[0].ref = &p.ref
	}
	for i := range p.links {
		lk := &p.links[i]
		from := len(charges)
		for j := range lk.limits {
			c := store.Charge{Limit: &lk.limits[j]}
			if countsRequests(c.Limit.Name) {
				c.Amount = 1000
				counts = true
			}
			charges = append(charges, c)
		}
		debits = append(debits, store.Debit{
			Bucket: lk.bucket, Charges: charges[from:len(charges):len(charges)], Epoch: lk.epoch, Ref: lk.ref,
		})
	}
	if counts {
		p.allow = debits
	}
	if !counts || len(debits) > 1 {
		p.debit[0] = store.Debit{}
	}
}

// allowDebits returns the debits of [Limiter.Allow]; nil if no limit counts requests.
func (p *plan) allowDebits() []store.Debit {
	if p.debit[0].Ref != nil {
		return p.debit[:]
	}
	return p.allow
}

// plans is a map from entity and resource to plan that is read without locks: it stands before every decision.
// A reader that meets a change under way may miss a plan; it is then made again.
type plans struct {
	limit int
	seed  maphash.Seed
	heads atomic.Pointer[[]atomic.Pointer[plan]] // a power of two
	mu    sync.Mutex                             // of writers
	size  int
}

func newPlans(limit int) *plans {
	p := &plans{limit: limit, seed: maphash.MakeSeed()}
	p.clear()
	return p
}

func (p *plans) hash(entity, resource string) uint64 {
	return maphash.String(p.seed, entity) ^ bits.RotateLeft64(maphash.String(p.seed, resource), 29)
}

func head(heads []atomic.Pointer[plan], hash uint64) *atomic.Pointer[plan] {
	return &heads[hash&uint64(len(heads)-1)]
}

func (p *plans) get(entity, resource string) *plan {
	h := p.hash(entity, resource)
	for pl := head(*p.heads.Load(), h).Load(); pl != nil; pl = pl.next.Load() {
		if pl.entity == entity && pl.resource == resource {
			return pl
		}
	}
	return nil
}

// put adds a plan that is in no map yet, in the place of the one that there was.
func (p *plans) put(pl *plan) {
	pl.hash = p.hash(pl.entity, pl.resource)
	p.mu.Lock()
	defer p.mu.Unlock()
	heads := *p.heads.Load()
	at := head(heads, pl.hash)
	pl.next.Store(at.Load())
	at.Store(pl)
	p.size++
	for from := &pl.next; ; {
		old := from.Load()
		if old == nil {
			break
		}
		if old.hash == pl.hash && old.entity == pl.entity && old.resource == pl.resource {
			from.Store(old.next.Load())
			p.size--
			break
		}
		from = &old.next
	}
	if p.size > p.limit {
		p.drop(heads)
	}
	if p.size > len(heads) {
		p.grow(heads)
	}
}

// drop forgets about an eighth of the plans, a random run of the map. They are made again when needed.
func (p *plans) drop(heads []atomic.Pointer[plan]) {
	at := rand.N(len(heads))
	for i := 0; i < len(heads) && p.size > p.limit-p.limit/8; i++ {
		head := &heads[(at+i)%len(heads)]
		for pl := head.Load(); pl != nil; pl = pl.next.Load() {
			p.size--
		}
		head.Store(nil)
	}
}

// grow doubles the map. A plan's next only ever leads to plans that were moved before it, so no reader runs in circles.
func (p *plans) grow(heads []atomic.Pointer[plan]) {
	grown := make([]atomic.Pointer[plan], 2*len(heads))
	for i := range heads {
		for pl := heads[i].Load(); pl != nil; {
			next := pl.next.Load()
			at := head(grown, pl.hash)
			pl.next.Store(at.Load())
			at.Store(pl)
			pl = next
		}
	}
	p.heads.Store(&grown)
}

func (p *plans) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	heads := make([]atomic.Pointer[plan], 64)
	p.heads.Store(&heads)
	p.size = 0
}

func (p *plans) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}
