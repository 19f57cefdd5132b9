package simulate

import "slices"

// outcome is what happens to a call.
type outcome uint8

const (
	answered  outcome = iota
	failed            // not applied
	throttled         // not applied, because its key is written too often
	lost              // applied, but the answer was lost
	silent            // no answer at all
)

// depart sends a batch.
func (l *lane) depart(b *batch) {
	s := l.p.s
	l.sent++
	b.number, b.at = l.sent, s.now
	l.batch = b
	s.called(1)
	there := s.latency() / 2
	s.after(there, func() { l.arrive(b, there) })
}

// arrive handles a batch's arrival at the table.
func (l *lane) arrive(b *batch, there int64) {
	s := l.p.s
	what, applied, it := l.p.cell.write(l, b)
	if what == silent {
		s.at(b.at+callTimeout, func() { l.landed(b, what, false, &it) })
		return
	}
	s.after(there, func() { l.landed(b, what, applied, &it) })
}

// write performs a batch's write.
func (c *cell) write(l *lane, b *batch) (what outcome, applied bool, it item) {
	s := c.s
	switch {
	case s.down(c):
		return silent, false, it
	case s.chance(s.cfg.Errors):
		return failed, false, it
	}
	r := c.rows(l.m.entity)
	if b.place.k >= len(r.shards) {
		s.count.units++
		s.count.inVain++
		return answered, false, it // the shard does not exist
	}
	sh := &r.shards[b.place.k]
	if !sh.takes(s.now, s.cfg.Capacity) {
		return throttled, false, it
	}
	s.count.units++
	if b.split {
		applied = r.n == b.place.n
		if applied {
			s.called(2*r.n - 1) // one write, and one put per shard
			s.count.units += 2*r.n - 1
			s.count.splits++
			r.split(b.now, &c.params, s.cfg.Capacity)
		}
	} else {
		born := !sh.exists
		if applied = b.apply(&sh.item, r.n, &c.params); applied && born {
			s.count.units++ // the index's entry
		}
	}
	sh.n = r.n
	if !applied {
		s.count.inVain++
	}
	it = sh.item
	if s.chance(s.cfg.Lost) {
		return lost, applied, it
	}
	if applied {
		for _, j := range b.jobs {
			if j.at = b.at; !j.answered && !j.forced && j.of == nil {
				c.admitted(l.m.entity, j.amount, b.at)
			}
		}
	}
	return answered, applied, it
}

// landed handles the result of a batch.
func (l *lane) landed(b *batch, what outcome, applied bool, it *item) {
	l.batch = nil
	if b.split && what == answered {
		l.splitting = 0
	}
	switch {
	case what == throttled:
		l.p.s.count.throttled++
		if l.throttled++; l.throttled >= 3 {
			l.choked = true
		}
		fallthrough
	case what != answered:
		if what == failed || what == throttled {
			l.back += b.back // what may have been applied is not repeated
		}
		l.again(b.jobs)
		if what == throttled {
			l.waiting = slices.DeleteFunc(l.waiting, func(j *job) bool { return l.p.sendAway(j, l) })
		}
		if len(l.waiting) > 0 || l.back > 0 || b.split {
			l.pause(maxPause)
		}
	case !applied && it.n == 0:
		l.ends(b)
	case applied:
		l.misses = 0
		l.learn(b, it, true)
		if b.split {
			l.measuredAt, l.hot = 0, 0
			break
		}
		for _, j := range b.jobs {
			switch {
			case !j.answered:
				l.p.answer(j, true)
			case j.forced: // it was paid all the same
				j.m.sending = 0
			default: // its caller has left: return the tokens
				l.giveBack(j.amount)
			}
		}
		l.refuse(b, true)
		l.watch()
	default:
		l.back += b.back
		l.misses++
		l.learn(b, it, false)
		l.again(b.jobs)
		if !b.split {
			l.refuse(b, false)
		}
		if l.misses > 2 {
			l.pause(min(int64(l.misses)*1e6, maxPause))
		}
	}
	l.board()
}

// refuse answers jobs that waited during a write, or that it failed to apply, if they do not fit what it showed. It
// judges them by the time of the write, or of the write before it if they had arrived by then.
func (l *lane) refuse(b *batch, applied bool) {
	if !l.seen.exists || b.place != l.place() {
		return
	}
	last := min(l.seen.at, l.tick())
	l.waiting = slices.DeleteFunc(l.waiting, func(j *job) bool {
		if j.answered || j.forced || j.since >= b.number {
			return j.answered
		}
		now := b.now
		if !applied && last >= j.came {
			now = last
		}
		if l.fits(now, -l.back, j.amount) {
			return false
		}
		l.p.refused(j, l)
		return true
	})
}

// again puts jobs first in line for another write.
func (l *lane) again(jobs []*job) {
	l.waiting = slices.DeleteFunc(slices.Concat(jobs, l.waiting), func(j *job) bool { return j.answered })
}

// giveBack adds an amount to return with a later write.
func (l *lane) giveBack(amount int64) {
	s := l.p.s
	if l.back += amount; l.back == amount {
		l.backDue = s.now + returnDelay
		s.after(returnDelay, l.board)
	}
}
