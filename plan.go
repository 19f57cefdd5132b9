package weir

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/store"
)

// plan is what there is to know about requests of one entity on one resource: whom they charge and which limits
// apply. It is made from cached records and lives as long as they do, or until one of them changes through this
// process.
type plan struct {
	entity, resource string
	expires          int64         // nanoseconds since the limiter's start
	generation       atomic.Uint64 // of the space, up to which the plan is known to be good

	space         *space
	chain         []string      // the entity and its parents as far as they are charged
	links         []link        // those of the chain that have limits
	own           link          // of a plan for requests that bring limits along: the entity, without limits
	allow         []store.Debit // the debits of Allow; nil if no limit counts requests
	one           *store.Charge // what Allow charges, if it is one limit of one bucket
	node          *planNode     // where the plan is kept; its Ref is the first link's
	onUnavailable Unavailable   // where the request does not say it
	guessed       bool          // it goes by more general limits, for those of an entity are not known
	doubted       bool          // whether what it goes by was changed is not known, and the stricter counts
	nearLimit     Thresholds    // of the system's record; nil: the default
	shadows       bool          // some limit is in shadow
	share         Share         // by which the limits are
	forgotten     sync.Once     // what it was made of
	refusals      atomic.Int64  // of Allow, not handed to the tallies yet
	quick         atomic.Int64  // of its quick form, which are hits of the space, too
}

// link is one bucket of a plan.
type link struct {
	bucket   store.Bucket
	source   Source
	manifest string // that declares the limits
	limits   []store.Limit
	shadow   shadows       // which of them are in shadow for the entity
	one      *store.Charge // of the view that the limits are from
	epoch    uint64
	ref      *store.Ref
}

// countsRequests says which limits [Limiter.Allow] charges.
func countsRequests(name string) bool {
	switch name {
	case "rps", "rpm", "rph", "rpd", "requests":
		return true
	}
	return false
}

// oneCharge returns what Allow charges if these are all the limits, and there is one.
func oneCharge(limits []store.Limit) *store.Charge {
	if len(limits) != 1 || !countsRequests(limits[0].Name) {
		return nil
	}
	return &store.Charge{Limit: &limits[0], Amount: 1000}
}

// prepareAllow makes the debits of [Limiter.Allow], once for all calls.
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
