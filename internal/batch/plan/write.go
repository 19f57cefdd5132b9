package plan

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Write is what one write carries.
type Write struct {
	Number  uint64 // 0: nothing to write
	Now     int64
	Planned time.Time
	On      Place
	Rules   *Rules
	Last    *Item // the item that it was planned on; nil: no existing item is known
	Entries []Entry
	Totals  []Total
	Upkeep  upkeep // nil: none
	Own     Limits
	Added   int    // number of overrides that the item does not have
	Counts  Counts // of its own jobs
	Owed    Counts // other takes that it counts
	Birth   uint64 // the driver's: the id of an item that the write creates
	Answers []Answer
}

// Entry is a job as a write carries it.
type Entry struct {
	Job     *Job
	Amounts []int64 // what is written: see Job.Shadow, returnable and undo
	Out     []bool  // of a take with shadow charges: those that are left out
}

func (e *Entry) leftOut(i int) bool { return len(e.Out) > 0 && e.Out[i] }

// Limits are the limits of its own that a bucket has in force.
type Limits struct {
	Is    bool // the write's takes are on them
	Set   string
	Epoch uint64
}

// Total is what a write does to one limit, over all its entries.
type Total struct {
	Name    string
	Limit   *store.Limit
	Params  clock.Params
	Sum     int64 // debited
	Bound   int64 // the part of Sum that must fit: debits up to the last one that may be refused; -1: none
	Back    int64 // returned
	Known   bool  // the last item has the limit
	Has     bool  // and a level of it
	Level   int64
	Form    Form
	Guard   int64
	Ceiling int64 // if there is a guard: the highest level allowed

	attrs *limitAttrs
}

// Form is the state in which a write expects a limit's level.
type Form byte

// The forms.
const (
	Full    Form = iota // absent, or below the clock: the level is set
	Running             // at or above the clock: the debit is added to the level
)

// last returns the item that the write was planned on, or one that does not exist.
func (w *Write) last() *Item {
	if w.Last == nil {
		return Missing
	}
	return w.Last
}

// undoes reports whether the write carries undos.
func (w *Write) undoes() bool { return len(w.Entries) > 0 && w.Entries[0].Job.Kind == Undo }

func (w *Write) index(name string) int {
	return slices.IndexFunc(w.Totals, func(p Total) bool { return p.Name == name })
}

// total returns what the write does to a limit, or nil.
func (w *Write) total(name string) *Total {
	if i := w.index(name); i >= 0 {
		return &w.Totals[i]
	}
	return nil
}

// spent returns what the write debits of a limit. No write debits nothing.
func (w *Write) spent(name string) int64 {
	if w == nil {
		return 0
	}
	if p := w.total(name); p != nil {
		return p.Sum
	}
	return 0
}

// totalOf returns the write's total of an entry's limit, and adds it if there is none.
func (w *Write) totalOf(e *Entry, i int) *Total {
	v := e.Job.View
	if p := w.total(v.Names[i]); p != nil {
		return p
	}
	p := Total{Name: v.Names[i], attrs: &v.attrs[i], Limit: v.Limits[i], Params: v.Params[i], Bound: -1}
	if w.Last != nil {
		if l := w.Last.Find(p.Name); l != nil {
			p.Known, p.Has, p.Level = true, l.Has, l.Level
			if e.Job.Kind != Take {
				p.Params = l.Params // a settle means the bucket's own limit of that name
			}
		}
	}
	if !p.Known && p.Limit.Override && e.Amounts[i] > 0 {
		w.Added++
	}
	w.Totals = append(w.Totals, p)
	return &w.Totals[len(w.Totals)-1]
}

// clashes reports whether a job and the write give different parameters to a limit that the item does not have.
func (w *Write) clashes(j *Job) bool {
	for i, name := range j.View.Names {
		if p := w.total(name); p != nil && !p.Known && p.Params != j.View.Params[i] {
			return true
		}
	}
	return false
}

// leaveOut decides, by the last item, which of a take's shadow charges fit and are debited.
func (w *Write) leaveOut(e *Entry) {
	e.Amounts, e.Out = slices.Clone(e.Amounts), make([]bool, len(e.Amounts))
	for i, a := range e.Amounts {
		if e.Job.Shadow[i] && !fitsOne(w.last(), w.On, e.Job.View, i, a, w.Now, w) {
			e.Amounts[i], e.Out[i] = 0, true
		}
	}
}

// overflows reports whether a forced amount would raise a level above the maximum.
func (w *Write) overflows(j *Job) bool {
	for i, a := range j.Amounts {
		if a <= 0 || !j.forced(i) {
			continue
		}
		name, p := j.View.Names[i], j.View.Params[i]
		level, ok := w.last().Level(name)
		if ok {
			p = w.Last.Find(name).Params
		} else {
			level = w.On.Clock(p, w.Now)
		}
		reading := w.On.Clock(p, w.Now)
		if clock.Spend(clock.Spend(level, reading, w.spent(name)), reading, a) > clock.MaxLevel {
			return true
		}
	}
	return false
}

