package weir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirlimits/weir/internal/catalogcache"
	"github.com/weirlimits/weir/store"
)

// MaxDepth is how many entities a chain has at most: an entity, its parent, and so on.
const MaxDepth = 8

// viewKey names what the limiter remembers of the catalog as one piece.
type viewKey struct {
	space    string
	kind     viewKind
	id       string
	resource string
}

type viewKind byte

const (
	entityView    viewKind = iota // an entity's own record
	limitsView                    // its limits on a resource, or its default ones
	resourceView                  // a resource's limits
	systemView                    // the namespace's limits and settings
	namespaceView                 // a namespace by name
)

// view is a piece of the catalog, decoded.
type view struct {
	exists        bool
	entity        entityRecord
	limits        []store.Limit
	enforce       []Enforce     // of the limits; nil if all are enforced
	former        []store.Limit // what they are for those whom a percentage leaves out; nil if no limit has one
	one           *store.Charge // see oneCharge
	source        Source
	manifest      string // that declares the limits
	also          bool   // the entity has default limits besides
	onUnavailable Unavailable
	nearLimit     Thresholds
	namespace     namespaceRecord
	epoch         uint64
}

// keys returns the records that a view is made of.
func (k viewKey) keys() []store.Key {
	switch k.kind {
	case entityView:
		return []store.Key{entityKey(k.space, k.id)}
	case limitsView:
		return []store.Key{entityLimitsKey(k.space, k.id, k.resource), entityLimitsKey(k.space, k.id, DefaultResource)}
	case resourceView:
		return []store.Key{resourceKey(k.space, k.id)}
	case systemView:
		return []store.Key{systemKey(k.space)}
	default:
		return []store.Key{namespaceKey(k.id)}
	}
}

// loadViews reads views of one namespace in one call of the store.
func (c *core) loadViews(ctx context.Context, keys []viewKey) ([]view, error) {
	var wanted []store.Key
	for _, k := range keys {
		wanted = append(wanted, k.keys()...)
	}
	began := time.Now()
	got, err := c.store.Get(ctx, wanted...)
	c.observeCall(ctx, "get", began, err)
	if err != nil {
		return nil, err
	}
	views := make([]view, len(keys))
	var bad catalogcache.Errors
	rest := got.Records
	for i, k := range keys {
		n := len(k.keys())
		if views[i], err = k.decode(rest[:n]); err != nil {
			if bad == nil { // the other records are good
				bad = make(catalogcache.Errors, len(keys))
			}
			bad[i] = err
			if f := c.cfg.Observer.Unreadable; f != nil {
				f(ctx, UnreadableEvent{err})
			}
		}
		views[i].epoch = got.Epoch
		rest = rest[n:]
	}
	if bad != nil {
		return views, bad
	}
	return views, nil
}

// lastGood returns a view as Config.LastGood knows it.
func (c *core) lastGood(k viewKey) (view, bool) {
	if c.cfg.LastGood == nil {
		return view{}, false
	}
	keys := k.keys()
	got, ok := c.cfg.LastGood(keys)
	if !ok || len(got.Records) != len(keys) {
		return view{}, false
	}
	v, err := k.decode(got.Records)
	v.epoch = got.Epoch
	return v, err == nil
}

func (k viewKey) decode(records []store.Record) (v view, err error) {
	for i, r := range records {
		if r.Version == 0 {
			continue
		}
		v.exists = true
		switch k.kind {
		case entityView:
			err = decodeRecord(r, &v.entity)
		case namespaceView:
			err = decodeRecord(r, &v.namespace)
		default:
			var lr limitsRecord
			err = decodeRecord(r, &lr)
			v.manifest = lr.Managed.name()
			v.onUnavailable, v.nearLimit = lr.OnUnavailable, lr.NearLimit
			for _, l := range lr.Limits {
				valid, bad := l.validate()
				if bad != nil {
					return v, unreadable(r, bad)
				}
				v.limits = append(v.limits, valid.stored(false))
				if valid.Enforce != EnforceOn && v.enforce == nil {
					v.enforce = make([]Enforce, len(lr.Limits))
				}
				if v.enforce != nil {
					v.enforce[len(v.limits)-1] = valid.Enforce
				}
				if valid.Former != (Rate{}) {
					if v.former == nil {
						v.former = make([]store.Limit, len(lr.Limits))
					}
					v.former[len(v.limits)-1] = valid.former().stored(false)
				}
			}
			v.source = map[viewKind]Source{limitsView: SourceEntity, resourceView: SourceResource, systemView: SourceSystem}[k.kind]
			if i == 1 {
				v.source = SourceEntityDefault
			}
		}
		if err != nil || len(v.limits) > 0 {
			v.one = oneCharge(v.limits)
			v.also = k.kind == limitsView && i == 0 && records[1].Version != 0
			return v, err
		}
	}
	return v, nil
}

func decodeRecord(r store.Record, into any) error {
	if err := json.Unmarshal(r.Value, into); err != nil {
		return unreadable(r, err)
	}
	return nil
}

// errUnreadable tells what the store answered, and cannot be used, from no answer.
var errUnreadable = errors.New("unreadable")

func unreadable(r store.Record, err error) error {
	return &StoreError{Op: "read", Key: r.Key.String(), Err: fmt.Errorf("%w: %w", errUnreadable, err), Hint: "the record was not written by weir, or by a newer one"}
}

