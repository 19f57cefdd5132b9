package weir

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimits/weir/internal/breaker"
)

// noteUnavailable remembers what the system's record says.
func (s *space) noteUnavailable(u Unavailable) {
	if have := s.unavailable.Load(); have == nil || *have != u {
		s.unavailable.Store(&u)
	}
}

// knownSpace returns the limiter's namespace as it was looked up last; nil if it never was.
func (l *Limiter) knownSpace() *space {
	if l.pinned != nil {
		return l.pinned
	}
	if f := l.found.Load(); f != nil {
		return f.space
	}
	return nil
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
	p, err := l.core.planOf(s, entity, resource, own, nil, lookup{
		share: func() Share { return l.core.lastShare(l.name) },
		views: func(keys []viewKey) ([]view, time.Time, error) {
			vs, ok := l.core.views.Known(keys)
			if !ok {
				return nil, time.Time{}, errUnknown
			}
			return vs, l.core.start, nil // it has expired
		},
	})
	if err != nil {
		return nil
	}
	if l.core.cfg.CacheTTL > 0 {
		plans.put(p)
	}
	return p
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
