package dynamodb

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// proof shows how much of a debit may be undone, so that the item is left as if the debit had never been made.
//
// The debit occupies the levels from its top down. What the clock has passed of it has been refilled, and would have
// been without the debit, too. Amounts that were returned since may have been below the debit, so it may have sunk by
// as much. The rest still stands, provided that every write since has moved the level by what it debited and returned,
// and by nothing else: a level that was set, a guard and other limits change the level without the counters.
type proof struct {
	place place
	item  *item   // as the write of the debit left it
	tops  []int64 // by limit: the level right after the debit
}

// maxUndoTries is how often an undo is written, each time on the item that the last failure showed.
const maxUndoTries = 3

// since returns how much was returned to a limit since the debit, and the offset of its level from its counters then
// and now. ok is false if the item is of another birth, or the limit is another one than it was.
func (p *proof) since(it *item, pl place, name string) (returned, was, is int64, ok bool) {
	if it == nil || !it.exists || it.id != p.item.id || it.set != p.item.set || pl != p.place {
		return 0, 0, 0, false
	}
	a, b := p.item.find(name), it.find(name)
	if a == nil || b == nil || !b.has || a.params != b.params || b.debited < a.debited || b.returned < a.returned {
		return 0, 0, 0, false
	}
	return b.returned - a.returned, a.level - a.debited + a.returned, b.level - b.debited + b.returned, true
}

// above returns how much of a limit's level is certain to lie between the clock and the top of the debit.
func (sh *shard) above(p *proof, v *view, i int, now int64) int64 {
	pl := sh.place()
	returned, _, _, ok := p.since(sh.seen, pl, v.names[i])
	if !ok {
		return 0
	}
	top := p.tops[i]
	for _, l := range sh.lows {
		if l.writes > p.item.writes && l.name == v.names[i] {
			top, returned = min(top, l.level), returned-l.back
		}
	}
	return clock.Outstanding(top-returned, pl.clock(v.params[i], now))
}

// stands is above, or 0 if something else than debits, returns and our own guards has moved the level since.
func (sh *shard) stands(p *proof, v *view, i int, now int64) int64 {
	_, was, is, ok := p.since(sh.seen, sh.place(), v.names[i])
	for _, l := range sh.lows {
		if l.writes > p.item.writes && l.name == v.names[i] {
			was += l.guard
		}
	}
	if !ok || was != is {
		return 0
	}
	return sh.above(p, v, i, now)
}

// low is the level to which one of our own writes brought a limit, if it returned something or took a guard. What is
// below this level has not sunk further by the return.
type low struct {
	name               string
	writes, at         int64 // which of the item's writes it was, and when
	level, back, guard int64 // the level after it, what it returned, and its guard
}

// An undo waits for a few writes at most. These are the number of lows that are kept, and for how long.
const (
	maxLows = 64
	lowsFor = int64(time.Second)
)

// sank records what a batch that was applied returned, and its guards.
func (sh *shard) sank(b *batch, it *item) {
	for i := range b.parts {
		p := &b.parts[i]
		if p.back == 0 && p.guard == 0 {
			continue
		}
		old := 0
		for old < len(sh.lows) && (len(sh.lows)-old >= maxLows || sh.lows[old].at < it.at-lowsFor) {
			old++
		}
		level, _ := it.level(p.name)
		sh.lows = append(slices.Delete(sh.lows, 0, old), low{p.name, it.writes, it.at, level, p.back, p.guard})
	}
}

// undoing returns a job that undoes a debit.
func (s *Store) undoing(v *view, amounts []int64, p *proof) *job {
	j := s.newJob(undo, v, 0)
	copy(j.amounts, amounts)
	j.proof = p
	j.expires = time.Now().Add(10 * s.cfg.WriteTimeout)
	return j
}

// returning returns a job that undoes what another job was debited.
func (s *Store) returning(j *job) *job {
	tops := make([]int64, len(j.amounts))
	for i, name := range j.v.names {
		tops[i], _ = j.level(name)
	}
	u := s.undoing(j.v, j.amounts, &proof{j.takenOn, j.item, tops})
	u.counted = j.counted
	return u
}

// judgeUndo adds to a batch what an undo returns. Undos make writes of their own, each of which asserts that the item
// is the one that it was planned on.
func (sh *shard) judgeUndo(b *batch, j *job) verdict {
	if len(b.jobs) > 0 && b.jobs[0].kind != undo {
		return wait
	}
	later := b.now
	if b.seen != nil {
		later = max(later, b.seen.at)
	}
	var space [4]int64
	back := append(space[:0], make([]int64, len(j.amounts))...)
	some := false
	for i, a := range j.amounts {
		if a > 0 && j.tries < maxUndoTries {
			stands := sh.stands(j.proof, j.v, i, later)
			if p := b.part(j.v.names[i]); p != nil {
				stands -= p.back
			}
			back[i] = min(a, max(0, stands))
			some = some || back[i] > 0
		}
	}
	if !some { // it stays debited, except for the count
		if j.counted {
			sh.count(uncounted{id: j.proof.item.id, undone: 1})
		}
		sh.decide(j, true, b.now, b.last())
		return answered
	}
	b.jobs = append(b.jobs, j)
	if j.counted {
		b.undone++
	}
	for i, a := range back {
		if a > 0 {
			sh.partOf(b, j, i).back += a
		}
	}
	return boarded
}

// undoing writes a batch of undos.
func (b *batch) undoing(u *update) {
	u.op(condEqual, attrID, int64(b.seen.id))
	u.op(condEqual, attrWrites, b.seen.writes)
	b.giving(u)
}
