package dynamodb

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// batch is what one write carries.
type batch struct {
	now    int64
	place  place
	seen   *item // the sight that it was planned on; nil: no existing item
	jobs   []*job
	parts  []part
	own    bool   // it carries takes on the bucket's own limits
	set    string // identifies these limits
	epoch  uint64
	alone  bool  // it carries one job, and no other may ride along
	takers bool  // it carries takes
	gives  bool  // a job that returns something is aboard, or waits: a take that does not fit waits for it
	below  bool  // it returns more of a limit than it debits, so no take may ride
	added  int   // number of overrides that the item does not have
	takes  int64 // number of counted takes that it admits, and of takes that it undoes
	undone int64
	others uncounted // other takes that it counts: see count.go
	upkeep upkeep

	number uint64
	sent   time.Time
	extra  []int64 // debited ahead, by the limits of the jobs' view: see prefetch.go

	oneJob   [1]*job
	fewParts [2]part
}

// part is what a batch does to one limit.
type part struct {
	name    string
	attrs   *limitAttrs
	limit   *store.Limit
	params  clock.Params
	sum     int64 // debited
	bound   int64 // the part of sum that must fit: debits up to the last one that may be refused; -1: none
	back    int64 // returned
	known   bool  // the last sight showed the limit
	has     bool  // the last sight showed a level of it
	level   int64
	form    form
	guard   int64
	ceiling int64 // if there is a guard: the highest level allowed
	taken   bool  // a take names it
}

// part returns what the batch does to a limit, or nil.
func (b *batch) part(name string) *part {
	if i := b.index(name); i >= 0 {
		return &b.parts[i]
	}
	return nil
}

func (b *batch) index(name string) int {
	for i := range b.parts {
		if b.parts[i].name == name {
			return i
		}
	}
	return -1
}

func (b *batch) spent(name string) int64 {
	if p := b.part(name); p != nil {
		return p.sum
	}
	return 0
}

// last returns the sight that the batch was planned on, or an item that does not exist.
func (b *batch) last() *item {
	if b.seen == nil {
		return missing
	}
	return b.seen
}

// Board implements coalesce.Driver: it plans the next write from the last sight.
func (sh *shard) Board(waiting []*job) (left []*job, ready bool, after time.Duration) {
	waiting = sh.dropLate(waiting, time.Now())
	if len(waiting) == 0 {
		return waiting, false, 0
	}
	if sh.outdated() {
		sh.dismiss(waiting)
		return waiting[:0], false, 0
	}
	b := &batch{now: sh.tick(), place: sh.place()}
	b.jobs, b.parts = b.oneJob[:0], b.fewParts[:0]
	if sh.seen != nil && sh.seen.exists {
		b.seen = sh.seen
	}
	if i := slices.IndexFunc(waiting, func(j *job) bool { return j.kind == tend }); i >= 0 {
		j := waiting[i]
		waiting = slices.Delete(waiting, i, i+1)
		if !j.upkeep.due(sh, b.now) {
			sh.decide(j, true, b.now, sh.seen)
			return sh.Board(waiting)
		}
		b.upkeep, b.jobs = j.upkeep, []*job{j}
		sh.depart(b)
		return waiting, true, 0
	}
	waiting = sh.board(b, waiting)
	if b.upkeep == nil && len(b.jobs) == 0 {
		return waiting, false, 0
	}
	sh.depart(b)
	return waiting, true, 0
}

// board plans jobs in their order, and returns those that wait.
func (sh *shard) board(b *batch, waiting []*job) (left []*job) {
	left = waiting[:0]
	for i, j := range waiting {
		v := wait
		switch {
		case b.alone:
		case j.kind == undo:
			v = sh.judgeUndo(b, j)
		case len(b.jobs) > 0 && b.jobs[0].kind == undo:
		case j.kind == settle:
			v = sh.judgeSettle(b, j)
		default:
			v = sh.judgeTake(b, j)
		}
		b.gives = b.gives || v <= wait && (j.kind == undo || j.returns())
		switch v {
		case wait:
			left = append(left, j)
		case first:
			return append(left, waiting[i:]...)
		default:
		}
	}
	return left
}

// depart makes a batch the next write.
func (sh *shard) depart(b *batch) {
	for _, j := range b.jobs {
		sh.lane.Board(j)
	}
	if b.upkeep == nil {
		sh.counting(b)
	}
	if b.upkeep == nil && b.jobs[0].kind != undo { // done here because the lane is locked
		sh.ahead(b)
		for i := range b.parts {
			sh.choose(b, &b.parts[i])
		}
	}
	sh.sent++
	b.number, b.sent = sh.sent, sh.s.clock()
	sh.batch = b
}

