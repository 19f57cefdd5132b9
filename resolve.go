package weir

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/weirlimits/weir/store"
)

// MaxDepth is the maximum number of entities in a chain: an entity, its parent, and so on.
const MaxDepth = 8

// plan returns the plan for requests of an entity on a resource; own says whether it includes the entity's own limits.
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

// makePlan walks the chain, with at most one call to the store per entity. If seen is not nil, it is called with what
// is found.
func (c *core) makePlan(ctx context.Context, namespace string, s *space, entity, resource string, own bool,
	seen func(id string, vs []view),
) (*plan, error) {
	return c.planOf(s, entity, resource, own, seen, lookup{
		share: func() Share { return c.shareOf(ctx, namespace) },
		views: func(keys []viewKey) ([]view, time.Time, error) { return c.views.Get(ctx, keys, c.loadViews) },
	})
}

// lookup is the source of the contents of a plan.
type lookup struct {
	share func() Share
	views func([]viewKey) ([]view, time.Time, error)
}

func (c *core) planOf(s *space, entity, resource string, own bool, seen func(id string, vs []view),
	from lookup,
) (*plan, error) {
	if err := errors.Join(checkID("entity", entity), checkID("resource", resource)); err != nil {
		return nil, firstOf(err)
	}
	p := &plan{space: s, entity: entity, resource: resource}
	p.generation.Store(s.generation.Load()) // before anything is read
	p.share = from.share()
	until := c.start.Add(1<<62 - 1)
	for id := entity; id != ""; {
		if len(p.chain) == MaxDepth {
			return nil, configErr("entity", "%q has a chain of more than %d entities", entity, MaxDepth)
		}
		keys := viewsOf(s, id, resource)
		if id == entity && !own {
			keys = keys[:3]
		}
		vs, good, err := from.views(keys)
		// An error in default limits does not matter if they are not used.
		if err != nil && len(keys) == 5 && errors.Is(err, errUnreadable) {
			if vs, good, _ = from.views(keys[:4]); len(vs) == 4 && len(vs[3].limits) > 0 {
				vs, err = append(vs, view{exists: true, unreadable: true}), nil
			}
		}
		if err != nil {
			return nil, err
		}
		if good.Before(until) {
			until = good
		}
		p.chain = append(p.chain, id)
		p.nearLimit = vs[1].nearLimit
		if vs[1].good() {
			s.readUnavailable(vs[1].onUnavailable, p.generation.Load())
		}
		c.addLink(p, id, vs)
		if seen != nil {
			seen(id, vs)
		}
		if id == entity && own && len(p.links) == 0 {
			return nil, &NoLimitsError{entity, resource}
		}
		id = vs[0].charged()
	}
	p.expires = int64(until.Sub(c.start))
	if !p.share.Until.IsZero() {
		p.expires = min(p.expires, max(int64(p.share.Until.Sub(c.start)), c.elapsed()+int64(shareRetry)))
	}
	p.node = &planNode{}
	p.prepareAllow()
	if p.onUnavailable == OnUnavailableLocal {
		c.outage.Want()
	}
	return p, nil
}

// addLink adds the limits of an entity, from the first level that has some. An entity without limits is not charged.
func (c *core) addLink(p *plan, id string, vs []view) {
	lk := link{
		bucket: store.Bucket{Namespace: p.space.id, Entity: id, Resource: p.resource},
		epoch:  math.MaxUint64,
	}
	if len(vs) == 3 {
		p.own = lk
		p.onUnavailable = c.onUnavailable(vs).value
		return
	}
	v := &view{}
	for _, l := range levels {
		level := &vs[l.view]
		lk.epoch = min(lk.epoch, level.epoch) // including levels without limits: they may have some by now
		if len(level.limits) > 0 {
			v = level
			break
		}
	}
	if len(v.limits) == 0 {
		return
	}
	lk.limits, lk.one = c.parts.of(p.share, v.limits, v.one)
	lk.source, lk.manifest = v.source, v.manifest
	lk.epoch += p.share.Epoch // neither ever decreases
	lk.shadow = shadowsOf(id, v.limits, v.enforce)
	lk.leaveOut(v.former)
	p.shadows = p.shadows || lk.shadow != 0
	p.links = append(p.links, lk)
	p.onUnavailable = stricter(p.onUnavailable, c.onUnavailable(vs).value)
}

// charged returns the parent that is charged, too, or "".
func (v *view) charged() string {
	if !v.entity.Cascade {
		return ""
	}
	return v.entity.Parent
}

// levels are the levels at which limits and settings are looked up, in order of precedence, and where [viewsOf] puts
// the view of each. A request that brings its own limits has no view of the first two.
var levels = []struct {
	source Source
	view   int
}{{SourceEntity, 3}, {SourceEntityDefault, 4}, {SourceResource, 2}, {SourceSystem, 1}}

// viewsOf returns the views that concern an entity on a resource: the entity, the system, the resource, and the
// entity's own limits, first on the resource, then the default ones.
func viewsOf(s *space, entity, resource string) []viewKey {
	return []viewKey{
		{s.id, entityView, entity, ""},
		{s.id, systemView, "", ""},
		{s.id, resourceView, resource, ""},
		{s.id, limitsView, entity, resource},
		{s.id, limitsView, entity, DefaultResource},
	}
}

// forget expires the cached records of a plan, because a bucket follows newer ones. If many callers find this out at
// the same time, only one expires them, so that the others share what it then loads.
func (c *core) forget(s *space, p *plan) {
	p.forgotten.Do(func() {
		c.staleShare.Store(p.share.Epoch)
		c.forgetViews(s, p)
	})
}

func (c *core) forgetViews(s *space, p *plan) {
	var keys []viewKey
	for _, id := range p.chain {
		keys = append(keys, viewsOf(s, id, p.resource)...)
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
