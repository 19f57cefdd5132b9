package dynamodb

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/bucket"
)

// undo is what a give knows that makes undone what was debited and is nobody's: by a take that another bucket refused,
// or ahead. It is to leave the item as if that had never been debited.
//
// A debit lies on the levels from its top down. What of them the clock has passed has been refilled, and would have
// been without the debit: it melts, and is not given back. What others return meanwhile may lie below, and then the
// debit sinks. There are two ways to be sure that it has not sunk under the clock:
//
//   - It would be above the clock although everything that others returned since had lain below it. The write asserts
//     that no more was returned than that.
//   - It counts as the lowest of all that was spent, on the clock of its time. What others make undone by these rules
//     lets it sink no lower: that lay above the clock, too. What others give back who held it may have been refilled long
//     before, so that the debit sinks by it; the write asserts how much of that there was.
//
// Nothing is given back to an item that was born since, or of a limit that follows other parameters since: by their clock
// it may have melted sooner.
type undo struct {
	place  place
	item   *item   // as the write of the debit left it
	repaid *repaid // what that write returned after it; nil: nothing
	tops   []int64 // the levels on which the debits lie, from there down
	floors []int64 // the same, were they the lowest

	// As of the write that is planned.
	latest int64   // the last write before it may be as late as that: the clock that was melted by
	rooms  []int64 // how much may be returned since the last sight, this included; anything: it counts as the lowest
}

// repaid is what was returned of a job's limits, and what of that was not undone.
type repaid struct{ back, given []int64 }

// repays returns what a batch returned of a job's limits, which is all after it.
func (b *batch) repays(j *job) *repaid {
	r := &repaid{make([]int64, len(j.v.names)), make([]int64, len(j.v.names))}
	for i, name := range j.v.names {
		if p := b.part(name); p != nil {
			r.back[i], r.given[i] = p.back, p.given
		}
	}
	return r
}

const (
	anything = math.MaxInt64
	anyTime  = math.MaxInt64
	// sooner is by how much the clocks of others may be ahead where that costs nothing.
	sooner = int64(50 * time.Millisecond)
)

// undoes has a give make a debit undone that a write left on top of some levels.
func (j *job) undoes(pl place, it *item, repaid *repaid, tops []int64) {
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
		if !sh.follows(j, i) {
			j.amounts[i] = 0
			continue
		}
		floor := sh.floor(j, i)
		if bucket.Outstanding(floor, u.place.clock(p, later)) >= a {
			continue
		}
		if room := sh.above(j, i, later); room >= a {
			u.rooms[i] = room
			continue
		}
		u.latest = now
		low := bucket.Outstanding(floor, u.place.clock(p, now))
		if room := sh.above(j, i, now); room > low {
			u.rooms[i], low = room, room
		}
		j.amounts[i] = min(a, low)
	}
}

// follows reports whether a limit of which a job is to undo a debit is still the same, of the same item. Of a bucket that is
// split, an override whose counters have shrunk gave up its place since, and came again.
func (sh *shard) follows(j *job, i int) bool {
	it, name := sh.seen, j.v.names[i]
	if it == nil || !it.exists || it.id != j.undo.item.id {
		return false
	}
	is, was := it.find(name), j.undo.item.find(name)
	return is != nil && was != nil && is.params == was.params && is.params == j.v.params[i] &&
		is.debited >= was.debited && is.returned >= was.returned && is.given >= was.given
}

// floor returns the level on which what a job is to undo lies at the lowest.
func (sh *shard) floor(j *job, i int) int64 {
	u, name := j.undo, j.v.names[i]
	given := sh.seen.find(name).given - u.item.find(name).given
	if u.repaid != nil {
		given += u.repaid.given[i]
	}
	return u.floors[i] - given
}

// above returns how much may be returned of a limit that is still the same, since it was last seen, before the clock of that time passes
// anything of what a job is to undo. It is 0 where that is not known.
func (sh *shard) above(j *job, i int, at int64) int64 {
	u, it := j.undo, sh.seen
	is, was := it.find(j.v.names[i]), u.item.find(j.v.names[i])
	if it.set != u.item.set || sh.place() != u.place || !is.has {
		return 0
	}
	top, back := min(u.tops[i], was.level), is.returned-was.returned
	if u.item.writes >= sh.lows.from {
		for _, l := range sh.lows.last {
			if l.writes > u.item.writes && l.name == is.name {
				top, back = min(top, l.level), back-l.back
			}
		}
	}
	return bucket.Outstanding(top-back, u.place.clock(is.params, at))
}

// lows are the levels to which our own returns brought an item: where what is to be undone lay by then is known of them,
// not only that it was no lower.
type lows struct {
	last []low
	from int64 // the write since which they are all there
}

type low struct {
	name        string
	writes, at  int64 // which of the item's writes it was, and when
	level, back int64 // after it, and what it returned
}

// What is to be undone waits for a few writes: so many lows are kept, and for so long.
const (
	maxLows = 64
	lowsFor = int64(time.Second)
)

// add notes what a batch that was applied returned.
func (ls *lows) add(b *batch, it *item) {
	for i := range b.parts {
		p := &b.parts[i]
		if p.back == 0 {
			continue
		}
		old := 0
		for old < len(ls.last) && (len(ls.last)-old >= maxLows || ls.last[old].at < it.at-lowsFor) {
			ls.from = ls.last[old].writes
			old++
		}
		level, _ := it.level(p.name)
		ls.last = append(slices.Delete(ls.last, 0, old), low{p.name, it.writes, it.at, level, p.back})
	}
}

// hasRoom reports whether a give may come aboard beside those that are.
func (b *batch) hasRoom(j *job) bool {
	for i, a := range j.amounts {
		p := b.part(j.v.names[i])
		if a == 0 || p == nil {
			continue
		}
		room := p.room
		if j.undo != nil {
			room = min(room, j.undo.rooms[i])
		}
		if room-a < p.back || j.undo == nil && p.low || j.counts(i) && p.given > 0 {
			return false
		}
	}
	return true
}

// counts reports whether a limit is given back of as of the lowest that was spent.
func (j *job) counts(i int) bool {
	return j.undo != nil && j.amounts[i] > 0 && j.undo.rooms[i] == anything
}

// touchy reports whether others can make the write of a give fail that have nothing to do with it.
func (j *job) touchy() bool {
	for i := range j.amounts {
		if j.counts(i) {
			return true
		}
	}
	return false
}

// undoing asserts what melt went by.
func (b *batch) undoing(u *update) {
	if b.latest == anyTime {
		return
	}
	u.op(condAtMost, attrAt, b.latest)
	for i := range b.parts {
		p := &b.parts[i]
		if p.room < anything {
			u.op(condAbsentAtMost, p.attrs.returned, b.seen.find(p.name).returned+p.room-p.back)
		}
		if p.low {
			u.op(condAbsentAtMost, p.attrs.given, b.seen.find(p.name).given)
		}
	}
	if b.jobs[0].kind == give {
		b.asItWas(u)
	}
}