// dropLate answers, with an error, the jobs whose time is up and the abandoned jobs other than returns.
func (sh *shard) dropLate(waiting []*job, wall time.Time) []*job {
	return slices.DeleteFunc(waiting, func(j *job) bool {
		switch {
		case j.Abandoned() && j.kind == take:
			sh.answer(j, context.Canceled)
		case wall.After(j.expires):
			sh.answer(j, &store.Error{
				Op: "write", Key: sh.describe(), Err: errors.Join(j.err, context.DeadlineExceeded),
				Hint: "its writes did not succeed in time",
			})
		default:
			return false
		}
		return true
	})
}

// verdict is the decision about a job while a write is planned.
type verdict byte

const (
	boarded  verdict = iota // it rides
	wait                    // it rides on a later write
	answered                // it needs no write
	first                   // it waits until the batch's upkeep is written
)

// judgeSettle adds a settle to a batch. Beside takes, no limit's net may fall below zero. What is returned to limits
// that the item does not have is left out, because they are full.
func (sh *shard) judgeSettle(b *batch, j *job) verdict {
	if j.returns() && !sh.returnable(j) && j.nothing() {
		sh.decide(j, true, b.now, b.last())
		return answered
	}
	below := false
	for i, a := range j.amounts {
		if a < 0 {
			p := b.part(j.v.names[i])
			below = below || p == nil || !p.has || p.sum-p.back < -a
		}
	}
	if below && b.takers || b.clashes(j) {
		return wait
	}
	if j.debits() {
		if v := sh.judgeForced(b, j); v != boarded {
			return v
		}
	}
	b.below = b.below || below
	sh.carry(b, j)
	return boarded
}

// returnable leaves out what a settle returns to limits that the item is known not to have, and reports whether
// anything remains to be returned.
func (sh *shard) returnable(j *job) (some bool) {
	if sh.seen == nil || !sh.sure(j) {
		return true
	}
	for i, name := range j.v.names {
		if l := sh.seen.find(name); j.amounts[i] < 0 && (!sh.seen.exists || l == nil || !l.has) {
			j.amounts[i] = 0
		}
		some = some || j.amounts[i] < 0
	}
	return some
}

// judgeForced reports whether what a settle debits may be written.
func (sh *shard) judgeForced(b *batch, j *job) verdict {
	if b.seen == nil {
		return sh.judgeUnseen(b, j)
	}
	if v := sh.judgeOverrides(b, j); v != boarded {
		return v
	}
	if overflows(b, j, b.seen) {
		sh.answer(j, store.ErrOverflow)
		return answered
	}
	return boarded
}

// judgeTake adds a take to a batch, or decides it by the last sight if that is good enough.
func (sh *shard) judgeTake(b *batch, j *job) verdict {
	if b.below || len(b.jobs) > 0 && (j.v.own && b.own && j.v.set != b.set || b.clashes(j)) {
		return wait
	}
	it := b.seen
	var v verdict
	switch {
	case it != nil && j.v.own && j.v.set != it.set:
		v = sh.judgeOther(b, j)
	case sh.never(b, j):
		sh.decide(j, false, b.now, b.last())
		return answered
	case it == nil:
		v = sh.judgeUnseen(b, j)
	default:
		if v = sh.judgeOverrides(b, j); v == boarded {
			v = sh.judgeRoom(b, j)
		}
	}
	if v == boarded {
		sh.carry(b, j)
	}
	return v
}

// judgeRoom judges whether a take fits the item that was last seen. A take that waited while that item was shown is
// judged at the time of the write that showed it. What the clock has issued since is for later takes. Otherwise, a
// crowd that asks for more than the limit would wait for the same few tokens, because each of them alone would fit.
func (sh *shard) judgeRoom(b *batch, j *job) verdict {
	it := b.seen
	if overflows(b, j, it) {
		sh.answer(j, store.ErrOverflow)
		return answered
	}
	if now := sh.judgedAt(j); sh.shown > j.since && !b.gives && !fits(it, b.place, j, now, nobody) {
		sh.decide(j, false, now, it)
		return answered
	}
	switch {
	case fits(it, b.place, j, b.now, b.spent):
		return boarded
	case b.gives:
		return wait
	case !sh.sure(j):
		return probe(b)
	case len(b.jobs) > 0 && fits(it, b.place, j, b.now, nobody) && !sh.crowded():
		return wait // it fits alone, but not beside the jobs before it
	}
	sh.decide(j, false, b.now, it)
	return answered
}

// judgedAt returns the time of the write that showed the last sight; or, if its condition failed, the time of the write
// before it, provided that the job had arrived by then.
func (sh *shard) judgedAt(j *job) int64 {
	if at := min(sh.seen.at, sh.tick()); !sh.applied && at >= j.came {
		return at
	}
	return sh.wrote
}

// crowded reports whether other processes take everything there is, so that this one's writes fail. A take that does
// not fit beside the takes before it is then refused as if those had been debited. Otherwise all would wait until their
// time is up.
func (sh *shard) crowded() bool { return sh.misses > 2 && sh.s.cfg.Guard >= 0 }

// clashes reports whether a job and a batch give different parameters to a limit that the item does not have.
func (b *batch) clashes(j *job) bool {
	for i, name := range j.v.names {
		if p := b.part(name); p != nil && !p.known && p.params != j.v.params[i] {
			return true
		}
	}
	return false
}

