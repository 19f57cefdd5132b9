package dynamodb

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// form is the state in which a write expects a limit's level.
type form byte

const (
	full    form = iota // absent, or below the clock: the level is set
	running             // at or above the clock: the debit is added to the level
)

// landed answers the jobs aboard a write that was applied. What was debited for callers that have gone is returned.
func (sh *shard) landed(b *batch, it *item) {
	if b.upkeep != nil {
		b.upkeep.landed(sh, b, it)
	}
	if b.upkeep == nil && b.jobs[0].kind != undo {
		b.order()
	}
	for _, j := range b.jobs {
		j.takenOn = b.place
		sh.decide(j, true, b.now, it)
		if j.kind == take && j.Abandoned() {
			sh.takeBack(j)
		}
	}
	sh.keep(b, it)
	if b.upkeep == nil && sh.meter.tooMuch() {
		sh.m.grow(2 * b.place.n)
	}
}

// order computes how much the batch debited after each of its jobs.
func (b *batch) order() {
	if len(b.jobs) < 2 && b.extra == nil {
		return
	}
	var space [8]int64
	later := append(space[:0], make([]int64, len(b.parts))...)
	if b.extra != nil {
		for i, name := range b.jobs[0].v.names {
			later[b.index(name)] = b.extra[i]
		}
	}
	for i := len(b.jobs) - 1; i >= 0; i-- {
		j := b.jobs[i]
		j.later = append(j.space2[:0], j.amounts...)
		for n := len(j.amounts) - 1; n >= 0; n-- {
			at, a := b.index(j.v.names[n]), j.amounts[n]
			if at >= 0 {
				j.later[n] = later[at]
				later[at] += a
			} else {
				j.later[n] = 0
			}
		}
	}
}

// again queues the jobs of a write whose condition failed for another try, and returns how long the lane rests first.
func (sh *shard) again(b *batch, jobs []*job) (rest time.Duration) {
	if b.upkeep != nil {
		jobs = b.upkeep.again(sh, b)
	}
	for _, j := range jobs {
		if j.kind == undo {
			j.tries++
		}
	}
	sh.lane.Back(jobs)
	if sh.misses > 2 {
		return jitter(min(time.Duration(sh.misses)*time.Millisecond, maxPause))
	}
	return 0
}

// failed handles a write without an answer: it answers the jobs or queues them again, and returns how long the lane
// rests. Debits may be repeated: at worst, tokens are spent twice and nobody has them. Returns are not, once they may
// have been applied.
func (sh *shard) failed(b *batch, err error) (rest time.Duration) {
	trouble := sh.s.calls.Trouble("write", sh.describe(), err)
	var damaged *store.Error
	repeat := table.Transient(err) && !errors.As(err, &damaged)
	if repeat {
		sh.throttled(b, err)
	}
	var back []*job
	for _, j := range b.jobs {
		switch {
		case (j.kind == undo || j.returns()) && table.Ambiguous(err), !repeat:
			sh.answer(j, trouble)
		default:
			j.err = trouble // reported if its time is up before the next try
			back = append(back, j)
		}
	}
	if b.upkeep != nil && !repeat && len(b.jobs) == 0 {
		// The jobs that needed the upkeep would only ask for it again.
		sh.lane.Drop(func(j *job) bool {
			if j.kind == take || j.debits() {
				sh.answer(j, trouble)
			}
			return j.kind == take || j.debits()
		})
	}
	sh.lane.Back(back)
	if repeat && len(sh.lane.Waiting()) > 0 {
		return jitter(maxPause)
	}
	return 0
}

// throttled counts a write that was throttled for its key, and sends the takes that may move to another shard.
func (sh *shard) throttled(b *batch, err error) {
	if !forKey(err) {
		return
	}
	if sh.meter.denied++; sh.meter.tooMuch() {
		sh.m.grow(2 * b.place.n)
	}
	move := func(j *job) bool {
		if j.mayMove {
			j.moved, j.item = true, nil
			sh.answer(j, nil)
		}
		return j.mayMove
	}
	b.jobs = slices.DeleteFunc(b.jobs, move)
	sh.lane.Drop(move)
}

// maxPause bounds the pause before a write is repeated.
const maxPause = 25 * time.Millisecond

// jitter returns a random duration, up to most.
func jitter(most time.Duration) time.Duration { return rand.N(most) + 1 }

// write adds a batch's conditions and changes to an empty update.
func (sh *shard) write(b *batch, u *update) {
	switch {
	case b.upkeep != nil:
		b.upkeep.write(sh, b, u)
	case b.jobs[0].kind == undo:
		b.undoing(u)
	case b.onlyGives():
		b.giving(u)
	default:
		sh.debiting(b, u)
	}
	b.counted(u)
	u.op(setTo, attrAt, b.now)
	u.op(addTo, attrWrites, 1)
}

// onlyGives reports whether the batch debits nothing.
func (b *batch) onlyGives() bool {
	return !b.takers && !slices.ContainsFunc(b.parts, func(p part) bool { return p.sum > 0 })
}

// giving writes returns. It asserts that each limit has a level, whatever it is.
func (b *batch) giving(u *update) {
	b.place.assert(u)
	for i := range b.parts {
		p := &b.parts[i]
		u.op(condExists, p.attrs.level)
		u.op(addTo, p.attrs.level, -p.back)
		u.op(addTo, p.attrs.returned, p.back)
	}
}

