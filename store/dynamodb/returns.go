package dynamodb

import (
	"slices"
	"time"
)

// boardGives plans returns. A return rides along if the debits aboard are at least as large. Without debits aboard,
// returns make a write of their own if all is true or one of them is due.
func (sh *shard) boardGives(b *batch, waiting []*job, all bool, wall time.Time) (left []*job, after time.Duration) {
	left = waiting[:0]
	alone := len(b.jobs) == 0
	urgent := len(b.gives) > 0 && sh.s.fleet.Urgent() // read once: a return that is due after all would wait without a time
	due := func(j *job) bool { return urgent || !wall.Before(j.due) }
	if alone && !all {
		all = slices.ContainsFunc(waiting, func(j *job) bool { return j.kind == give && due(j) })
	}
	for _, j := range waiting {
		sh.melt(j, b.now)
		switch {
		case j.kind != give:
			left = append(left, j)
		case !sh.returnable(j, j.amounts):
			if j.counted {
				sh.count(uncounted{id: j.undo.item.id, undone: 1})
			}
			sh.decide(j, true, b.now, sh.seen)
		case (alone && all || !alone && sh.rides(b, j)) && b.hasRoom(j):
			sh.carry(b, j)
		default:
			if due(j) {
				j.missed = true
			} else if d := j.due.Sub(wall); after == 0 || d < after {
				after = d
			}
			left = append(left, j)
		}
	}
	return left, after
}

// returnable leaves out limits that the item no longer has, because there is nothing to return to, and reports whether
// anything remains.
func (sh *shard) returnable(j *job, amounts []int64) bool {
	if sh.seen == nil || !sh.sure(j) {
		return j.undo == nil || !j.nothing()
	}
	some := false
	for i, name := range j.v.names {
		if l := sh.seen.find(name); !sh.seen.exists || l == nil || !l.has {
			amounts[i] = 0
		}
		some = some || amounts[i] != 0
	}
	return some
}

// rides reports whether a return may ride beside the debits aboard.
func (sh *shard) rides(b *batch, j *job) bool {
	if b.alone || sh.seen == nil || !sh.seen.exists || sh.busy() && j.touchy() {
		return false
	}
	for i, a := range j.amounts {
		if a == 0 {
			continue
		}
		if p := b.part(j.v.names[i]); p == nil || !p.has || p.sum-p.back < a {
			return false
		}
	}
	return true
}

// returned returns, as a function of a limit's name, how much less is spent once gives are made: a negative amount.
func returned(gives []*job) func(name string) int64 {
	return func(name string) (n int64) {
		for _, j := range gives {
			if i := slices.Index(j.v.names, name); i >= 0 {
				n -= j.amounts[i]
			}
		}
		return n
	}
}
