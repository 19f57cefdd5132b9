package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// MaxDepth is the maximum number of entities in a chain: an entity, its parent, and so on.
const MaxDepth = 8

// NoLimitsError reports that no scope has limits for an entity on a resource.
type NoLimitsError struct{ Entity, Resource string }

// Error names the entity and the resource.
func (e *NoLimitsError) Error() string {
	return fmt.Sprintf("no limits apply to entity %q on resource %q", e.Entity, e.Resource)
}

// Resolve returns the policy for requests of an entity on a resource. own is false for a request that brings its own
// limits: the policy then has only the limits of the parents. If the share allows no decision, it returns the policy
// and [ErrNoShare] or [ErrShareExpired].
//
// Other errors: [*record.FieldError], [*NoLimitsError], [ErrNotFound] if the namespace does not exist, store errors.
func (n *Namespace) Resolve(ctx context.Context, entity, resource string, own bool) (*Policy, error) {
	if e := n.fresh(entity, resource, own); e != nil {
		n.Hit(e)
		return e.Policy, e.Policy.usable()
	}
	now := n.elapsed()
	s, err := n.lookUp(ctx, now)
	if err != nil {
		return nil, err
	}
	cached := s.policies(own)
	if e := cached.find(entity, resource); e != nil && now < e.Policy.expires && s.current(e.Policy) {
		e.generation.Store(uint32(e.Policy.generation.Load()))
		n.Hit(e)
		return e.Policy, e.Policy.usable()
	}
	p, err := n.build(s, entity, resource, own, n.fromStore(ctx), nil)
	if err != nil {
		return nil, err
	}
	if n.cfg.TTL > 0 {
		cached.put(p)
	}
	return p, p.usable()
}

// Cached returns the entry of a cached policy with Requests that charge one limit of one bucket; nil if there is none
// that is certainly valid. If it is used, the caller must call Hit.
func (n *Namespace) Cached(entity, resource string) *Entry {
	if e := n.fresh(entity, resource, true); e != nil && e.Single != nil {
		return e
	}
	return nil
}

// fresh returns the entry of a cached policy that is valid even if the coarse clock is a tick behind; nil if there is
// none.
func (n *Namespace) fresh(entity, resource string, own bool) *Entry {
	now := n.clock.read(n.start)
	s := n.pinned
	if s == nil {
		f := n.found.Load()
		if f == nil || f.registry != n.registry.Load() || int64(now+1)*tick >= f.until {
			return nil
		}
		s = f.state
	}
	generation := uint32(s.generation.Load())
	e := s.policies(own).find(entity, resource)
	if e == nil || now >= e.expires || e.generation.Load() != generation {
		return nil
	}
	return e
}

// Hit counts the use of a cached policy.
func (r *Resolver) Hit(e *Entry) { r.hits.add(e.stripe) }

// lookup is where the contents of a policy come from.
type lookup struct {
	share   func() Share
	records func([]store.Key) ([]catalogRecord, time.Time, error)
}

func (n *Namespace) fromStore(ctx context.Context) lookup {
	return lookup{
		share: func() Share { return n.shareOf(ctx, n.name) },
		records: func(keys []store.Key) ([]catalogRecord, time.Time, error) {
			return n.records.Get(ctx, keys, n.load)
		},
	}
}

// CheckIDs returns a [*record.FieldError] if no request can have these ids. Resolve checks them when it makes a policy.
func CheckIDs(entity, resource string) error {
	return cmp.Or(record.CheckID("entity", entity), record.CheckID("resource", resource))
}

// build makes a policy. It walks the chain, with at most one call to the store per entity. If seen is not nil, it is
// called with what is found about each.
func (r *Resolver) build(
	s *namespaceState, entity, resource string, own bool, from lookup, seen func(id string, rs []catalogRecord),
) (*Policy, error) {
	if err := CheckIDs(entity, resource); err != nil {
		return nil, err
	}
	p := &Policy{NamespaceID: s.id, Entity: entity, Resource: resource, freshness: freshness{state: s}}
	p.generation.Store(s.generation.Load()) // before anything is read
	p.Share = from.share()
	until := r.start.Add(1<<62 - 1)
	for id := entity; id != ""; {
		if len(p.Chain) == MaxDepth {
			return nil, record.Invalid("entity", "%q has a chain of more than %d entities", entity, MaxDepth)
		}
		keys := recordsOf(s.id, id, resource)
		if id == entity && !own {
			keys = keys[:slotsBeforeOwn]
		}
		rs, good, err := from.read(keys)
		if err != nil {
			return nil, err
		}
		if good.Before(until) {
			until = good
		}
		if system := &rs[slotSystem]; system.good() {
			s.read(system.onUnavailable, p.generation.Load())
		}
		r.add(p, id, rs)
		if seen != nil {
			seen(id, rs)
		}
		if id == entity && own && len(p.Targets) == 0 {
			return nil, &NoLimitsError{entity, resource}
		}
		id = rs[slotEntity].charged()
	}
	p.expires = int64(until.Sub(r.start))
	if !p.Share.Until.IsZero() {
		p.expires = min(p.expires, max(int64(p.Share.Until.Sub(r.start)), r.elapsed()+int64(shareRetry)))
	}
	p.prepare()
	if p.OnUnavailable == ModeLocal {
		r.cfg.OnLocal()
	}
	return p, nil
}