// debiting writes a batch of debits, and of the returns that ride along.
func (sh *shard) debiting(b *batch, u *update) {
	b.asItWas(u)
	full := b.now // when the last limit is full
	for i := range b.parts {
		p := &b.parts[i]
		full = max(full, b.debit(u, p))
	}
	if b.added > 0 {
		b.adding(u)
	}
	if b.seen == nil {
		sh.birth(u)
	}
	sh.s.retain(b, u, full)
}

// asItWas asserts that the item is the one that was seen, with the same limits in force and split to the same depth.
func (b *batch) asItWas(u *update) {
	it := b.seen
	b.place.assert(u)
	if it == nil {
		if b.own {
			u.opText(condAbsentEqual, attrSet, b.set)
			u.opText(setTo, attrSet, b.set)
			u.op(setOnce, attrEpoch, int64(b.epoch))
		}
		return
	}
	u.op(condEqual, attrID, int64(it.id))
	switch {
	case b.own:
		u.opText(condEqual, attrSet, b.set)
	case it.set == "":
		u.op(condAbsent, attrSet)
	default:
		u.opText(condEqual, attrSet, it.set)
	}
}

// adding updates the number of overrides, and asserts that there are not too many.
func (b *batch) adding(u *update) {
	if b.seen == nil {
		u.op(condAbsent, attrID)
		u.op(setTo, attrOverrides, int64(b.added))
		return
	}
	u.op(condAbsentAtMost, attrOverrides, int64(store.MaxOverrides-b.added))
	u.op(addTo, attrOverrides, int64(b.added))
}

// birth writes what an item is born with, unless it has that already.
func (sh *shard) birth(u *update) {
	u.op(setOnce, attrID, int64(sh.s.births.Add(1)&math.MaxInt64))
	if sh.k == 0 {
		u.opText(setOnce, table.AttrIndex, table.IndexPartition(sh.m.key.Namespace, sh.pk.PK))
		u.opText(setOnce, table.AttrSort, table.BucketSort(sh.m.key))
	}
}

// debit writes one limit's part, and returns the latest time at which the limit is full after it.
func (b *batch) debit(u *update, p *part) (fullAt int64) {
	level := p.attrs.level
	reading, burst := b.place.clock(p.params, b.now), b.place.burst(p.params)
	net, most := p.sum-p.back, burst
	if p.sum > 0 && p.bound < p.sum { // some of it is forced, so the level may end up anywhere
		most = max(burst, p.sum)
		if p.has {
			most = max(most, clock.Outstanding(p.level, reading)+p.sum)
		}
	}
	switch {
	case p.bound > burst: // it cannot fit, and is sent only to see what the item is like now
		u.op(condAbsent, table.AttrPK) // fails for every item that meets the other conditions
	case p.sum == 0 && p.back > 0:
		u.op(condExists, level)
		u.op(addTo, level, -p.back)
	case p.sum == 0 && p.bound < 0: // it may be in debt
		return b.now
	case p.sum == 0:
		u.op(condAbsentAtMost, level, clock.Add(reading, burst))
	case p.form == full && p.has:
		u.op(condBelow, level, reading)
		u.op(setTo, level, reading+net)
	case p.form == full && p.limit.Override:
		u.op(condAbsent, level) // or the number of overrides would be wrong
		u.op(setTo, level, reading+net)
	case p.form == full:
		u.op(condAbsentBelow, level, reading)
		u.op(setTo, level, reading+net)
	default:
		high := min(clock.Add(reading, most)-p.sum, clock.MaxLevel-p.sum)
		if p.bound >= 0 {
			high = min(high, clock.Add(reading, burst)-p.bound-p.guard)
		}
		if p.guard > 0 {
			high = min(high, p.ceiling)
		}
		u.op(condBetween, level, reading-p.guard, high)
		u.op(addTo, level, net+p.guard)
	}
	if p.sum > 0 {
		u.op(addTo, p.attrs.debited, p.sum)
	}
	if p.back > 0 {
		u.op(addTo, p.attrs.returned, p.back)
	}
	if !p.known && !p.limit.Override {
		u.opText(condAbsentEqual, prefixParams+p.name, formatParams(p.params))
		u.opText(setTo, prefixParams+p.name, formatParams(p.params))
	}
	return clock.Add(b.now, p.params.Full(most))
}

// retain ensures that the item outlives whatever it owes. Its ttl never shrinks: a write asserts that it is late enough
// and keeps it, or asserts that it is not later than the new one. Items of split buckets have no ttl.
func (s *Store) retain(b *batch, u *update, full int64) {
	if b.place.n > 1 {
		return
	}
	need := max(seconds(full), seconds(clock.Add(b.now, int64(s.cfg.Retention)))) + day
	if b.seen != nil && b.seen.ttl >= need {
		u.op(condAtLeast, table.AttrTTL, need)
		return
	}
	u.op(condAbsentAtMost, table.AttrTTL, need+day)
	u.op(setTo, table.AttrTTL, need+day)
}

const day = 24 * 60 * 60

// seconds returns an instant in Unix seconds, rounded up.
func seconds(nanos int64) int64 {
	return clock.Epoch.Unix() + nanos/int64(time.Second) + 1
}
