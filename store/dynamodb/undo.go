package dynamodb

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// undo describes a debit that a give undoes because nobody holds it: the debit of a take that another bucket refused, or
// a debit made ahead. The undo must leave the item as if the debit had never been made.
//
// A debit occupies the levels from its top down. The part of them that the clock has passed has been refilled, and would
// have been without the debit, too. That part has melted, and is not returned. Amounts that others return in the meantime
// may lie below the debit, and then it sinks. There are two ways to be sure that it has not sunk below the clock:
//
//   - The debit would be above the clock even if everything that others returned since had been below it. The write asserts
//     that no more than that was returned.
//   - The debit is treated as the lowest of everything that was spent, on the clock of its time. Undos by others under these
//     rules do not make it sink lower, because what they undo was above the clock, too. What holders of leases return may have
//     been refilled long before, so the debit sinks by that amount. The write asserts how much of that there was.
//
// Nothing is returned to an item that was born since, or to a limit whose parameters have changed since: by their clock,
// the debit may have melted sooner.
type undo struct {
	place  place
	item   *item   // as the write of the debit left it
	repaid *repaid // what that write returned after the debit; nil: nothing
	tops   []int64 // the tops of the debits: the levels from which they reach down
	floors []int64 // the tops if the debits are treated as the lowest

	// For the write that is being planned.
	latest int64   // upper bound for the time of the write before it; debits melt by the clock of this time
	rooms  []int64 // how much may be returned since the last sight, this included; anything: the debit is treated as the lowest
}

// repaid is what was returned to a job's limits, and the part of it that was not an undo.
type repaid struct{ back, given []int64 }

// repays returns what a batch returned to a job's limits, all of it after the job's debits.
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
	// sooner is how far others' clocks may be ahead where allowing for that costs nothing.
	sooner = int64(50 * time.Millisecond)
)

// undoes makes a give undo debits, given their tops: the levels right after them.
func (j *job) undoes(pl place, it *item, repaid *repaid, tops []int64) {
	n := len(tops)
	u := &undo{place: pl, item: it, repaid: repaid, tops: tops, floors: make([]int64, n), rooms: make([]int64, n)}
	for i, top := range tops {
		u.floors[i] = min(top, clock.Add(pl.clock(j.v.params[i], it.at), j.amounts[i]))
	}
	j.undo, j.takenOn = u, pl
}

// melt removes from a give what a write planned now must not return.
func (sh *shard) melt(j *job, now int64) {
	u := j.undo
	if u == nil {
		return
	}
	if it := sh.seen; it != nil && it.exists && it.at > now { // others' clocks are ahead
		now = it.at
		if sh.misses > 1 {
			now = clock.Add(now, sooner)
		}
	}
	later := clock.Add(now, sooner)
	u.latest = later
	for i, a := range j.amounts {
		p := j.v.params[i]
		u.rooms[i] = anything
		if !sh.follows(j, i) {
			j.amounts[i] = 0
			continue
		}
		floor := sh.floor(j, i)
		if clock.Outstanding(floor, u.place.clock(p, later)) >= a {
			continue
		}
		if room := sh.above(j, i, later); room >= a {
			u.rooms[i] = room
			continue
		}
		u.latest = now
		low := clock.Outstanding(floor, u.place.clock(p, now))
		if room := sh.above(j, i, now); room > low {
			u.rooms[i], low = room, room
		}
		j.amounts[i] = min(a, low)
	}
}

// follows reports whether a limit whose debit a job undoes is still the same limit of the same item. In a split bucket,
// an override whose counters have shrunk was removed since, and added again.
func (sh *shard) follows(j *job, i int) bool {
	it, name := sh.seen, j.v.names[i]
	if it == nil || !it.exists || it.id != j.undo.item.id {
		return false
	}
	is, was := it.find(name), j.undo.item.find(name)
	return is != nil && was != nil && is.params == was.params && is.params == j.v.params[i] &&
		is.debited >= was.debited && is.returned >= was.returned && is.given >= was.given
}

// floor returns the lowest level at which the top of the debit that a job undoes can be.
func (sh *shard) floor(j *job, i int) int64 {
	u, name := j.undo, j.v.names[i]
	given := sh.seen.find(name).given - u.item.find(name).given
	if u.repaid != nil {
		given += u.repaid.given[i]
	}
	return u.floors[i] - given
}

// above returns how much may be returned to a limit since it was last seen before the clock at a given time passes any of
// the debit that a job undoes. The limit must still be the same. The result is 0 if this is unknown.
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
	return clock.Outstanding(top-back, u.place.clock(is.params, at))
}

// lows are the levels to which our own returns brought an item. For these returns it is known where a debit to be undone
// was afterwards, not only how far it may have sunk.
type lows struct {
	last []low
	from int64 // the write since which the list is complete
}

type low struct {
	name        string
	writes, at  int64 // which of the item's writes it was, and when
	level, back int64 // the level after it, and the amount that it returned
}

// An undo waits for a few writes at most. These are the number of lows that are kept, and for how long.
const (
	maxLows = 64
	lowsFor = int64(time.Second)
)

// add records what a batch that was applied returned.
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

// hasRoom reports whether a give may join those aboard.
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

// counts reports whether a job undoes a debit of a limit as if it were the lowest of everything that was spent.
func (j *job) counts(i int) bool {
	return j.undo != nil && j.amounts[i] > 0 && j.undo.rooms[i] == anything
}

// touchy reports whether unrelated writes by others can make the write of a give fail.
func (j *job) touchy() bool {
	for i := range j.amounts {
		if j.counts(i) {
			return true
		}
	}
	return false
}

// undoing asserts what melt assumed.
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