// onlyGives reports whether the write debits nothing.
func (w *Write) onlyGives() bool {
	return !slices.ContainsFunc(w.Entries, func(e Entry) bool { return e.Job.Kind == Take }) &&
		!slices.ContainsFunc(w.Totals, func(p Total) bool { return p.Sum > 0 })
}

// Deletes reports whether the write deletes the item. It must then assert that the item belongs to no split bucket.
func (w *Write) Deletes() bool {
	_, is := w.Upkeep.(*forget)
	return is && !w.blanks()
}

// blanks reports whether an item that is forgotten is emptied rather than deleted: the item of a split bucket stays, as
// the number of shards must not be forgotten while others may still write by it.
func (w *Write) blanks() bool { return w.On.N > 1 && w.Last != nil }

// Creates reports whether the write creates an item that does not exist.
func (w *Write) Creates() bool {
	return w.Last == nil && w.Upkeep == nil && !w.undoes() && !w.onlyGives()
}

// Update adds the write's conditions and changes to an empty update.
func (w *Write) Update(u *Update) {
	switch {
	case w.Upkeep != nil:
		w.Upkeep.write(w, u)
	case w.undoes():
		u.op(condEqual, attrID, int64(w.Last.ID))
		u.op(condEqual, attrWrites, w.Last.Writes)
		w.giving(u)
	case w.onlyGives():
		w.giving(u)
	default:
		w.debiting(u)
	}
	u.count(Counts{Takes: w.Counts.Takes + w.Owed.Takes, Undone: w.Counts.Undone + w.Owed.Undone})
	u.stamp(w.Now)
}

// giving writes returns. It asserts that each limit has a level, whatever it is.
func (w *Write) giving(u *Update) {
	w.On.assert(u)
	for i := range w.Totals {
		p := &w.Totals[i]
		u.op(condExists, p.attrs.level)
		u.op(addTo, p.attrs.level, -p.Back)
		u.op(addTo, p.attrs.returned, p.Back)
	}
}

// debiting writes debits, and the returns that go with them.
func (w *Write) debiting(u *Update) {
	w.asItWas(u)
	full := w.Now // when the last limit is full
	for i := range w.Totals {
		full = max(full, w.debit(u, &w.Totals[i]))
	}
	switch {
	case w.Added > 0 && w.Last == nil:
		u.op(condAbsent, attrID)
		u.op(setTo, attrOverrides, int64(w.Added))
	case w.Added > 0:
		u.op(condAbsentAtMost, attrOverrides, int64(store.MaxOverrides-w.Added))
		u.op(addTo, attrOverrides, int64(w.Added))
	}
	if w.Last == nil {
		u.op(setOnce, attrID, int64(w.Birth&math.MaxInt64))
	}
	w.retain(u, full)
}

// asItWas asserts that the item is the one that was seen, with the same limits in force and the same number of shards.
func (w *Write) asItWas(u *Update) {
	it := w.Last
	w.On.assert(u)
	if it == nil {
		if w.Own.Is {
			u.opText(condAbsentEqual, attrSet, w.Own.Set)
			u.opText(setTo, attrSet, w.Own.Set)
			u.op(setOnce, attrEpoch, int64(w.Own.Epoch))
		}
		return
	}
	u.op(condEqual, attrID, int64(it.ID))
	switch {
	case w.Own.Is:
		u.opText(condEqual, attrSet, w.Own.Set)
	case it.Set == "":
		u.op(condAbsent, attrSet)
	default:
		u.opText(condEqual, attrSet, it.Set)
	}
}

// debit writes what is debited of one limit, and returns the latest time at which the limit is full after it.
func (w *Write) debit(u *Update, p *Total) (fullAt int64) {
	level := p.attrs.level
	reading, burst := w.On.Clock(p.Params, w.Now), w.On.Burst(p.Params)
	net, most := p.Sum-p.Back, burst
	if p.Sum > 0 && p.Bound < p.Sum { // some of it is forced, so the level may end up anywhere
		most = max(burst, p.Sum)
		if p.Has {
			most = max(most, clock.Outstanding(p.Level, reading)+p.Sum)
		}
	}
	switch {
	case p.Bound > burst: // it cannot fit, and is sent only to see what the item is like now
		u.op(condAbsent, attrKey) // fails for every item that meets the other conditions
	case p.Sum == 0 && p.Back > 0:
		u.op(condExists, level)
		u.op(addTo, level, -p.Back)
	case p.Sum == 0 && p.Bound < 0 && (p.Has || p.Limit.Override): // it may be in debt
		return w.Now
	case p.Sum == 0:
		if p.Bound >= 0 {
			u.op(condAbsentAtMost, level, clock.Add(reading, burst))
		}
		if !p.Has && !p.Limit.Override { // so that a process whose clock is behind does not begin it earlier
			u.op(setOnce, level, reading)
		}
	case p.Form == Full && p.Has:
		u.op(condBelow, level, reading)
		u.op(setTo, level, reading+net)
	case p.Form == Full && p.Limit.Override:
		u.op(condAbsent, level) // or the number of overrides would be wrong
		u.op(setTo, level, reading+net)
	case p.Form == Full:
		u.op(condAbsentBelow, level, reading)
		u.op(setTo, level, reading+net)
	default:
		high := min(clock.Add(reading, most)-p.Sum, clock.MaxLevel-p.Sum)
		if p.Bound >= 0 {
			high = min(high, clock.Add(reading, burst)-p.Bound-p.Guard)
		}
		if p.Guard > 0 {
			high = min(high, p.Ceiling)
		}
		u.op(condBetween, level, reading-p.Guard, high)
		u.op(addTo, level, net+p.Guard)
	}
	if p.Sum > 0 {
		u.op(addTo, p.attrs.debited, p.Sum)
	}
	if p.Back > 0 {
		u.op(addTo, p.attrs.returned, p.Back)
	}
	if !p.Known && !p.Limit.Override {
		u.opText(condAbsentEqual, prefixParams+p.Name, formatParams(p.Params))
		u.opText(setTo, prefixParams+p.Name, formatParams(p.Params))
	}
	return clock.Add(w.Now, p.Params.Full(most))
}

