package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// readUnavailable remembers the on_unavailable of the system's record as read at a generation, unless it may have
// changed since.
func (s *space) readUnavailable(u OnUnavailable, generation uint64) {
	if have := s.unavailable.Load(); have != nil && *have == u {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation.Load() == generation {
		s.unavailable.Store(&u)
	}
}

// knownSpace returns the limiter's namespace as it was last looked up, or as [Config.LastGood] knows it; nil if
// neither. It is gone if it was deleted through this process, or cannot be read.
func (l *Limiter) knownSpace() (s *space, gone bool) {
	if l.pinned != nil {
		return l.pinned, false
	}
	f := l.found.Load()
	if f != nil && f.registry == l.core.registry.Load() {
		return f.space, false
	}
	vs, ok := l.core.views.Known([]viewKey{{kind: namespaceView, id: l.name}})
	switch {
	case !ok && f != nil:
		return f.space, false
	case !ok:
		return nil, false
	case !vs[0].exists || vs[0].unreadable || vs[0].namespace.Deleted != nil:
		return nil, vs[0].exists || vs[0].noted
	}
	return l.core.space(vs[0].namespace.ID), false
}

// known returns the plan for requests as far as it is known, however old, without asking the store; nil if it is not
// known.
func (l *Limiter) known(entity, resource string, own bool) *plan {
	s, _ := l.knownSpace()
	if s == nil {
		return nil
	}
	plans := s.plans
	if !own {
		plans = s.chains
	}
	if n := plans.find(entity, resource); n != nil && s.current(n.plan) {
		return n.plan
	}
	guessed := false
	p, err := l.core.planOf(s, entity, resource, own, nil, lookup{
		share: func() Share { return l.core.lastShare(l.name) },
		views: func(keys []viewKey) ([]view, time.Time, error) {
			vs, unknown := l.core.viewsKnown(keys)
			switch {
			case unknown[systemView], unknown[resourceView]:
				return nil, time.Time{}, errUnknown
			case slices.ContainsFunc(vs, func(v view) bool { return v.unreadable }): // an entity whose limits cannot be read is not an unknown one
				return nil, time.Time{}, errUnreadable
			}
			guessed = guessed || len(unknown) > 0
			return vs, l.core.start, nil // already expired
		},
	})
	if err != nil {
		return nil
	}
	if p.guessed = guessed; !guessed && l.core.cfg.CacheTTL > 0 { // the next lookup may know better
		plans.put(p)
	}
	return p
}

// viewsKnown returns the views that are known, and the kinds of those that are not.
func (c *core) viewsKnown(keys []viewKey) (vs []view, unknown map[viewKind]bool) {
	for i := range keys {
		v, ok := c.views.Known(keys[i : i+1])
		if !ok {
			if unknown == nil {
				unknown = make(map[viewKind]bool)
			}
			unknown[keys[i].kind] = true
			v = []view{{}}
		}
		vs = append(vs, v[0])
	}
	return vs, unknown
}

// knownPolicy returns the on_unavailable of requests whose limits are not known, as far as it is known: the strictest
// of the chain.
func (l *Limiter) knownPolicy(entity, resource string, own bool) OnUnavailable {
	s, gone := l.knownSpace()
	switch {
	case gone:
		return OnUnavailableDeny
	case s == nil:
		return l.core.cfg.OnUnavailable
	}
	p := plan{}
	for id := entity; id != "" && len(p.chain) < MaxDepth; {
		keys := viewsOf(s, id, resource)
		if id == entity && !own {
			keys = keys[:3]
		}
		vs, unknown := l.core.viewsKnown(keys)
		if u := s.unavailable.Load(); u != nil && unknown[systemView] {
			vs[1].onUnavailable = *u
		}
		p.onUnavailable = stricter(p.onUnavailable, l.core.onUnavailable(vs).value)
		p.chain = append(p.chain, id)
		id = vs[0].charged()
	}
	return p.onUnavailable
}

// mistake returns the error in a request, unless the limits are guessed: then nobody knows whether it is one.
func (p *plan) mistake(err, cause error) error {
	if err == nil || !p.guessed {
		return err
	}
	return unknownLimits(p.entity, p.resource, cause)
}

func unknownLimits(entity, resource string, cause error) error {
	return &unavailableError{&StoreError{
		Op: "take", Key: fmt.Sprintf("entity %q on resource %q", entity, resource), Err: cause,
		Hint: "the limits are not known to this process, so it cannot admit a share of them",
	}}
}

// resolveKnown finds a part's plan, without asking a store that does not answer. It returns the space.
func (l *Limiter) resolveKnown(ctx context.Context, pt *part) (s *space, err error) {
	own := len(pt.req.Limits) == 0
	if l.core.outage.Down() {
		if p := l.known(pt.req.Entity, pt.req.Resource, own); p != nil {
			pt.plan = p
			return p.space, nil
		}
	}
	within, end := l.core.decideWithin(ctx)
	defer end()
	s, pt.plan, err = l.plan(within, pt.req.Entity, pt.req.Resource, own)
	return s, err
}

var errUnknown = errors.New("the limits are not known")
