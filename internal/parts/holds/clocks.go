package holds

import "time"

// moment is when something was, by both clocks of the machine. The monotonic one stands still while the machine is
// suspended, the other one may be set.
type moment struct{ at, wall time.Time }

// moment returns both clocks' readings of a time that the monotonic one has shown.
func (h *Holds) moment(at time.Time) moment {
	return moment{at, h.cfg.Wall(at).Round(0)}
}

// since returns how long before now a moment was, by the clock that shows more.
func (h *Holds) since(m moment, now time.Time) time.Duration {
	return max(now.Sub(m.at), h.cfg.Wall(now).Round(0).Sub(m.wall))
}

// clocks compares both clocks while leases have contexts, because timers follow the monotonic one.
type clocks struct {
	timer *time.Timer
	last  moment
}

// look is how often the clocks are compared, and apart is how much they may differ in that time.
const look, apart = time.Second, 100 * time.Millisecond

// watch makes a lease's context end in time also if the machine was suspended, or its clock is set.
func (h *Holds) watch(st *state) {
	if h.watched[st] = struct{}{}; len(h.watched) > 1 || h.closed {
		return
	}
	c := &h.clocks
	if c.last = h.moment(time.Now()); c.timer == nil {
		c.timer = time.AfterFunc(look, h.compare)
	} else {
		c.timer.Reset(look)
	}
}

// unwatch ends a lease's context.
func (h *Holds) unwatch(st *state, cause error) {
	if st.own == nil {
		return
	}
	st.cancel(cause)
	if delete(h.watched, st); len(h.watched) == 0 && h.clocks.timer != nil {
		h.clocks.timer.Stop()
	}
}

// compare looks after all limits if the machine's clock has run ahead of the monotonic one.
func (h *Holds) compare() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watched) == 0 || h.closed {
		return
	}
	c, now := &h.clocks, time.Now()
	if h.since(c.last, now) > now.Sub(c.last.at)+apart {
		for _, l := range h.limits {
			h.wake(l, now)
		}
	}
	c.last = h.moment(now)
	c.timer.Reset(look)
}
