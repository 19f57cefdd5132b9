package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/breaker"
	"github.com/weirlimits/weir/internal/catalogcache"
)

// noteUnavailable remembers what the system's record says.
func (s *space) noteUnavailable(u Unavailable) {
	if have := s.unavailable.Load(); have == nil || *have != u {
		s.unavailable.Store(&u)
	}
}

// knownSpace returns the limiter's namespace as it was looked up last, or as [Config.LastGood] knows it; nil if neither.
func (l *Limiter) knownSpace() *space {
	if l.pinned != nil {
		return l.pinned
	}
	if f := l.found.Load(); f != nil {
		return f.space
	}
	vs, ok := l.core.views.Known([]viewKey{{kind: namespaceView, id: l.name}})
	if !ok || !vs[0].exists || vs[0].namespace.Deleted != nil {
		return nil
	}
	return l.core.space(vs[0].namespace.ID)
}

// known returns what applies to requests as far as is known, however old that is, without asking the store; nil if it is
// not known.
func (l *Limiter) known(entity, resource string, own bool) *plan {
	s := l.knownSpace()
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
			if unknown[systemView] || unknown[resourceView] || l.core.bad.some(keys, unknown) {
				return nil, time.Time{}, errUnknown
			}
			guessed = guessed || len(unknown) > 0
			return vs, l.core.start, nil // it has expired
		},
	})
	if err != nil {
		return nil
	}
	if p.guessed = guessed; !guessed && l.core.cfg.CacheTTL > 0 { // the next may know better
		plans.put(p)
	}
	return p
}

// viewsKnown returns the views that are known, and of which kinds some is not.
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

// badViews are those that the store has, and that could not be read when it last told them: who has limits that nobody can
// read is no stranger.
type badViews struct {
	mu  sync.Mutex
	all map[viewKey]bool
}

// maxBadViews is of how many it is remembered.
const maxBadViews = 1024

func (b *badViews) note(keys []viewKey, bad catalogcache.Errors) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, k := range keys {
		switch {
		case bad == nil || bad[i] == nil:
			delete(b.all, k)
		case len(b.all) < maxBadViews:
			if b.all == nil {
				b.all = make(map[viewKey]bool)
			}
			b.all[k] = true
		}
	}
}

// some reports whether there are some among those that are unknown: of others what was good before serves on.
func (b *badViews) some(keys []viewKey, unknown map[viewKind]bool) bool {
	if len(unknown) == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(keys, func(k viewKey) bool { return unknown[k.kind] && b.all[k] })
}

// knownPolicy is what to do without the store, as far as it is known, where the limits are not.
func (l *Limiter) knownPolicy(entity, resource string) Unavailable {
	s := l.knownSpace()
	if s == nil {
		return l.core.cfg.OnUnavailable
	}
	vs, unknown := l.core.viewsKnown([]viewKey{
		{s.id, entityView, entity, ""}, {s.id, systemView, "", ""}, {s.id, resourceView, resource, ""}, {s.id, limitsView, entity, resource},
	})
	if u := s.unavailable.Load(); u != nil && unknown[systemView] {
		vs[1].onUnavailable = *u
	}
	return l.core.onUnavailable(vs).value
}

// mistake returns what is wrong with a request: nobody knows, if the limits are guessed.
func (p *plan) mistake(err, cause error) error {
	if err == nil || !p.guessed {
		return err
	}
	return unknownLimits(p.entity, p.resource, cause)
}

func unknownLimits(entity, resource string, cause error) error {
	return &unavailableError{&StoreError{
		Op: "take", Key: fmt.Sprintf("entity %q on resource %q", entity, resource), Err: cause,
		Hint: "the limits are not known here, so that no share of them can be admitted",
	}}
}

// planOrKnown returns what applies as plan does, or without asking a store that does not answer.
func (l *Limiter) planOrKnown(ctx context.Context, entity, resource string, own bool) (*space, *plan, error) {
	if b := l.core.breaker; b != nil && b.State() != breaker.Closed {
		if p := l.known(entity, resource, own); p != nil {
			return p.space, p, nil
		}
	}
	return l.plan(ctx, entity, resource, own)
}

var errUnknown = errors.New("the limits are not known")
