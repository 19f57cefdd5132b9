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
	gives  []*job // returns that wait
	parts  []part
	own    bool   // it carries takes on the bucket's own limits
	set    string // identifies these limits
	epoch  uint64
	alone  bool  // it carries one job, and no other may ride along
	latest int64 // upper bound, which it asserts, for the time of the write before it: see undo.go
	added  int   // number of overrides that the item does not have
	extras int64 // number of other limits that the item does not have
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
	given   int64 // the part of back that is not an undo
	low     bool  // something is undone as if it were the lowest: see undo.go
	room    int64 // how much may have been returned, by all processes, since the last sight: see undo.go
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

// Board implements coalesce.Driver: it plans the next write from the last sight.
func (sh *shard) Board(waiting []*job) (left []*job, ready bool, after time.Duration) {
	if len(waiting) == 0 {
		return waiting, false, 0
	}
	b := &batch{now: sh.tick(), place: sh.place(), latest: anyTime}
	b.jobs, b.parts = b.oneJob[:0], b.fewParts[:0]
	if sh.seen != nil && sh.seen.exists {
		b.seen = sh.seen
	}
	wall := time.Now()
	waiting = sh.dropLate(waiting, wall)
	if len(waiting) == 0 {
		return waiting, false, 0
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
	if waiting = sh.awaiting(waiting, b.now); len(waiting) == 0 {
		return waiting, false, 0
	}
	if u := sh.orphaned(waiting[0]); u != nil {
		b.upkeep = u
		sh.depart(b)
		return waiting, true, 0
	}
	gives := false
	for _, j := range waiting {
		if j.kind == give {
			b.gives = append(b.gives, j)
			gives = gives || j.missed
		}
	}
	if !gives {
		waiting, gives = sh.boardDebits(b, waiting)
		if b.upkeep != nil {
			sh.depart(b)
			return waiting, true, 0
		}
		gives = gives && len(b.jobs) == 0
	}
	waiting, after = sh.boardGives(b, waiting, gives, wall)
	if len(b.jobs) == 0 {
		if gives && len(waiting) > 0 { // every return was answered, so the takes that waited for them are judged now
			return sh.Board(waiting)
		}
		return waiting, false, after
	}
	sh.depart(b)
	return waiting, true, 0
}

// depart makes a batch the next write.
func (sh *shard) depart(b *batch) {
	for _, j := range b.jobs {
		sh.lane.Board(j)
	}
	if b.upkeep == nil {
		sh.counting(b)
	}
	if b.upkeep == nil && b.jobs[0].kind != give { // done here because the lane is locked
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
		case j.Abandoned() && j.kind != give:
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
	board    verdict = iota // it rides
	wait                    // it rides on a later write
	answered                // it needs no write
	returns                 // it waits until the waiting returns are written
	first                   // it waits until the batch's upkeep is written
)

// boardDebits plans takes and forced debits, in their order, and reports whether one of them would fit if the waiting
// returns had been made.
func (sh *shard) boardDebits(b *batch, waiting []*job) (left []*job, gives bool) {
	left = waiting[:0]
	for i, j := range waiting {
		if j.kind == give {
			left = append(left, j)
			continue
		}
		v := wait
		if !b.alone {
			v = sh.judge(b, j)
		}
		switch v {
		case board:
			sh.carry(b, j)
		case wait, returns:
			gives = gives || v == returns
			left = append(left, j)
		case first:
			return append(left, waiting[i:]...), false
		case answered:
		}
	}
	return left, gives
}

// judge decides about a take or forced debit in the batch being planned.
func (sh *shard) judge(b *batch, j *job) verdict {
	if j.back != nil {
		if len(b.jobs) > 0 {
			return wait
		}
		sh.returnable(j, j.back)
	}
	if len(b.jobs) > 0 && (j.kind == take && j.v.own && b.own && j.v.set != b.set || b.clashes(j)) {
		return wait
	}
	it := sh.seen
	if it != nil && it.exists && j.kind == take && j.v.own && j.v.set != it.set {
		return sh.judgeOther(b, j)
	}
	if j.kind == take && sh.never(b, j) {
		if it == nil {
			it = missing
		}
		sh.decide(j, false, b.now, it)
		return answered
	}
	if it == nil || !it.exists {
		return sh.judgeUnseen(b, j)
	}
	if v := sh.judgeOverrides(b, j); v != board {
		return v
	}
	if overflows(b, j, it) {
		sh.answer(j, store.ErrOverflow)
		return answered
	}
	if j.kind == force || fits(it, b.place, j, b.now, b.spent) {
		return board
	}
	if len(b.gives) > 0 && fits(it, b.place, j, b.now, returned(b.gives)) {
		return returns
	}
	if !sh.sure(j) {
		return probe(b)
	}
	if len(b.jobs) > 0 && fits(it, b.place, j, b.now, nobody) && !sh.crowded() {
		return wait // it fits alone, but not beside the jobs before it
	}
	sh.decide(j, false, b.now, it)
	return answered
}

// crowded reports whether other processes take everything there is, so that this one's writes fail. A take that does not
// fit beside the takes before it is then refused as if those had been debited. Otherwise all would wait until their time
// is up.
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
	return board
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
		if l.Override && (j.kind == take || j.amounts[i] > 0) && b.part(j.v.names[i]) == nil {
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
		return board
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
		if l.Override && (j.kind == take || j.amounts[i] > 0) && it.find(j.v.names[i]) == nil && b.part(j.v.names[i]) == nil {
			added++
		}
	}
	if added == 0 || it.overrides+b.added+added <= store.MaxOverrides {
		return board
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

func nobody(string) int64 { return 0 }

// fits reports whether a take's charges fit an item in addition to what others have been granted already.
func fits(it *item, pl place, j *job, now int64, spent func(name string) int64) bool {
	for i, a := range j.amounts {
		if !j.unbound(i) && !j.inShadow(i) && !fitsOne(it, pl, j, i, a, now, spent) {
			return false
		}
	}
	return true
}

// fitsOne is fits for a single charge.
func fitsOne(it *item, pl place, j *job, i int, a, now int64, spent func(name string) int64) bool {
	p, name := j.v.params[i], j.v.names[i]
	reading := pl.clock(p, now)
	level, ok := it.level(name)
	if !ok {
		level = reading
	}
	if n := spent(name); n != 0 {
		level = clock.Spend(level, reading, n)
	}
	return pl.fits(p, level, reading, a)
}

// leaveOut decides, by the last sight, which of a take's shadow charges fit and are debited.
func (b *batch) leaveOut(j *job) {
	it := missing
	if b.seen != nil {
		it = b.seen
	}
	for i, want := range j.shadow.wants {
		if !j.shadow.is[i] {
			continue
		}
		j.amounts[i] = want
		if j.shadow.out[i] = !fitsOne(it, b.place, j, i, want, b.now, b.spent); j.shadow.out[i] {
			j.amounts[i] = 0
		}
	}
}

// overflows reports whether a forced amount would raise a level above the maximum.
func overflows(b *batch, j *job, it *item) bool {
	for i, a := range j.amounts {
		if a == 0 || !j.unbound(i) {
			continue
		}
		name, p := j.v.names[i], j.v.params[i]
		level, ok := it.level(name)
		if ok {
			p = it.find(name).params
		} else {
			level = b.place.clock(p, b.now)
		}
		reading := b.place.clock(p, b.now)
		if clock.Spend(clock.Spend(level, reading, b.spent(name)), reading, a) > clock.MaxLevel {
			return true
		}
	}
	return false
}
