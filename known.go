package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir/store"
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
			// An entity whose limits cannot be read is not an unknown one.
			case slices.ContainsFunc(vs, func(v view) bool { return v.unreadable }):
				return nil, time.Time{}, errUnreadable
			}
			guessed = guessed || len(unknown) > 0
			return vs, l.core.start, nil // already expired
		},
	})
	if err != nil {
		return nil
	}
	if p.usesBroaderLimits = guessed; !guessed && l.core.cfg.CacheTTL > 0 { // the next lookup may know better
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
	if err == nil || !p.usesBroaderLimits {
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

// follow updates what this process knows after a commit. Records that were written are the last good ones, should an
// outage begin before they are read back; while the store answers, decisions read them again, because their epoch is
// not known. After an error, what was known stays in use until it is read again.
func (c *core) follow(writes []store.Write, err error) {
	keys := make([]store.Key, 0, len(writes))
	system := make(map[string]OnUnavailable)
	for i := range writes {
		w := &writes[i]
		if w.Check {
			continue
		}
		keys = append(keys, w.Record.Key)
		k, ok := viewOf(w.Record.Key)
		if !ok || err != nil {
			continue
		}
		c.views.Note(k, func(now view, known bool) (view, bool) {
			v, ok := k.written(w, now, known)
			if k.kind == systemView {
				system[k.space] = v.onUnavailable
			}
			return v, ok
		})
	}
	c.outdated(keys)
	for id, u := range system {
		if s := c.known(id); s != nil {
			s.unavailable.Store(&u)
		}
	}
}

// written returns the view of a record that was written; false if nothing is known of it, as before.
func (k viewKey) written(w *store.Write, now view, known bool) (view, bool) {
	r := w.Record
	if r.Version++; w.Delete {
		r.Version = 0
	}
	v, _ := k.decode(r)
	v.noted = true
	if v.version = r.Version; w.Delete {
		v.version = w.Record.Version + 1
	}
	switch {
	case w.Delete && !known:
		return view{}, false
	case known && now.version > v.version && now.exists: // another process has changed it since
		now.noted = true
		return now, true
	}
	return v, true
}
