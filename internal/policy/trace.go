package policy

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/policy/cache"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Member is what is known of one entity of a chain.
type Member struct {
	ID      string
	Exists  bool // it was created
	Record  record.Entity
	Plan    string        // that it names, or that it has from an ancestor
	Scopes  []ScopeLimits // in order of precedence; nil if the request brings the limits of this entity
	Charged bool          // some scope has limits
	Setting Setting       // for when the store does not answer
	On      []Aggregate   // what the resource is charged to besides itself
	Next    []Change      // of the limits on the resource, and on those
}

// Aggregate is a group or the total, with the scopes of an entity's limits on it, in order of precedence.
type Aggregate struct {
	Resource string
	Scopes   []ScopeLimits
}

// ScopeLimits is what one scope holds for an entity on a resource.
type ScopeLimits struct {
	Source        Source
	Limits        []store.Limit
	Enforce       []record.Enforce // of the limits; nil if all are enforced
	OnUnavailable Mode
}

// Trace resolves a policy anew, and returns it with what it found about each entity of the chain. It also returns that
// together with a [*record.NoLimitsError]. The errors are those of [Namespace.Resolve], apart from those of the share.
func (n *Namespace) Trace(ctx context.Context, entity, resource string, own bool) (*Policy, []Member, error) {
	s, err := n.lookUp(ctx, n.elapsed())
	if err != nil {
		return nil, nil, err
	}
	var chain []Member
	p, err := n.build(s, entity, resource, own, n.fromStore(ctx, n.owning(ctx)), func(p *Policy, found *member) {
		chain = append(chain, traced(n.Resolver, p, found, own || len(chain) > 0))
	})
	return p, chain, err
}

// traced returns what was found about an entity. own is false if the request brings its limits.
func traced(r *Resolver, p *Policy, found *member, own bool) Member {
	rs := found.rs
	m := Member{
		ID: found.id, Exists: rs[slotEntity].created() && !rs[slotEntity].unreadable,
		Record: rs[slotEntity].entity, Plan: found.plan, Setting: r.setting(found),
	}
	b := store.Bucket{Namespace: p.NamespaceID, Entity: m.ID, Resource: p.Resource}
	add := func(cs []candidate) {
		if ch := next(r, p, b, cs); ch != nil {
			m.Next = append(m.Next, *ch)
		}
	}
	if own {
		add(found.candidates())
	}
	for i, cs := range found.on {
		on := Aggregate{Resource: p.others().aggregates[i]}
		for _, c := range cs {
			if c.from != "" {
				on.Scopes = append(on.Scopes, ScopeLimits{c.from, c.Limits, c.enforce, c.onUnavailable})
			}
			m.Charged = m.Charged || len(c.Limits) > 0
		}
		m.On = append(m.On, on)
		b.Resource = on.Resource
		add(cs)
	}
	for _, l := range scopes {
		rec := rs[l.slot]
		if found.plan == "" && (l.slot == slotPlan || l.slot == slotPlanDefault) {
			continue
		}
		if own {
			m.Scopes = append(m.Scopes, ScopeLimits{l.source, rec.Limits, rec.enforce, rec.onUnavailable})
		}
		m.Charged = m.Charged || len(rec.Limits) > 0
	}
	return m
}

// Manifests returns the records of manifests, in order. That of a manifest that does not exist is empty.
func (n *Namespace) Manifests(ctx context.Context, names []string) ([]record.Manifest, error) {
	id, err := n.ID(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]store.Key, len(names))
	for i, name := range names {
		keys[i] = record.ManifestKey(id, name)
	}
	got, err := n.cfg.Catalog.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	manifests := make([]record.Manifest, len(names))
	for i, r := range got.Records {
		if r.Version > 0 {
			if err := record.Decode(r, &manifests[i]); err != nil {
				return nil, err
			}
		}
	}
	return manifests, nil
}

// InForce returns the limits in force for buckets of one namespace, in order: as one read of the store shows them or,
// if the namespace has had plans, as several do. The target of a bucket for which none are set has no limits; one whose
// limits cannot be read also has Epoch 0.
func (n *Namespace) InForce(ctx context.Context, buckets []store.Bucket) ([]Target, error) {
	return n.InForceAfter(ctx, buckets, nil, 0)
}