// plan returns what applies to requests of an entity on a resource; own says whether with the entity's own limits.
func (l *Limiter) plan(ctx context.Context, entity, resource string, own bool) (*space, *plan, error) {
	now := l.core.elapsed()
	s, err := l.space(ctx, now)
	if err != nil {
		return nil, nil, err
	}
	known := s.plans
	if !own {
		known = s.chains
	}
	if n := known.find(entity, resource); n != nil && now < n.plan.expires && s.current(n.plan) {
		n.generation.Store(uint32(n.plan.generation.Load()))
		s.hits.add()
		return s, n.plan, n.plan.usable()
	}
	p, err := l.core.makePlan(ctx, l.name, s, entity, resource, own, nil)
	if err != nil {
		return s, nil, err
	}
	if l.core.cfg.CacheTTL > 0 {
		known.put(p)
	}
	return s, p, p.usable()
}

// makePlan walks the chain, one call of the store per entity at most. It shows seen, if not nil, what it finds.
func (c *core) makePlan(ctx context.Context, namespace string, s *space, entity, resource string, own bool, seen func(id string, vs []view)) (*plan, error) {
	return c.planOf(s, entity, resource, own, seen, lookup{
		share: func() Share { return c.shareOf(ctx, namespace) },
		views: func(keys []viewKey) ([]view, time.Time, error) { return c.views.Get(ctx, keys, c.loadViews) },
	})
}

// lookup is where what a plan is made of comes from.
type lookup struct {
	share func() Share
	views func([]viewKey) ([]view, time.Time, error)
}

func (c *core) planOf(s *space, entity, resource string, own bool, seen func(id string, vs []view), from lookup) (*plan, error) {
	if err := errors.Join(checkID("entity", entity), checkID("resource", resource)); err != nil {
		return nil, firstOf(err)
	}
	p := &plan{space: s, entity: entity, resource: resource}
	p.generation.Store(s.generation.Load()) // before anything is read
	p.share = from.share()
	until := c.start.Add(1<<62 - 1)
	for id := entity; id != ""; {
		if len(p.chain) == MaxDepth {
			return nil, configErr("entity", "%q has a chain of parents deeper than %d", entity, MaxDepth)
		}
		keys := []viewKey{
			{s.id, entityView, id, ""},
			{s.id, systemView, "", ""},
			{s.id, limitsView, id, resource},
			{s.id, resourceView, resource, ""},
		}
		if id == entity && !own {
			keys = keys[:2]
		}
		vs, good, err := from.views(keys)
		if err != nil {
			return nil, err
		}
		if good.Before(until) {
			until = good
		}
		p.chain = append(p.chain, id)
		p.onUnavailable, p.nearLimit = vs[1].onUnavailable, vs[1].nearLimit
		s.noteUnavailable(p.onUnavailable)
		c.addLink(p, id, vs)
		if seen != nil {
			seen(id, vs)
		}
		if id == entity && own && len(p.links) == 0 {
			return nil, &NoLimitsError{entity, resource}
		}
		if id = ""; vs[0].entity.Cascade {
			id = vs[0].entity.Parent
		}
	}
	p.expires = int64(until.Sub(c.start))
	if !p.share.Until.IsZero() {
		p.expires = min(p.expires, max(int64(p.share.Until.Sub(c.start)), c.elapsed()+int64(shareRetry)))
	}
	p.node = &planNode{}
	if len(p.links) > 0 {
		p.links[0].ref = &p.node.ref
	}
	p.prepareAllow()
	return p, nil
}

// addLink adds the limits of an entity, from the first level that has some. An entity without any is not charged.
func (c *core) addLink(p *plan, id string, vs []view) {
	lk := link{
		bucket: store.Bucket{Namespace: p.space.id, Entity: id, Resource: p.resource},
		epoch:  math.MaxUint64,
		ref:    new(store.Ref),
	}
	if len(vs) == 2 {
		p.own = lk
		return
	}
	for _, v := range []view{vs[2], vs[3], vs[1]} {
		lk.epoch = min(lk.epoch, v.epoch) // also of a level that has none: it might have some since
		if len(v.limits) > 0 {
			lk.limits, lk.one = c.parts.of(p.share, v.limits, v.one)
			lk.source, lk.manifest = v.source, v.manifest
			lk.epoch += p.share.Epoch // both only grow
			lk.shadow = shadowsOf(id, v.limits, v.enforce)
			lk.leaveOut(v.former)
			p.shadows = p.shadows || lk.shadow != 0
			p.links = append(p.links, lk)
			return
		}
	}
}

// forget drops what is remembered of a plan's records, because a bucket follows newer ones. Of many callers that find
// this out at a time, one does it: the others are to share what it then loads.
func (c *core) forget(s *space, p *plan) {
	p.forgotten.Do(func() {
		c.staleShare.Store(p.share.Epoch)
		c.forgetViews(s, p)
	})
}

func (c *core) forgetViews(s *space, p *plan) {
	keys := []viewKey{{s.id, systemView, "", ""}, {s.id, resourceView, p.resource, ""}}
	for _, id := range p.chain {
		keys = append(keys, viewKey{s.id, entityView, id, ""}, viewKey{s.id, limitsView, id, p.resource})
	}
	c.views.Expire(keys...)
	for _, id := range p.chain {
		s.changed(change{entity: id, resource: p.resource})
	}
}

// firstOf returns the first of joined errors.
func firstOf(err error) error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()[0]
	}
	return err
}
