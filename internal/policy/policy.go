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
// limits apply. It is made from cached records, and lives until they expire or one of them changes. Apart from Refused
// and Known, it is not modified once it is made. There is one for each entity in use, so that what is the same for
// many of them is behind a pointer. What Allow needs comes first, on few cache lines.
type Policy struct {
	Entity, Resource string
	entry
	Single   *store.Charge // what Requests charge, if it is one limit of one bucket
	Share    *Share        // that the limits are scaled by
	Requests []store.Debit // of one request; nil if no limit counts requests
	Refused  atomic.Int64  // refusals of Requests that the meter has not collected yet

	NamespaceID   string
	Targets       []Target // of the entity and its parents, as far as they have limits
	OnUnavailable Mode     // unless the request sets it
	Thresholds    []int    // of near-limit events, from the system's record; nil for the default

	made
}

// entry is a policy's place in the map of policies.
type entry struct {
	next       atomic.Pointer[Policy]
	Known      atomic.Value  // where a store in the process keeps the only bucket
	expires    atomic.Int64  // nanoseconds since the resolver's start; negative: for Known alone, without the store
	generation atomic.Uint64 // of the namespace, up to which the policy is known to be valid
}

// made is what a policy was made from.
type made struct {
	UsesBroaderLimits bool      // it uses more general limits, because an entity's own are not known
	Shadowed          bool      // some limit is in shadow
	phases            bool      // the namespace has had limits that begin or end
	forgotten         sync.Once // for the cached records
	state             *namespaceState
	until             int64   // when limits begin or end next, in nanoseconds since the clock's epoch; 0: never
	beside            *others // nil: nothing
}

func (p *Policy) others() others { return *cmp.Or(p.beside, new(others)) }

// chain returns the entity and its parents, as far as they are charged.
func (p *Policy) chain() []string { return append([]string{p.Entity}, p.others().parents...) }

// Target is one bucket of a policy, with the limits that apply to it.
type Target struct {
	*store.Debit // of one request
	*limitSet
	Shadow Set   // the limits that are in shadow for the entity
	read   span  // the epochs at which the records were read
	phase  phase // of the limits
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

// charge sets what one request is charged.
func (s *limitSet) charge() {
	s.charges = make([]store.Charge, len(s.Limits))
	for i := range s.Limits {
		l := &s.Limits[i]
		if s.charges[i].Limit = l; record.CountsRequests(l.Name) && !l.IsSlots() {
			s.charges[i].Amount, s.counts = 1000, true
		}
	}
}

// prepare makes, once for all calls, what one request is charged.
func (p *Policy) prepare() {
	for i := range p.Targets {
		t := &p.Targets[i]
		if t.Charges = t.charges; t.Shadow != 0 {
			t.Charges = slices.Clone(t.charges)
			for j := range t.Charges {
				t.Charges[j].Shadow = t.Shadow.Has(j)
			}
		}
	}
	if !slices.ContainsFunc(p.Targets, func(t Target) bool { return t.counts }) {
		p.Requests = nil
	} else if len(p.Targets) == 1 && p.Targets[0].Bucket == p.Bucket() && !p.Shadowed && p.Share.Num > 0 &&
		len(p.Requests[0].Charges) == 1 {
		p.Single = &p.Requests[0].Charges[0]
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

// useFormer replaces limits by the share of their former rate, if they have one, for an entity outside a percentage.
func (t *Target) useFormer(former []store.Limit, sh *Share) {
	if former == nil || t.Shadow == 0 {
		return
	}
	set := *t.limitSet
	set.Limits = slices.Clone(set.Limits)
	for i := range former {
		if t.Shadow.Has(i) && former[i].Name != "" {
			set.Limits[i] = sh.Of(former[i])
			t.Shadow &^= 1 << i
		}
	}
	set.charge()
	t.limitSet = &set
}

// Once returns the id of a change of the policy's buckets that the caller has given an id: one that no lease has, and
// no change in another namespace, or of another entity or resource.
func (p *Policy) Once(id string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{p.NamespaceID, p.Entity, p.Resource, id}, "\x00")))
	return "adjust:" + base64.RawURLEncoding.EncodeToString(sum[:])
}
