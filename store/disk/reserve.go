package disk

import (
	"math"
	"time"

	"github.com/weirlimits/weir/internal/bucket"
	"github.com/weirlimits/weir/internal/table"
	"github.com/weirlimits/weir/store"
)

// idle is the time without a commit after which a bucket counts as rarely used.
const idle = int64(4 * time.Second)

// plan sets what the record of a locked bucket will say for each slot. Until the commit succeeds, it lowers the bound
// for answers from memory to that level where it is lower: while the commit is in flight, and after any failure, the
// file may hold either the old record or the new one.
func (j *journal) plan(b *table.Bucket, r *table.Reserve, now int64) {
	n, own := b.Len(), b.Head().Own
	known := len(r.Slots) == n
	if !known {
		r.Slots = make([]table.Reserved, n)
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
			next = reserve(params(s.Limit), s.Level, base, now, since, known)
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
	r.At, r.Dirty = now, !exact
}

// reserve returns the level to make durable: the true level plus a stretch meant to last about a second, estimated from
// how far the level has moved since it was at base. The level of a nearly full bucket moves with the clock, however
// little is taken.
func reserve(p bucket.Params, level, base, now, since int64, known bool) int64 {
	clock := p.Clock(now)
	longest := max(p.Burst/10, bucket.Outstanding(p.Clock(now+int64(time.Second)), clock))
	var stretch int64
	if known && since < idle {
		moved := float64(bucket.Outstanding(level, base))
		if perSecond := moved * float64(time.Second) / float64(max(since, 1)); perSecond < float64(longest) {
			stretch = int64(perSecond)
		} else {
			stretch = longest
		}
	} else { // as much again as was taken just now
		stretch = min(longest, bucket.Outstanding(level, max(clock, base)))
	}
	// No further than a debit now could reach, and not below the true level, which a forced debit may have raised further.
	return max(level, min(bucket.Spend(level, level, stretch), bucket.Spend(clock, clock, p.Burst)))
}

func params(l *store.Limit) bucket.Params {
	return bucket.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
}
