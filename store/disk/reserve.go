package disk

import (
	"math"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store/internal/inmem"
)

// idle is the time without a commit after which a bucket counts as rarely used.
const idle = int64(4 * time.Second)

// plan sets what the record of a locked bucket will hold for each slot. Until the commit succeeds, it lowers the bound
// for answers from memory to that level where it is lower: while the commit is in flight, and after any failure, the
// file may hold either the old record or the new one.
func (j *journal) plan(b *inmem.Bucket, r *inmem.Reserve, now int64) {
	n, own := b.Len(), b.Head().Own
	known := len(r.Slots) == n
	if !known {
		r.Slots = make([]inmem.Reserved, n)
	}
	exact := true
	for i := range r.Slots {
		s := b.Limit(i)
		next := s.Level
		if j.mode == Ahead && (i < own || s.Limit.Override) {
			var base, since int64
			if known {
				base, since = r.Slots[i].Base, now-r.At
			}
			next = reserve(s.Limit.Params(), s.Level, base, now, since, known)
		}
		p := &r.Slots[i]
		p.Next, p.Base = next, s.Level
		if known {
			p.Bound = min(p.Bound, next)
		} else {
			p.Bound = math.MinInt64
		}
		exact = exact && next == s.Level
	}
	r.At, b.Dirty = now, !exact
}

// reserve returns the level to make durable: the true level plus a stretch meant to last about a second, estimated from
// how far the level has moved since it was at base. The level of a nearly full bucket moves with the clock, however
// little is taken; that of a quota begins again with each window.
func reserve(p clock.Params, level, base, now, since int64, known bool) int64 {
	reading := p.Clock(now)
	longest := p.Burst / 10
	switch p.Kind() {
	case clock.Credits, clock.Slots: // what is lost never comes back, or is held: every debit waits for its commit
		return level
	case clock.Quota:
		base = max(base, reading)
	case clock.Rate:
		longest = max(longest, clock.Outstanding(p.Clock(now+int64(time.Second)), reading))
	}
	var stretch int64
	if known && since < idle {
		moved := float64(clock.Outstanding(level, base))
		if perSecond := moved * float64(time.Second) / float64(max(since, 1)); perSecond < float64(longest) {
			stretch = int64(perSecond)
		} else {
			stretch = longest
		}
	} else { // as much again as was taken just now, or of an unknown base, as is taken in all
		stretch = min(longest, clock.Outstanding(level, max(reading, base)))
	}
	// No further than a debit now could reach, and not below the true level, which a forced debit may have raised
	// further.
	return max(level, min(clock.Spend(level, level, stretch), clock.Spend(reading, reading, p.Burst)))
}
