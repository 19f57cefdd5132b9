package dynamodb

import "github.com/weirlimits/weir/internal/usage"

// uncounted are takes, admitted and undone, that no write of theirs could count: those that were served by what was
// debited ahead, and those of which nothing was left to be given back. They ride on the next write that asserts the
// birth on which they were taken. What waits when the process ends is not counted.
type uncounted struct {
	id            uint64
	takes, undone int64
}

// count adds to what waits to be counted on a birth of the item, if it is still that. The lane must be locked.
func (sh *shard) count(n uncounted) {
	if n.takes == 0 && n.undone == 0 || sh.seen == nil || sh.seen.id != n.id {
		return
	}
	if sh.uncounted.id != n.id {
		sh.uncounted = uncounted{id: n.id}
	}
	sh.uncounted.takes += n.takes
	sh.uncounted.undone += n.undone
}

// takeBack has what a take was debited given back. The lane must be locked.
func (sh *shard) takeBack(j *job) {
	if !j.nothing() {
		sh.add(sh.s.returning(j))
	} else if j.counted {
		sh.count(uncounted{id: j.item.id, undone: 1})
	}
}

// counting has a batch take along what waits to be counted, if it asserts whose that is. The lane must be locked.
func (sh *shard) counting(b *batch) {
	if b.seen == nil || b.seen.id != sh.uncounted.id || b.jobs[0].kind == give && b.latest == anyTime {
		return
	}
	b.others, sh.uncounted = sh.uncounted, uncounted{}
}

// counted writes how many takes a batch admits, and undoes.
func (b *batch) counted(u *update) {
	if n := b.takes + b.others.takes; n > 0 {
		u.op(addTo, attrTakes, n)
	}
	if n := b.undone + b.others.undone; n > 0 {
		u.op(addTo, attrUndone, n)
	}
}

// takesOf adds what an item shows of its takes: those that were undone as what its requests are less, which a window
// takes off them.
func takesOf(it *item, counts []usage.Count) []usage.Count {
	if it.takes > 0 {
		counts = append(counts, usage.Count{Figure: usage.Requests, Value: it.takes})
	}
	if it.undone > 0 {
		counts = append(counts, usage.Count{Figure: usage.Returned, Value: it.undone})
	}
	return counts
}

// inWindow returns as which figure of a window a difference counts, and how much.
func inWindow(d *usage.Delta) (usage.Figure, int64) {
	if d.Limit == "" && d.Figure == usage.Returned {
		return usage.Requests, -d.Amount
	}
	return d.Figure, d.Amount
}
