package weir

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/store"
)

// plan is what is needed to decide requests of one entity on one resource: which buckets they charge, and which limits
// apply. It is made from cached records, and lives until they expire or one of them changes through this process.
type plan struct {
	entity, resource string
	expires          int64         // nanoseconds since the limiter's start
	generation       atomic.Uint64 // of the space, up to which the plan is known to be valid

	space         *space
	chain         []string      // the entity and its parents as far as they are charged
	links         []link        // the members of the chain that have limits
	own           link          // in a plan for requests that bring limits: the entity, without limits
	allow         []store.Debit // the debits of Allow; nil if no limit counts requests
	one           *store.Charge // what Allow charges, if it is one limit of one bucket
	node          *planNode     // where the plan is kept; its Ref is the first link's
	onUnavailable OnUnavailable // unless the request sets it
	guessed       bool          // it uses more general limits, because an entity's own are not known
	nearLimit     Thresholds    // from the system's record; nil for the default
	shadows       bool          // some limit is in shadow
	share         Share         // the share that the limits are scaled by
	forgotten     sync.Once     // for the cached records that it was made from
	refusals      atomic.Int64  // by Allow, not yet collected by the meter
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
	ref      *store.Ref
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
		debits[i] = store.Debit{Bucket: lk.bucket, Charges: charges, Epoch: lk.epoch, Ref: lk.ref}
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
