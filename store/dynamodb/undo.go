package dynamodb

import (
	"math"
	"time"

	"github.com/weirlimits/weir/internal/bucket"
)

// undo is what a give knows that makes undone what was debited and is nobody's: by a take that another bucket refused,
// or ahead. It is to leave the item as if that had never been debited.
//
// A debit lies on the levels from its top down. What of them the clock has passed has been refilled, and would have
// been without the debit: it melts, and is not given back. What others return meanwhile may lie below, and then the
// debit sinks. So it is given back in full only while it would be above the clock although everything that was
// returned since had lain below it, and the write asserts that no more was returned than that. Otherwise it
// counts as the lowest of all that was spent, which needs to know of nobody else.
type undo struct {
	place  place
	item   *item   // as the write of the debit left it
	repaid []int64 // what that write returned after it; nil: nothing
	tops   []int64 // the levels on which the debits lie, from there down
	floors []int64 // the same, were they the lowest

	// As of the write that is planned.
	latest int64   // the last write before it may be as late as that: the clock that was melted by
	rooms  []int64 // how much may be returned since the last sight, this included
}

const (
	anything = math.MaxInt64
	anyTime  = math.MaxInt64
	// sooner is by how much the clocks of others may be ahead where that costs nothing.
	sooner = int64(50 * time.Millisecond)
)

// undoes has a give make a debit undone that a write left on top of some levels.
func (j *job) undoes(pl place, it *item, repaid, tops []int64) {
	n := len(tops)
	u := &undo{place: pl, item: it, repaid: repaid, tops: tops, floors: make([]int64, n), rooms: make([]int64, n)}
	for i, top := range tops {
		u.floors[i] = min(top, add(pl.clock(j.v.params[i], it.at), j.amounts[i]))
	}
	j.undo, j.takenOn = u, pl
}

// melt takes off what is not to be given back by a write that is planned now.
func (sh *shard) melt(j *job, now int64) {
	u := j.undo
	if u == nil {
		return
	}
	if it := sh.seen; it != nil && it.exists && it.at > now { // others' clocks are ahead
		now = it.at
		if sh.misses > 1 {
			now = add(now, sooner)
		}
	}
	later := add(now, sooner)
	u.latest = later
	for i, a := range j.amounts {
		p := j.v.params[i]
		u.rooms[i] = anything
		if bucket.Outstanding(u.floors[i], u.place.clock(p, later)) >= a {
			continue
		}
		if room := sh.above(j, i, later); room >= a {
			u.rooms[i] = room
			continue
		}
		u.latest = now
		j.amounts[i] = min(a, bucket.Outstanding(u.floors[i], u.place.clock(p, now)))
	}
}

// above returns how much may be returned of a limit, since it was last seen, before the clock of that time passes
// anything of what a job is to undo. It is 0 where that is not known.
func (sh *shard) above(j *job, i int, at int64) int64 {
	u, it := j.undo, sh.seen
	if it == nil || !it.exists || it.id != u.item.id || it.set != u.item.set || sh.place() != u.place {
		return 0
	}
	is, was := it.find(j.v.names[i]), u.item.find(j.v.names[i])
	if is == nil || was == nil || !is.has || is.params != was.params || is.params != j.v.params[i] {
		return 0
	}
	back := is.returned - was.returned
	if u.repaid != nil {
		back += u.repaid[i]
	}
	return bucket.Outstanding(u.tops[i]-back, u.place.clock(is.params, at))
}

// hasRoom reports whether a give may come aboard beside those that are.
func (b *batch) hasRoom(j *job) bool {
	for i, a := range j.amounts {
		room, back := int64(anything), int64(0)
		if p := b.part(j.v.names[i]); p != nil {
			room, back = p.room, p.back
		}
		if j.undo != nil {
			room = min(room, j.undo.rooms[i])
		}
		if a > 0 && room-a < back {
			return false
		}
	}
	return true
}

// undoing asserts what melt went by.
func (b *batch) undoing(u *update) {
	if b.latest == anyTime {
		return
	}
	u.op(condAtMost, attrAt, b.latest)
	known := false
	for i := range b.parts {
		if p := &b.parts[i]; p.room < anything {
			known = true
			u.op(condAbsentAtMost, p.attrs.returned, b.seen.find(p.name).returned+p.room-p.back)
		}
	}
	if known && b.jobs[0].kind == give {
		b.asItWas(u)
	}
}