// InForceAfter is InForce as if some records were others, of which one of Version 0 does not exist, and as of a time in
// nanoseconds since the clock's epoch; 0: now.
func (n *Namespace) InForceAfter(
	ctx context.Context, buckets []store.Bucket, after map[store.Key]store.Record, at int64,
) ([]Target, error) {
	read := make(map[store.Key]*catalogRecord)
	now := cmp.Or(at, n.asOf())
	from := lookup{now: now, records: func(keys []store.Key) ([]*catalogRecord, time.Time, error) {
		records, err := n.decoded(ctx, keys)
		if err == nil {
			records, err = replaced(records, keys, after)
		}
		var bad cache.Errors
		if err != nil && !errors.As(err, &bad) {
			return nil, time.Time{}, err
		}
		for i, k := range keys {
			read[k] = records[i].at(now)
		}
		return records, time.Time{}, nil
	}}
	keys := []store.Key{}
	for _, b := range buckets {
		for _, sc := range Scopes(b.Entity, "", b.Resource) {
			keys = append(keys, sc.Key(b.Namespace))
		}
		keys = append(keys, record.SystemKey(b.Namespace))
	}
	if _, _, err := from.records(distinct(keys)); err != nil {
		return nil, err
	}
	plans, err := n.plansOfBuckets(from, read, buckets)
	if err != nil {
		return nil, err
	}
	share := n.shareOf(ctx, n.name)
	targets := make([]Target, len(buckets))
	for i, b := range buckets {
		targets[i] = Target{Debit: new(store.Debit), limitSet: new(limitSet)}
		var cs []candidate
		for _, sc := range Scopes(b.Entity, plans[b.Entity], b.Resource) {
			c := candidate{&catalogRecord{}, SourceOf(sc), 0, nil}
			if rec := read[sc.Key(b.Namespace)]; rec != nil {
				c.catalogRecord, c.epoch = rec, rec.epoch
			}
			if c.unreadable {
				c.bad = record.ErrUnreadable
			}
			cs = append(cs, c)
		}
		p := &Policy{NamespaceID: b.Namespace, Resource: b.Resource, Share: &share}
		p.phases = read[record.SystemKey(b.Namespace)].phases
		switch err := n.charge(p, b, cs); {
		case err != nil:
		case len(p.Targets) == 0:
			targets[i].Epoch = math.MaxUint64
		default:
			targets[i] = p.Targets[0]
		}
	}
	return targets, nil
}

// replaced returns records of which some are others.
func replaced(
	records []*catalogRecord, keys []store.Key, after map[store.Key]store.Record,
) ([]*catalogRecord, error) {
	for i, k := range keys {
		r, ok := after[k]
		if !ok {
			continue
		}
		rec := catalogRecord{}
		if r.Version != 0 {
			var err error
			if rec, err = decode(k, r); err != nil {
				return nil, err
			}
		}
		records[i] = &rec
	}
	return records, nil
}

// plansOfBuckets finds the plans of the buckets whose entities have no limits of their own, and reads the limits of the
// plans on their resources.
func (n *Namespace) plansOfBuckets(
	from lookup, read map[store.Key]*catalogRecord, buckets []store.Bucket,
) (map[string]string, error) {
	var without []store.Bucket
	var ids []string
	for _, b := range buckets {
		if read[record.SystemKey(b.Namespace)].plans &&
			!slices.ContainsFunc(Scopes(b.Entity, "", b.Resource), func(sc record.Scope) bool {
				return sc.Entity != "" && len(read[sc.Key(b.Namespace)].Limits) > 0
			}) {
			without, ids = append(without, b), append(ids, b.Entity)
		}
	}
	if len(without) == 0 {
		return nil, nil
	}
	plans, err := from.plansOf(without[0].Namespace, ids)
	var keys []store.Key
	for _, b := range without {
		for _, sc := range Scopes(b.Entity, plans[b.Entity], b.Resource) {
			if sc.Plan != "" {
				keys = append(keys, sc.Key(b.Namespace))
			}
		}
	}
	if err == nil && len(keys) > 0 {
		_, _, err = from.records(distinct(keys))
	}
	return plans, err
}

// distinct removes keys that are not the first of their kind.
func distinct(keys []store.Key) []store.Key {
	seen := make(map[store.Key]bool, len(keys))
	return slices.DeleteFunc(keys, func(k store.Key) bool {
		defer func() { seen[k] = true }()
		return seen[k]
	})
}
