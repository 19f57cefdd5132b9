package dynamodb

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
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
// converted by adding the difference of the two clocks, so that their debits do not make the rebase fail, nor the rebase
// theirs.
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

// orphan creates a shard whose item was never put, because the process that split its parent ended before. What should
// have been moved to it is unknown, so it is created with nothing left.
type orphan struct {
	v      *view
	parent *item
}

// awaiting sends takes elsewhere while the shard's item may be about to be put.
func (sh *shard) awaiting(waiting []*job, now int64) []*job {
	if sh.absent == 0 || now-sh.absent >= int64(sh.s.cfg.CallTimeout) {
		return waiting
	}
	return slices.DeleteFunc(waiting, func(j *job) bool {
		away := j.kind == take && j.forced == nil
		if away && !sh.sendAway(j) {
			sh.decide(j, false, now, missing)
		}
		return away
	})
}

// orphaned returns the upkeep that a shard without an item needs first, or nil.
func (sh *shard) orphaned(j *job) upkeep {
	if sh.k == 0 || sh.seen == nil || sh.seen.shards > 1 || j.kind != take && !j.debits() {
		return nil
	}
	parent := sh.parent()
	if parent == nil {
		return nil
	}
	return &orphan{v: j.v, parent: parent}
}

// parent returns the last sight of the shard from which this one, which is not 0, was split off. It returns nil unless
// that sight showed the parent split to this shard's depth.
func (sh *shard) parent() *item {
	all := sh.m.all()
	k := parentOf(sh.k)
	if k >= len(all) {
		return nil
	}
	parent := all[k]
	parent.lane.Lock() // in this order only: a parent locks no child
	defer parent.lane.Unlock()
	if parent.seen == nil || parent.seen.shards < born(sh.k).n {
		return nil
	}
	return parent.seen
}

func (o *orphan) write(sh *shard, b *batch, u *update) {
	u.op(condAbsent, table.AttrPK)
	u.op(setTo, attrShards, int64(b.place.n))
	u.op(setTo, attrID, int64(sh.s.births.Add(1)&math.MaxInt64))
	limits := slices.Clone(o.parent.limits)
	for i, name := range o.v.names {
		if o.parent.find(name) == nil {
			limits = append(limits, itemLimit{name: name, params: o.v.params[i]})
		}
	}
	overrides := 0
	for i := range limits {
		l := &limits[i]
		u.op(setTo, prefixLevel+l.name, clock.Add(b.place.clock(l.params, b.now), b.place.burst(l.params)))
		if _, _, override := parseLimitName(l.name); override {
			overrides++
		} else {
			u.opText(setTo, prefixParams+l.name, formatParams(l.params))
		}
	}
	if overrides > 0 {
		u.op(setTo, attrOverrides, int64(overrides))
	}
	if o.parent.set != "" {
		u.opText(setTo, attrSet, o.parent.set)
		u.op(setTo, attrEpoch, int64(o.parent.epoch))
	}
}

func (o *orphan) due(*shard, int64) bool          { return true }
func (o *orphan) landed(*shard, *batch, *item)    {}
func (o *orphan) again(_ *shard, b *batch) []*job { return b.jobs }
