package weir

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// Availability is what an entity could spend on a resource at a given time.
type Availability struct {
	At       time.Time
	Statuses []LimitStatus // every limit that applies: the entity's, then its parents'
}

// Fits reports whether a request for tokens would have been admitted at that time. It ignores limits in shadow and does
// no I/O. A name that no limit has, or a negative amount, is a [*ConfigError].
func (a Availability) Fits(tokens Tokens) (bool, error) {
	d, err := a.RetryAfter(tokens)
	return d == 0 && err == nil, err
}

// RetryAfter returns how long after At a request for tokens will be admitted if nobody else spends; 0 means that it
// would have been admitted at once. For slots, of which a request needs one unless tokens name another number, it is a
// guess; for a balance that has too little, math.MaxInt64. It ignores limits in shadow and does no I/O. An amount above
// a burst is a [*BurstError]; a name that no limit has, or a negative amount, is a [*ConfigError].
func (a Availability) RetryAfter(tokens Tokens) (time.Duration, error) {
	for name, n := range tokens {
		switch {
		case !slices.ContainsFunc(a.Statuses, func(s LimitStatus) bool { return s.Limit == name }):
			return 0, configErr("tokens."+name, "no limit has this name")
		case n < 0:
			return 0, configErr("tokens."+name, "must not be negative: %d", n)
		}
	}
	var longest time.Duration
	now := clock.Nanos(a.At)
	for i := range a.Statuses {
		s := &a.Statuses[i]
		if s.Shadow {
			continue
		}
		n, named := tokens[s.Limit]
		if !named && s.params.Kind() == clock.Slots {
			n = 1
		}
		if n > s.params.Burst/1000 {
			return 0, &BurstError{Entity: s.Entity, Resource: s.Resource, Limit: s.Limit, Requested: n, Burst: s.Burst}
		}
		d, _ := s.params.RetryAfter(s.level, now, n*1000)
		if s.params.Kind() == clock.Slots {
			d = min(d, s.typical)
		}
		longest = max(longest, s.within(d))
	}
	return longest, nil
}
