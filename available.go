package weir

import (
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Availability is what an entity could spend on a resource at a given time.
type Availability struct {
	At       time.Time
	Statuses []LimitStatus // every limit that applies: the entity's, then its parents'
}

// levelNow returns a limit's level as the next debit will find it, and whether it would refuse the charge. If the
// bucket still has other parameters, the outstanding tokens are carried over.
func levelNow(c store.Charge, s *store.State, now int64) store.Level {
	lim := c.Limit
	p := paramsOf(lim)
	level := p.Clock(now)
	for _, ls := range s.Limits {
		if ls.Limit.Name != lim.Name || ls.Limit.Override != lim.Override {
			continue
		}
		level = ls.Level
		if *ls.Limit != *lim {
			level = clock.Rebase(paramsOf(ls.Limit), p, ls.Level, now)
		}
	}
	refused := !p.Fits(level, p.Clock(now), c.Amount)
	return store.Level{Limit: lim, Level: level, Refused: refused}
}

// Fits reports whether a request for tokens would have been admitted at that time. It ignores limits in shadow and does
// no I/O. A name that no limit has, or a negative amount, is a [*ConfigError].
func (a Availability) Fits(tokens Tokens) (bool, error) {
	d, err := a.RetryAfter(tokens)
	return d == 0 && err == nil, err
}

// RetryAfter returns how long after At a request for tokens will be admitted if nobody else spends; 0 means that it
// would have been admitted at once. It ignores limits in shadow and does no I/O. An amount above a burst is a
// [*BurstError]; a name that no limit has, or a negative amount, is a [*ConfigError].
func (a Availability) RetryAfter(tokens Tokens) (time.Duration, error) {
	for name, n := range tokens {
		known := false
		for i := range a.Statuses {
			known = known || a.Statuses[i].Limit == name
		}
		switch {
		case !known:
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
		n := tokens[s.Limit]
		if n > s.Burst {
			return 0, &BurstError{s.Entity, s.Resource, s.Limit, n, s.Burst}
		}
		d, _ := s.params.RetryAfter(s.level, now, n*1000)
		longest = max(longest, d)
	}
	return longest, nil
}
