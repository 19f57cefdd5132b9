package policy

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Changed makes the resolver read records again that were changed elsewhere, before the next decision that depends on
// them. The cached contents stay in use while the store does not answer, and if its answer cannot be used. Changed
// reads nothing itself; an unnecessary call costs one read.
//
// Keys are those of the store, with the namespace's opaque id. Records of kinds that decisions do not depend on are
// ignored. A key without a Sub means all limits of the entity, one without a Kind all records of the namespace, and
// [store.Registry] without a Kind the names of all namespaces.
func (r *Resolver) Changed(keys ...store.Key) {
	type owner struct {
		namespace string
		kind      store.Kind
		id        string
	}
	owners, namespaces := make(map[owner]bool), make(map[string]bool) // of which many records are read again
	var expired []store.Key
	for _, k := range keys {
		switch {
		// The epoch of a policy is only as new as that of its oldest record.
		case (k.Kind == store.KindEntityLimits || k.Kind == store.KindPlanLimits) &&
			(k.Sub == record.DefaultResource || k.Sub == ""):
			owners[owner{k.Namespace, k.Kind, k.ID}] = true
		case k.Kind == "":
			namespaces[k.Namespace] = true
		case cached(k.Kind):
			expired = append(expired, k)
		}
	}
	r.records.Expire(expired...)
	if len(owners)+len(namespaces) > 0 { // in one pass, since it looks at everything that is cached
		r.records.ExpireFunc(func(k store.Key) bool {
			return namespaces[k.Namespace] || owners[owner{k.Namespace, k.Kind, k.ID}]
		})
	}
	for _, k := range keys { // policies last: one made earlier could be based on a record about to change
		if k.Kind == store.KindNamespace || k.Kind == "" && k.Namespace == store.Registry {
			r.registry.Add(1)
		} else if k.Kind == record.KindShares {
			r.SharesChanged()
		} else if ch, ok := changeOf(k); ok {
			if s := r.used(k.Namespace); s != nil {
				s.changed(ch)
			}
		}
	}
}

// ChangedWithin makes the resolver read everything in a namespace again, after a change whose records are not known:
// the limits of the system and of resources before the next decision, entities and their limits at some time within the
// given duration, so that a busy namespace is not read as a whole after each change. See [Resolver.Changed].
func (r *Resolver) ChangedWithin(namespaceID string, within time.Duration) {
	r.records.ExpireWithin(func(k store.Key) (time.Duration, bool) {
		if k.Kind == store.KindEntity || k.Kind == store.KindEntityLimits {
			return within, k.Namespace == namespaceID
		}
		return 0, k.Namespace == namespaceID
	})
	if s := r.used(namespaceID); s != nil {
		s.changed(change{all: true})
	}
}

// Expire makes the resolver read everything again, in all namespaces; see [Resolver.Changed].
func (r *Resolver) Expire() {
	r.records.ExpireFunc(func(store.Key) bool { return true })
	r.SharesChanged() // which makes all policies again
	r.registry.Add(1)
}

// SharesChanged makes the resolver read the shares again. Decisions in progress use the previous ones.
func (r *Resolver) SharesChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.states {
		s.changed(change{all: true})
	}
}

// changeOf returns which policies the change of a record affects.
func changeOf(k store.Key) (change, bool) {
	switch k.Kind {
	case store.KindEntity:
		return change{entity: k.ID}, true
	case store.KindEntityLimits, store.KindPlanLimits, store.KindResourceLimits:
		sc := record.ScopeOf(k)
		return change{sc == (record.Scope{}), sc.Entity, sc.Plan, sc.Resource}, true
	case store.KindSystem, "":
		return change{all: true}, true
	default:
		return change{}, false
	}
}

// Forget makes the resolver read again the records that the policy was made from, because a bucket follows newer ones.
// If many callers find this out at the same time, only one of them does it, so that the others share what it then
// loads.
func (p *Policy) Forget() {
	p.forgotten.Do(func() {
		s := p.state
		s.resolver.staleShare.Store(p.Share.Epoch)
		s.resolver.records.Expire(p.keys()...)
		for _, id := range p.chain() {
			s.changed(change{entity: id, resource: p.Resource})
		}
	})
}

// keys names the records that the policy was made from.
func (p *Policy) keys() (keys []store.Key) {
	others, chain := p.others(), p.chain()
	for _, id := range chain {
		keys = append(keys, recordsOf(p.NamespaceID, id, p.Resource)...)
	}
	for _, plan := range others.plans {
		keys = append(keys, planRecordsOf(p.NamespaceID, plan, p.Resource)...)
	}
	for _, id := range others.above {
		keys = append(keys, record.EntityKey(p.NamespaceID, id))
	}
	for _, a := range others.aggregates {
		keys = append(keys, record.Scope{Resource: a}.Key(p.NamespaceID))
		for _, id := range chain {
			keys = append(keys, record.Scope{Entity: id, Resource: a}.Key(p.NamespaceID))
		}
		for _, plan := range others.plans {
			keys = append(keys, record.Scope{Plan: plan, Resource: a}.Key(p.NamespaceID))
		}
	}
	return keys
}

// behind reports whether a bucket would get other limits than by the policy before, although some of the records were
// read before the change: the epoch would be older than the change, and another process that has read the others since
// would not find out, or bring the former limits back.
func (p *Policy) behind(before *Policy) bool {
	for i := range p.Targets {
		t := &p.Targets[i]
		b := before.Target(t.Bucket)
		if b == nil || slices.Equal(t.Limits, b.Limits) {
			continue
		}
		mixed := t.read.min < t.read.max && p.Share.Epoch == before.Share.Epoch && !t.switched(b)
		if t.Epoch <= b.Epoch || mixed {
			return true
		}
	}
	return false
}