// probe lets a take that the last sight would refuse ask the item itself, alone.
func probe(b *batch) verdict {
	if len(b.jobs) > 0 {
		return wait
	}
	b.alone = true
	return boarded
}

// never reports whether a take would not fit even a full shard.
func (sh *shard) never(b *batch, j *job) bool {
	for i, a := range j.amounts {
		if !j.unbound(i) && !j.inShadow(i) && a > b.place.burst(j.v.params[i]) {
			return true
		}
	}
	return false
}

// judgeUnseen is judge for an item that was not seen, or was seen not to exist. Such an item counts as full.
func (sh *shard) judgeUnseen(b *batch, j *job) verdict {
	if overflows(b, j, missing) {
		sh.answer(j, store.ErrOverflow)
		return answered
	}
	overrides := 0
	for i, l := range j.v.limits {
		if l.Override && j.amounts[i] > 0 && b.part(j.v.names[i]) == nil {
			overrides++
		}
	}
	if b.added+overrides > store.MaxOverrides {
		if len(b.jobs) > 0 {
			return wait
		}
		sh.answer(j, store.ErrTooManyOverrides)
		return answered
	}
	if j.kind != take || fits(missing, b.place, j, b.now, b.spent) {
		return boarded
	}
	if len(b.jobs) > 0 {
		return wait
	}
	sh.decide(j, false, b.now, missing) // at the end of the clock nothing fits
	return answered
}

// judgeOther is judge for a take whose limits differ from those in force on the item.
func (sh *shard) judgeOther(b *batch, j *job) verdict {
	it := sh.seen
	if it.set != "" && (j.epoch < it.epoch || j.epoch == it.epoch && j.v.set < it.set) {
		if !sh.sure(j) {
			return probe(b)
		}
		sh.answer(j, store.ErrStaleLimits)
		return answered
	}
	if len(b.jobs) > 0 {
		return wait
	}
	b.upkeep = &rebase{v: j.v, epoch: j.epoch, from: it}
	return first
}

// judgeOverrides ensures that an item never holds too many overrides.
func (sh *shard) judgeOverrides(b *batch, j *job) verdict {
	it := sh.seen
	added := 0
	for i, l := range j.v.limits {
		if l.Override && j.amounts[i] > 0 && it.find(j.v.names[i]) == nil && b.part(j.v.names[i]) == nil {
			added++
		}
	}
	if added == 0 || it.overrides+b.added+added <= store.MaxOverrides {
		return boarded
	}
	if len(b.jobs) > 0 {
		return wait
	}
	full := it.fullOverrides(b.place, b.now, j.v)
	if it.overrides-len(full)+added <= store.MaxOverrides {
		b.upkeep = &sweep{names: full, from: it}
		return first
	}
	if !sh.sure(j) {
		return probe(b)
	}
	sh.answer(j, store.ErrTooManyOverrides)
	return answered
}

// fullOverrides returns the overrides that are full, except those of a view.
func (it *item) fullOverrides(pl place, now int64, but *view) (names []string) {
	for i := range it.limits {
		l := &it.limits[i]
		_, _, override := parseLimitName(l.name)
		if override && l.level <= pl.clock(l.params, now) && !slices.Contains(but.names, l.name) {
			names = append(names, l.name)
		}
	}
	return names
}

// carry adds a take or settle to a batch.
func (sh *shard) carry(b *batch, j *job) {
	b.jobs = append(b.jobs, j)
	if j.counted {
		b.takes++
	}
	b.takers = b.takers || j.kind == take
	if j.kind == take && j.v.own {
		b.own, b.set, b.epoch = true, j.v.set, j.epoch
	}
	if j.shadow != nil {
		b.leaveOut(j)
	}
	for i, a := range j.amounts {
		if j.kind == settle && a == 0 {
			continue
		}
		p := sh.partOf(b, j, i)
		p.taken = p.taken || j.kind == take
		switch {
		case a < 0:
			p.back -= a
		case !j.leftOut(i):
			p.sum += a
			if !j.unbound(i) {
				p.bound = p.sum
			}
		}
	}
}

// partOf returns the batch's part for a job's limit, and adds it if there is none.
func (sh *shard) partOf(b *batch, j *job, i int) *part {
	name := j.v.names[i]
	if p := b.part(name); p != nil {
		return p
	}
	p := part{name: name, attrs: &j.v.attrs[i], limit: j.v.limits[i], params: j.v.params[i], bound: -1}
	if b.seen != nil {
		if l := b.seen.find(name); l != nil {
			p.known, p.has, p.level = true, l.has, l.level
			if j.kind != take {
				p.params = l.params // a settle means the bucket's own limit of that name
			}
		}
	}
	if !p.known && p.limit.Override && j.amounts[i] > 0 {
		b.added++
	}
	b.parts = append(b.parts, p)
	return &b.parts[len(b.parts)-1]
}
