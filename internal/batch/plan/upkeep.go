package plan

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// upkeep is a write that maintains the item itself. The job that needs it is the write's only entry, and is planned
// again afterwards.
type upkeep interface {
	write(w *Write, u *Update)
}

// rebase makes an item follow other limits. What is outstanding is kept. A level that others may move meanwhile is
// converted by adding the difference of the two clocks, so that their debits do not make the rebase fail, nor the
// rebase theirs.
type rebase struct {
	view  *View
	epoch uint64
}

func (r *rebase) write(w *Write, u *Update) {
	from := w.Last
	u.op(condEqual, attrID, int64(from.ID))
	if from.Set == "" {
		u.op(condAbsent, attrSet)
	} else {
		u.opText(condEqual, attrSet, from.Set)
	}
	w.On.assert(u)
	latest := w.Now
	for i, l := range r.view.Limits {
		p, name := r.view.Params[i], r.view.Names[i]
		have := from.Find(name)
		if l.Override || have != nil && have.Params == p {
			continue
		}
		level, reading := prefixLevel+name, w.On.Clock(p, w.Now)
		most := w.On.Burst(p)
		switch {
		case have == nil || !have.Has:
			u.op(condAbsent, level)
			u.op(setTo, level, w.On.Clock(p, w.Now-int64(time.Hour))) // full, even by clocks that are behind
		case have.Level < w.On.Clock(have.Params, w.Now):
			u.op(condBelow, level, w.On.Clock(have.Params, w.Now))
			u.op(setTo, level, reading)
		default:
			was := w.On.Clock(have.Params, w.Now)
			most = max(most, w.On.Burst(have.Params), clock.Outstanding(have.Level, was))
			u.op(condBetween, level, was, min(clock.Add(was, most), clock.MaxLevel))
			u.op(addTo, level, reading-was)
		}
		u.opText(setTo, prefixParams+name, formatParams(p))
		latest = max(latest, clock.Add(w.Now, p.Full(most)))
	}
	u.opText(setTo, attrSet, r.view.Set)
	u.op(setTo, attrEpoch, int64(min(r.epoch, math.MaxInt64)))
	w.retain(u, latest)
}

// sweep removes overrides that are full, to make room for others. Their counters are removed with them, so all counters
// start again under a new id. In a split bucket, only theirs do, because its id stands for the counters of all shards.
type sweep struct{ names []string }

func (s *sweep) write(w *Write, u *Update) {
	from := w.Last
	u.op(condEqual, attrID, int64(from.ID))
	u.op(condEqual, attrOverrides, int64(from.Overrides))
	w.On.assert(u)
	for _, name := range s.names {
		u.op(condBelow, prefixLevel+name, clock.Add(w.On.Clock(from.Find(name).Params, w.Now), 1))
		u.op(remove, prefixLevel+name)
	}
	for i := range from.Limits {
		l := &from.Limits[i]
		swept := slices.Contains(s.names, l.Name)
		if swept || w.On.N == 1 { // even if absent: others may write it meanwhile
			u.op(remove, prefixDebited+l.Name)
			u.op(remove, prefixReturned+l.Name)
		}
	}
	u.op(setTo, attrOverrides, int64(from.Overrides-len(s.names)))
	if w.On.N > 1 {
		return
	}
	u.op(remove, attrTakes)
	u.op(remove, attrUndone)
	u.op(setTo, attrID, int64(w.Birth&math.MaxInt64))
}

// forget removes an item, or empties it: see Write.Deletes.
type forget struct{}

func (*forget) write(w *Write, u *Update) {
	it := w.Last
	u.op(condEqual, attrID, int64(it.ID))
	u.op(condEqual, AttrShards, int64(it.Shards))
	u.op(setTo, AttrShards, int64(it.Shards))
	for _, attr := range []string{
		attrID, attrEpoch, attrSet, attrOverrides, attrTakes, attrUndone, attrIndex, attrSort,
	} {
		u.op(remove, attr)
	}
	for i := range it.Limits {
		for _, prefix := range []string{prefixLevel, prefixDebited, prefixReturned, prefixParams} {
			u.op(remove, prefix+it.Limits[i].Name)
		}
	}
}