// read returns the records of an entity. An error in default limits does not matter if they are not used.
func (from lookup) read(keys []store.Key) ([]catalogRecord, time.Time, error) {
	rs, good, err := from.records(keys)
	if err == nil || len(keys) <= slotDefaultLimits || !errors.Is(err, record.ErrUnreadable) {
		return rs, good, err
	}
	rs, good, _ = from.records(keys[:slotDefaultLimits])
	if len(rs) != slotDefaultLimits || len(rs[slotLimits].limits) == 0 {
		return nil, good, err
	}
	return append(rs, catalogRecord{exists: true, unreadable: true}), good, nil
}

// add adds an entity to a policy, with its limits from the first scope that has some. An entity without limits is not
// charged.
func (r *Resolver) add(p *Policy, id string, rs []catalogRecord) {
	p.Chain = append(p.Chain, id)
	p.Thresholds = rs[slotSystem].nearLimit
	t := Target{
		Bucket: store.Bucket{Namespace: p.NamespaceID, Entity: id, Resource: p.Resource},
		Epoch:  math.MaxUint64,
	}
	if len(rs) == slotsBeforeOwn {
		p.OverrideBucket = t.Bucket
		p.OnUnavailable = r.setting(rs).Mode
		return
	}
	from := &catalogRecord{}
	for _, l := range scopes {
		scope := &rs[l.slot]
		t.Epoch = min(t.Epoch, scope.epoch) // including scopes without limits: they may have some by now
		if len(scope.limits) > 0 {
			from = scope
			break
		}
	}
	if len(from.limits) == 0 {
		return
	}
	t.Limits, t.single = r.scaled.of(p.Share, from.limits, from.single)
	t.Source, t.Manifest = from.source, from.manifest
	t.Epoch += p.Share.Epoch // neither ever decreases
	t.Shadow = shadowsOf(id, from.limits, from.enforce)
	t.useFormer(from.former)
	p.Shadowed = p.Shadowed || t.Shadow != 0
	p.Targets = append(p.Targets, t)
	p.OnUnavailable = Stricter(p.OnUnavailable, r.setting(rs).Mode)
}

// setting returns the mode that applies to an entity with these records: that of the first scope that has one. A scope
// that cannot be read means ModeDeny.
func (r *Resolver) setting(rs []catalogRecord) Setting {
	if rs[slotEntity].unreadable {
		return Setting{ModeDeny, string(SourceEntity)}
	}
	for _, scope := range scopes {
		if scope.slot >= len(rs) {
			continue
		}
		switch rec := &rs[scope.slot]; {
		case rec.unreadable:
			return Setting{ModeDeny, string(scope.source)}
		case rec.onUnavailable != ModeDefault:
			return Setting{rec.onUnavailable, string(scope.source)}
		}
	}
	return Setting{r.cfg.Default, "config"}
}

// shareOf returns the part of a namespace's limits that applies.
func (r *Resolver) shareOf(ctx context.Context, namespace string) Share {
	if r.shares == nil {
		return Whole
	}
	if stale := r.staleShare.Swap(0); stale > 0 {
		r.shares.Stale(ctx, stale)
	}
	return r.lastShare(namespace)
}

// lastShare returns the part that applies as far as is known.
func (r *Resolver) lastShare(namespace string) Share {
	if r.shares == nil {
		return Whole
	}
	sh := r.shares.Share(namespace)
	if sh.Den <= 0 || sh.Num < 0 || sh.Num > sh.Den {
		sh.Num, sh.Den = 0, 1
	}
	return sh
}