// retain ensures that the item outlives whatever it owes. Its ttl never shrinks: a write asserts that it is late enough
// and keeps it, or asserts that it is not later than the new one. Items of split buckets have no ttl.
func (w *Write) retain(u *Update, full int64) {
	if w.On.N > 1 {
		return
	}
	need := max(seconds(full), seconds(clock.Add(w.Now, int64(w.Rules.Retention)))) + day
	if w.Last != nil && w.Last.TTL >= need {
		u.op(condAtLeast, attrTTL, need)
		return
	}
	u.op(condAbsentAtMost, attrTTL, need+day)
	u.op(setTo, attrTTL, need+day)
}

const day = 24 * 60 * 60

// seconds returns an instant in Unix seconds, rounded up.
func seconds(nanos int64) int64 {
	return clock.Epoch.Unix() + nanos/int64(time.Second) + 1
}

// choose picks the form in which a debit expects its limit's level. It goes by the last item and, if others write too,
// by how much of the limit they have used lately.
//
// With a guard, the running form also works for a level that has just fallen below the clock, without knowing whether
// it has. The guard is debited in addition, so that the level cannot end up lower than it should. A write chooses the
// guard so that the level stays close to the clock: it takes what would otherwise have been refilled unused. What is
// given away in total stays within ten times [Rules.Guard], by default a tenth of the burst, however many writers there
// are, because the form also asserts that the level is at most that far above the clock.
func (p *planner) choose(total *Total) {
	on, now := p.w.On, p.w.Now
	clock, burst := on.Clock(total.Params, now), on.Burst(total.Params)
	if !total.Has {
		return
	}
	if total.Level >= clock {
		total.Form = Running
	}
	most := int64(p.s.Rules.Guard * float64(burst))
	if total.Sum == 0 || total.Bound < total.Sum || most <= 0 ||
		p.s.Others.Alone >= aloneAfter || total.Level > clock+5*most {
		return
	}
	var g int64
	if p.s.Misses > 0 { // the last item is a round trip old
		g = min(on.Clock(total.Params, now+int64(10*time.Millisecond))-clock, burst/10)
		if total.Level < clock-g || total.Level > clock+g {
			return
		}
	} else if g = p.s.Others.Pace.spare(&p.w, total); g < 0 || g > most {
		return
	}
	if clock+burst-total.Bound-g >= clock {
		total.Form, total.Guard, total.Ceiling = Running, g, clock+max(10*most, g)
	}
}

// Pace measures how much of a limit all processes used lately.
type Pace struct{ from, next *Item }

// paceOver is the shortest time that a pace measures over. If writes are frequent, the longest is twice that.
const paceOver = int64(time.Second)

func (pc *Pace) read(it *Item) {
	if pc.next == nil || pc.next.ID != it.ID || it.At < pc.next.At {
		pc.from, pc.next = it, it
	} else if it.At-pc.next.At >= paceOver {
		pc.from, pc.next = pc.next, it
	}
}

// spare returns how much each write would have to debit of a limit in addition, so that 95 % of what the clock issues
// is used. It is negative if that is unknown.
func (pc *Pace) spare(w *Write, total *Total) int64 {
	it, from := w.Last, pc.from
	if from == nil || it.ID != from.ID || it.Writes-from.Writes < 8 {
		return -1
	}
	is, was := it.Find(total.Name), from.Find(total.Name)
	if is == nil || was == nil {
		return -1
	}
	used := is.Debited - is.Returned - (was.Debited - was.Returned)
	issued := w.On.Clock(total.Params, it.At) - w.On.Clock(total.Params, from.At)
	return max(0, int64(paceTarget*float64(issued))-used) / (it.Writes - from.Writes)
}

const paceTarget = 0.95
