package dynamodb

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// upkeep is a write that maintains the item itself. It rides alone, and the jobs that need it keep waiting meanwhile.
type upkeep interface {
	// due reports, when the write's turn comes, whether it is still needed.
	due(sh *shard, now int64) bool
	write(sh *shard, b *batch, u *update)
	// landed is called when the write was applied, before the jobs aboard are answered.
	landed(sh *shard, b *batch, it *item)
	// again is called when the write's condition failed, and returns the jobs aboard that must be tried again.
	again(sh *shard, b *batch) []*job
}

// rebase makes an item follow other limits. What is outstanding is kept. A level that others may move meanwhile is
// converted by adding the difference of the two clocks, so that their debits do not make the rebase fail, nor the
// rebase theirs.
type rebase struct {
	v     *view
	epoch uint64
	from  *item
}

func (r *rebase) write(sh *shard, b *batch, u *update) {
	u.op(condEqual, attrID, int64(r.from.id))
	if r.from.set == "" {
		u.op(condAbsent, attrSet)
	} else {
		u.opText(condEqual, attrSet, r.from.set)
	}
	b.place.assert(u)
	latest := b.now
	for i, l := range r.v.limits {
		if l.Override {
			continue
		}
		p, name := r.v.params[i], r.v.names[i]
		have := r.from.find(name)
		if have != nil && have.params == p {
			continue
		}
		level, reading := prefixLevel+name, b.place.clock(p, b.now)
		most := b.place.burst(p)
		switch {
		case have == nil || !have.has:
			u.op(condAbsent, level)
			u.op(setTo, level, b.place.clock(p, b.now-int64(time.Hour))) // full, even by clocks that are behind
		case have.level < b.place.clock(have.params, b.now):
			u.op(condBelow, level, b.place.clock(have.params, b.now))
			u.op(setTo, level, reading)
		default:
			was := b.place.clock(have.params, b.now)
			most = max(most, b.place.burst(have.params), clock.Outstanding(have.level, was))
			u.op(condBetween, level, was, min(clock.Add(was, most), clock.MaxLevel))
			u.op(addTo, level, reading-was)
		}
		u.opText(setTo, prefixParams+name, formatParams(p))
		latest = max(latest, clock.Add(b.now, p.Full(most)))
	}
	u.opText(setTo, attrSet, r.v.set)
	u.op(setTo, attrEpoch, int64(min(r.epoch, math.MaxInt64)))
	sh.s.retain(b, u, latest)
}

func (r *rebase) due(*shard, int64) bool          { return true }
func (r *rebase) landed(*shard, *batch, *item)    {}
func (r *rebase) again(_ *shard, b *batch) []*job { return b.jobs }

// sweep removes overrides that are full, to make room for others. Their counters are removed with them, so all counters
// start again under a new id. In a split bucket, only theirs do, because its id stands for the counters of all shards.
type sweep struct {
	names []string
	from  *item
}

func (s *sweep) write(sh *shard, b *batch, u *update) {
	u.op(condEqual, attrID, int64(s.from.id))
	u.op(condEqual, attrOverrides, int64(s.from.overrides))
	b.place.assert(u)
	for _, name := range s.names {
		l := s.from.find(name)
		u.op(condBelow, prefixLevel+name, clock.Add(b.place.clock(l.params, b.now), 1))
		u.op(remove, prefixLevel+name)
	}
	for i := range s.from.limits {
		l := &s.from.limits[i]
		swept := slices.Contains(s.names, l.name)
		if swept || b.place.n == 1 { // even if absent: others may write it meanwhile
			u.op(remove, prefixDebited+l.name)
			u.op(remove, prefixReturned+l.name)
		}
	}
	u.op(setTo, attrOverrides, int64(s.from.overrides-len(s.names)))
	if b.place.n > 1 {
		return
	}
	u.op(remove, attrTakes)
	u.op(remove, attrUndone)
	u.op(setTo, attrID, int64(sh.s.births.Add(1)&math.MaxInt64))
}

func (s *sweep) due(*shard, int64) bool          { return true }
func (s *sweep) landed(*shard, *batch, *item)    {}
func (s *sweep) again(_ *shard, b *batch) []*job { return b.jobs }
