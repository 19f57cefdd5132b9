package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Policy is what is needed to decide requests of one entity on one resource: which buckets they charge, and which
// limits apply. It is made from cached records, and lives until they expire or one of them changes. Apart from Refused,
// it is not modified once it is made.
type Policy struct {
	NamespaceID, Entity, Resource string

	Chain             []string // the entity and its parents as far as they are charged
	Targets           []Target // the members of the chain that have limits
	OnUnavailable     Mode     // unless the request sets it
	UsesBroaderLimits bool     // it uses more general limits, because an entity's own are not known
	Thresholds        []int    // of near-limit events, from the system's record; nil for the default
	Shadowed          bool     // some limit is in shadow
	Share             Share    // the share that the limits are scaled by
	Requests          []store.Debit
	Single            *store.Charge // what Requests charge, if it is one limit of one bucket
	Refused           atomic.Int64  // refusals of Requests that the meter has not collected yet

	freshness
}

// freshness is what determines how long a policy is used.
type freshness struct {
	state      *namespaceState
	expires    int64         // nanoseconds since the resolver's start
	until      int64         // when limits begin or end next, in nanoseconds since the clock's epoch; 0: never
	phases     bool          // the namespace has had limits that begin or end
	generation atomic.Uint64 // of the namespace, up to which the policy is known to be valid
	forgotten  sync.Once     // for the cached records that it was made from
	beside     *others       // nil: nothing
}

func (p *Policy) others() others { return *cmp.Or(p.beside, new(others)) }

// Target is one bucket of a policy, with the limits that apply to it.
type Target struct {
	Bucket   store.Bucket
	Source   Source
	Manifest string // the manifest that declares the limits
	Limits   []store.Limit
	Shadow   Set // the limits that are in shadow for the entity
	Epoch    uint64

	Phase *store.Phase // when the limits hold; nil: always

	read   span           // the epochs at which the records were read
	phase  phase          // of the limits
	single *store.Charge  // of the record that the limits come from
	terms  []record.Terms // of the limits; nil if all are the default
}

// Charge returns a charge of 0 on the i-th limit.
func (t *Target) Charge(i int) store.Charge {
	var terms record.Terms
	if t.terms != nil {
		terms = t.terms[i]
	}
	c := terms.Charge(&t.Limits[i])
	c.Shadow = t.Shadow.Has(i)
	return c
}

// singleCharge returns the charge of one request if these are all the limits, there is exactly one, and it counts
// requests; otherwise nil.
func singleCharge(limits []store.Limit) *store.Charge {
	if len(limits) != 1 || !record.CountsRequests(limits[0].Name) || limits[0].IsSlots() {
		return nil
	}
	return &store.Charge{Limit: &limits[0], Amount: 1000}
}

// prepare makes, once for all calls, the debits of one request. They are nil if no limit counts requests.
func (p *Policy) prepare() {
	counts := false
	debits := make([]store.Debit, len(p.Targets))
	for i := range p.Targets {
		t := &p.Targets[i]
		charges := make([]store.Charge, len(t.Limits))
		for j := range charges {
			charges[j].Limit, charges[j].Shadow = &t.Limits[j], t.Shadow.Has(j)
			if record.CountsRequests(t.Limits[j].Name) && !t.Limits[j].IsSlots() {
				charges[j].Amount = 1000
				counts = true
			}
		}
		debits[i] = store.Debit{Bucket: t.Bucket, Charges: charges, Epoch: t.Epoch, Phase: t.Phase}
	}
	if counts {
		p.Requests = debits
	}
	if len(p.Targets) == 1 && p.Targets[0].Bucket == p.Bucket() && !p.Shadowed && p.Share.Num > 0 {
		p.Single = p.Targets[0].single
	}
}

// Bucket returns the bucket of the entity on the resource.
func (p *Policy) Bucket() store.Bucket {
	return store.Bucket{Namespace: p.NamespaceID, Entity: p.Entity, Resource: p.Resource}
}

// Target returns the target of a bucket; nil if there is none.
func (p *Policy) Target(b store.Bucket) *Target {
	for i := range p.Targets {
		if p.Targets[i].Bucket == b {
			return &p.Targets[i]
		}
	}
	return nil
}

// Override returns the debit of a request that brings its own limits, with no amounts. The errors are
// [*record.FieldError].
func (p *Policy) Override(limits []record.Limit) (store.Debit, error) {
	valid, err := record.ValidateLimits(limits)
	if err != nil {
		return store.Debit{}, err
	}
	if len(valid) > store.MaxOverrides {
		return store.Debit{}, record.Invalid("limits", "may hold at most %d overriding limits", store.MaxOverrides)
	}
	stored := make([]store.Limit, len(valid))
	d := store.Debit{Bucket: p.Bucket(), Charges: make([]store.Charge, len(valid))}
	for i, lim := range valid {
		if lim.Enforce != record.EnforceOn {
			return store.Debit{}, record.Invalid("limit "+lim.Name+": enforce",
				"must be on: the limits of a request are enforced")
		}
		if lim.Balance || lim.IsSlots() {
			return store.Debit{}, record.Invalid("limit "+lim.Name, "is no rate or quota: a request cannot bring it")
		}
		stored[i] = p.Share.Step().Of(lim.Stored(true))
		d.Charges[i] = lim.Terms().Charge(&stored[i])
	}
	return d, p.Share.divides(stored)
}

// InShadow reports whether a limit is in shadow for the bucket's entity.
func (p *Policy) InShadow(b store.Bucket, limit string) bool {
	t := p.Target(b)
	if t == nil {
		return false
	}
	at := slices.IndexFunc(t.Limits, func(l store.Limit) bool { return l.Name == limit })
	return at >= 0 && t.Shadow.Has(at)
}

// Set is a set of a bucket's limits, one bit for each.
type Set uint64

const _ = uint(64 - record.MaxLimits) // one bit for each

// Has reports whether the i-th limit is in the set.
func (s Set) Has(i int) bool { return s>>i&1 != 0 }

// shadowsOf returns which limits are in shadow for an entity. If all limits are enforced for everybody, enforce is nil.
func shadowsOf(entity string, limits []store.Limit, enforce []record.Enforce) (s Set) {
	for i, e := range enforce {
		if !e.Covers(entity, limits[i].Name) {
			s |= 1 << i
		}
	}
	return s
}

// useFormer replaces limits by their former rate, if they have one, for an entity outside their percentage.
func (t *Target) useFormer(former []store.Limit) {
	if former == nil || t.Shadow == 0 {
		return
	}
	t.Limits = slices.Clone(t.Limits)
	for i := range former {
		if t.Shadow.Has(i) && former[i].Name != "" {
			t.Limits[i] = former[i]
			t.Shadow &^= 1 << i
		}
	}
	t.single = singleCharge(t.Limits)
}

// Once returns the id of a change of the policy's buckets that the caller has given an id: one that no lease has, and
// no change in another namespace, or of another entity or resource.
func (p *Policy) Once(id string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{p.NamespaceID, p.Entity, p.Resource, id}, "\x00")))
	return "adjust:" + base64.RawURLEncoding.EncodeToString(sum[:])
}
