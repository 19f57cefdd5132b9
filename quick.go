package weir

import (
	"context"
	"sync/atomic"
	"time"
)

// tick is the unit of the coarse clock, in nanoseconds.
const tick = int64(100 * time.Millisecond)

// coarseClock returns the number of ticks passed without asking the system each time. In use, it is at most about one
// tick behind; when it is not used, nothing runs.
type coarseClock struct{ now atomic.Uint32 }

// read returns the ticks since start, at least 1.
func (c *coarseClock) read(start time.Time) uint32 {
	if now := c.now.Load(); now != 0 {
		return now
	}
	now := uint32(int64(time.Since(start))/tick) + 1
	if c.now.CompareAndSwap(0, now) {
		time.AfterFunc(time.Duration(tick), func() { c.now.Store(0) })
	}
	return now
}

// allowQuick is the common case of Allow on a store that never waits: one limit of one bucket, both cached. In any
// other case it returns no node and has done nothing.
func (l *Limiter) allowQuick(ctx context.Context, entity, resource string) (allowed bool, _ *planNode) {
	c := l.core
	if c.immediate == nil || c.cfg.Observer.Called != nil || c.near != nil || ctx.Err() != nil {
		return false, nil
	}
	s := l.pinned
	if s == nil {
		f := l.found.Load()
		if f == nil || f.registry != c.registry.Load() || c.elapsed() >= f.until {
			return false, nil
		}
		s = f.space
	}
	generation := uint32(s.generation.Load())
	n := s.plans.find(entity, resource)
	if n == nil || n.one == nil || c.coarse.read(c.start) >= n.expires || n.generation.Load() != generation {
		return false, nil
	}
	allowed, ok := c.immediate.TakeOne(&n.ref, n.one)
	switch {
	case !ok:
		return false, nil
	case allowed || c.tallies == nil:
		s.hits.add()
	default:
		c.tallies.refused(n.plan, &n.plan.quick) // also counts the hit, in the same atomic step
	}
	return allowed, n
}
