package held

import (
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Level returns a limit's level as the next debit of a bucket will find it. If the bucket still has other parameters,
// the outstanding tokens are carried over.
func Level(l *store.Limit, s *store.State, now int64) int64 {
	p := l.Params()
	level := p.Fresh(now)
	for i := range s.Limits {
		switch was := s.Limits[i].Limit; {
		case *was == *l:
			return s.Limits[i].Level
		case was.IsSlots() && l.IsSlots() && was.Name == l.Name:
			return s.Limits[i].Level // what is held, whatever the limit was
		case was.Name == l.Name && !was.Override && !l.Override && !was.IsSlots() && !l.IsSlots():
			level = clock.Rebase(was.Params(), p, s.Limits[i].Level, now)
		}
	}
	return level
}
