package dynamodb

// uncounted are takes, admitted and undone, that no write of their own could count: takes that were served from what
// was debited ahead, and undone takes of which nothing was left to return. They ride on the next write that asserts the
// birth of the item on which they were made. Those that still wait when the process ends are not counted.
type uncounted struct {
	id            uint64
	takes, undone int64
}

// count adds to what waits to be counted on a birth of the item, if the item is still of that birth. The lane must be
// locked.
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

// takeBack returns what a take was debited, by the job that it returns, if one is needed. The lane must be locked.
func (sh *shard) takeBack(j *job) *job {
	if !j.nothing() {
		u := sh.s.returning(j)
		sh.add(u)
		return u
	}
	if j.counted {
		sh.count(uncounted{id: j.item.id, undone: 1})
	}
	return nil
}

// counting makes a batch count what waits to be counted, if the batch asserts the birth that this belongs to. The lane
// must be locked.
func (sh *shard) counting(b *batch) {
	if b.seen == nil || b.seen.id != sh.uncounted.id || b.jobs[0].kind == settle && b.onlyGives() {
		return
	}
	b.others, sh.uncounted = sh.uncounted, uncounted{}
}

// counted writes the number of takes that a batch admits, and the number that it undoes.
func (b *batch) counted(u *update) {
	if n := b.takes + b.others.takes; n > 0 {
		u.op(addTo, attrTakes, n)
	}
	if n := b.undone + b.others.undone; n > 0 {
		u.op(addTo, attrUndone, n)
	}
}
