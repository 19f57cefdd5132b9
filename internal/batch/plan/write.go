package plan

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/hold"
	"github.com/weirlimits/weir/internal/batch/limitname"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Write is what one write carries.
type Write struct {
	Number  uint64 // 0: nothing to write
	Now     int64
	Planned time.Time
	On      Place
	Lives   Lives
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
	Exact   bool    // of a settle: a limit may not go further into debt, so less is debited than was asked for
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
	Name   string
	Limit  *store.Limit
	Params clock.Params
	Sum    int64 // debited
	Bound  int64 // the part of Sum that must fit: debits up to the last one that may be refused; -1: none
	Back   int64 // returned
	Known  bool  // the last item has the limit
	Has    bool  // and a level of it
	Listed bool  // it is among the own limits of the write's takes
	Level  int64
	Exact  bool // the change holds only for that level
	Mixed  int  // the sign of what settles change that both debit and return; 0: there are none
	expected

	slots *hold.Change // of a limit of slots
	attrs *limitAttrs
}

// expected is what a write expects of a limit's level.
type expected struct {
	Form    Form
	Guard   int64
	Ceiling int64 // if there is a guard: the highest level allowed
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

// spent returns what the write debits of a limit; of slots, by how much more are held. No write debits nothing.
func (w *Write) spent(name string) int64 {
	if w != nil {
		if p := w.total(name); p != nil && p.slots != nil {
			return p.Sum - p.Back
		} else if p != nil {
			return p.Sum
		}
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
	if p.Params.Kind() == clock.Slots {
		held := heldOf(w, p.Name)
		p.slots = &hold.Change{From: held, To: held}
	}
	w.Totals = append(w.Totals, p)
	return &w.Totals[len(w.Totals)-1]
}

// adds returns the number of overrides that a job adds to the item.
func (w *Write) adds(j *Job) (n int) {
	for i, name := range j.View.Names {
		if j.View.Limits[i].Override && j.Amounts[i] > 0 && w.last().Find(name) == nil && w.spent(name) == 0 {
			n++
		}
	}
	return n
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
func (w *Write) overflows(j *Job, amounts []int64) bool {
	for i, a := range amounts {
		if a <= 0 || !j.forced(i) {
			continue
		}
		name, p := j.View.Names[i], j.View.Params[i]
		level, ok := w.last().Level(name, w.Now)
		if ok {
			p = w.Last.Find(name).Params
		} else {
			level = w.On.Fresh(p, w.Now)
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
		!slices.ContainsFunc(w.Totals, func(p Total) bool { return p.Sum > 0 || p.Exact })
}

// Deletes reports whether the write deletes the item. It must then assert that the item belongs to no split bucket.
func (w *Write) Deletes() bool {
	_, is := w.Upkeep.(*forget)
	return is && !w.blanks()
}

// blanks reports whether an item that is forgotten is emptied rather than deleted: the item of a split bucket stays, as
// the number of shards must not be forgotten while others may still write by it. So do balances, and slots that are
// held.
func (w *Write) blanks() bool {
	return w.Last != nil && (w.On.N > 1 || w.Last.prepaid() || w.Last.holding(w.Now))
}

// Creates reports whether the write creates an item that does not exist.
func (w *Write) Creates() bool {
	return w.Last == nil && w.Upkeep == nil && !w.undoes() && !w.onlyGives()
}

// Update adds the write's conditions and changes to an empty update.
func (w *Write) Update(u *expr.Update) {
	switch {
	case w.Upkeep != nil:
		w.Upkeep.write(w, u)
	case w.undoes():
		u.Op(expr.Equal, attrID, int64(w.Last.ID))
		u.Op(expr.Equal, AttrWrites, w.Last.Writes)
		w.giving(u)
	case w.onlyGives():
		w.giving(u)
	default:
		w.debiting(u)
	}
	Counts{Takes: w.Counts.Takes + w.Owed.Takes, Undone: w.Counts.Undone + w.Owed.Undone}.write(u)
	stamp(u, w.Now)
}

// giving writes returns.
func (w *Write) giving(u *expr.Update) {
	w.On.assert(u)
	w.assertEpoch(u)
	for i := range w.Totals {
		p := &w.Totals[i]
		if p.slots != nil {
			p.hold(w, u)
			continue
		}
		w.give(u, p)
		u.Op(expr.Add, p.attrs.returned, p.Back)
	}
	keep(w, u)
	if slices.ContainsFunc(w.Totals, longer) {
		w.retain(u)
	}
}

// debiting writes debits, and the returns that go with them.
func (w *Write) debiting(u *expr.Update) {
	w.asItWas(u)
	for i := range w.Totals {
		if p := &w.Totals[i]; p.slots != nil {
			p.hold(w, u)
		} else {
			w.debit(u, p)
		}
	}
	keep(w, u)
	switch {
	case w.Added > 0 && w.Last == nil:
		u.Op(expr.Set, attrOverrides, int64(w.Added))
	case w.Added > 0:
		u.Op(expr.AbsentAtMost, attrOverrides, int64(store.MaxOverrides-w.Added))
		u.Op(expr.Add, attrOverrides, int64(w.Added))
	}
	if w.Last == nil {
		u.Op(expr.SetOnce, attrID, int64(w.Birth&math.MaxInt64))
	}
	w.retain(u)
}

// asItWas asserts that the item is the one that was seen, with the same limits in force and the same number of shards.
// Of an item that was not seen, it asserts that it does not exist, or has the limits of the takes in force.
func (w *Write) asItWas(u *expr.Update) {
	it := w.Last
	w.On.assert(u)
	w.assertEpoch(u)
	if it == nil {
		switch {
		case w.assertsAbsent():
			u.Op(expr.Absent, attrID)
		case w.Own.Is:
			u.OpText(expr.UnbornEqual, attrSet, w.Own.Set)
		}
		if w.Own.Is {
			u.OpText(expr.Set, attrSet, w.Own.Set)
			u.Op(expr.SetOnce, attrEpoch, int64(w.Own.Epoch))
		}
		return
	}
	u.Op(expr.Equal, attrID, int64(it.ID))
	if w.Own.Is {
		u.OpText(expr.Equal, attrSet, w.Own.Set)
	} else {
		it.assertSet(u)
	}
}

// assertsAbsent reports whether the write asserts that the item does not exist, which spares all conditions on limits:
// because it counts overrides, or because the conditions would be too many for one expression.
func (w *Write) assertsAbsent() bool {
	if w.Last != nil {
		return false
	}
	conditions := len(w.Totals)
	for i := range w.Totals {
		if w.Totals[i].paramsUnknown() {
			conditions++
		}
	}
	return w.Added > 0 || conditions > maxTotals || slotted(w)
}

// maxTotals is how many limits the jobs of a write may have together, so that its expressions have at most 4 KB and 300
// operators, of which a limit may need 46 bytes and 4 in the condition, and one of slots twice as many. A single job
// may have more, because most of its limits need less. With slots, see unchanged.
const maxTotals = 70

// overfull reports whether a job would make a write too large that carries others.
func (p *planner) overfull(j *Job) bool {
	w := &p.w
	if len(w.Entries) == 0 {
		return false
	}
	added, most := len(j.View.Names), maxTotals
	for _, name := range j.View.Names {
		added -= min(1, w.index(name)+1)
	}
	if j.View.Slots || slotted(w) {
		most /= 2
	}
	return added > 0 && len(w.Totals)+added > most
}

// paramsUnknown reports whether nothing is known of a limit's parameters in the item.
func (p *Total) paramsUnknown() bool { return !p.Known && !p.Listed && !p.Limit.Override }

// full returns the latest time at which all limits that the write changes are full after it.
func (w *Write) full() int64 {
	if w.Upkeep != nil {
		return w.Upkeep.full(w)
	}
	full := w.Now
	for i := range w.Totals {
		if p := &w.Totals[i]; p.Sum+p.Back > 0 || p.Bound >= 0 || !p.Has && !p.Limit.Override {
			full = max(full, w.On.full(p.Params, w.Now, w.most(p)))
		}
		if p := &w.Totals[i]; p.slots != nil && p.slots.Any() {
			full = max(full, clock.Add(p.slots.To.End, hold.Skew))
		}
	}
	return full
}

// most returns how much of a limit may be outstanding after the write.
func (w *Write) most(p *Total) int64 {
	most := w.On.Burst(p.Params)
	if p.Sum > 0 && p.Bound < p.Sum { // some of it is forced, so the level may end up anywhere
		most = max(most, p.Sum)
		if p.Has {
			most = max(most, clock.Add(clock.Outstanding(p.Level, w.On.Clock(p.Params, w.Now)), p.Sum))
		}
	}
	return most
}

// debit writes what is debited of one limit.
func (w *Write) debit(u *expr.Update, p *Total) {
	level := p.attrs.level
	unknown := !p.Known && !p.Limit.Override
	absent := w.assertsAbsent() || w.Last != nil && unknown // another condition asserts that the item has no such level
	reading, fresh, burst := w.On.Clock(p.Params, w.Now), w.On.Fresh(p.Params, w.Now), w.On.Burst(p.Params)
	net, prepaid := p.Sum-p.Back, p.Params.Kind() == clock.Credits
	switch {
	case p.Bound > burst: // it cannot fit, and is sent only to see what the item is like now
		u.Op(expr.Absent, expr.Key) // fails for every item that meets the other conditions
	case p.Exact && p.Has && (p.Form == Running || p.Sum == 0):
		u.Op(expr.Between, level, p.Level, p.Level)
		u.Op(expr.Add, level, net)
	case p.Sum == 0 && p.Back > 0:
		w.give(u, p)
	case p.Sum == 0 && p.Bound < 0 && (p.Has || p.Limit.Override): // it may be in debt
		return
	case p.Sum == 0:
		w.touch(u, p, absent)
	case p.Form == Full && p.Has:
		u.Op(expr.Below, level, reading)
		u.Op(expr.Set, level, reading+net)
	case p.Form == Full:
		switch {
		case absent:
		case p.Limit.Override:
			u.Op(expr.Absent, level) // or the number of overrides would be wrong
		default:
			u.Op(expr.AbsentBelow, level, reading)
		}
		u.Op(expr.Set, level, fresh+net)
	default:
		high := min(clock.Add(reading, w.most(p))-p.Sum, clock.MaxLevel-p.Sum)
		if p.Bound >= 0 {
			high = min(high, clock.Add(reading, burst)-p.Bound-p.Guard)
		}
		if p.Guard > 0 {
			high = min(high, p.Ceiling)
		}
		if prepaid { // returns may have put it anywhere below
			u.Op(expr.AtMost, level, high)
		} else {
			u.Op(expr.Between, level, reading-p.Guard, high)
		}
		u.Op(expr.Add, level, net+p.Guard)
	}
	if p.Sum > 0 {
		u.Op(expr.Add, p.attrs.debited, p.Sum)
	}
	if p.Back > 0 {
		u.Op(expr.Add, p.attrs.returned, p.Back)
	}
	if unknown && (p.Sum > 0 || p.Back == 0) {
		w.introduce(u, p)
	}
}

// touch writes what is asserted of a limit of which nothing is debited: that it is not in debt, unless the take may not
// be refused.
func (w *Write) touch(u *expr.Update, p *Total, absent bool) {
	level, reading := p.attrs.level, w.On.Clock(p.Params, w.Now)
	high := clock.Add(reading, w.On.Burst(p.Params))
	switch {
	case p.Bound < 0 || absent:
	case p.Has:
		u.Op(expr.AtMost, level, high)
	default:
		u.Op(expr.AbsentAtMost, level, high)
	}
	if !p.Has && !p.Limit.Override { // so that a process whose clock is behind does not begin it earlier
		u.Op(expr.SetOnce, level, w.On.Fresh(p.Params, w.Now))
	}
}

// introduce writes the parameters of a limit that the item is not known to have. It asserts that the item does not have
// it with others.
func (w *Write) introduce(u *expr.Update, p *Total) {
	params, text := prefixParams+p.Name, limitname.Format(p.Params)
	switch {
	case w.Last != nil:
		u.Op(expr.Absent, params)
	case p.Listed || w.assertsAbsent(): // see asItWas
	default:
		u.OpText(expr.AbsentEqual, params, text)
	}
	u.OpText(expr.Set, params, text)
}

// choose picks the form in which a debit expects its limit's level. It goes by the last item and, if others write too,
// by how much of the limit they have used lately.
//
// With a guard, the running form also works for a level that has just fallen below the clock, without knowing whether
// it has. The guard is debited in addition, so that the level cannot end up lower than it should. A write chooses the
// guard so that the level stays close to the clock: it takes what would otherwise have been refilled unused. What is
// given away in total stays within ten times [Rules.Guard], by default a tenth of the burst, however many writers there
// are, because the form also asserts that the guard does not raise the level farther above the clock than that. Where
// writes collide, it stays within a tenth of the burst, however small the guard. Only a rate has a guard.
func (p *planner) choose(total *Total) {
	on, now, kind := p.w.On, p.w.Now, total.Params.Kind()
	prepaid, guarded := kind == clock.Credits, kind == clock.Rate
	clock, burst := on.Clock(total.Params, now), on.Burst(total.Params)
	if total.Has && (total.Level >= clock || prepaid) || prepaid && total.Bound > 0 {
		total.Form = Running
	}
	most := int64(p.s.Rules.Guard * float64(burst))
	if !guarded || !total.Has || total.Sum == 0 || total.Bound < total.Sum || most <= 0 ||
		p.s.Others.Alone >= aloneAfter || total.Level > clock+5*most {
		return
	}
	var g int64
	away := 10 * most
	if p.s.Misses > 0 { // the last item is a round trip old
		away = max(away, burst/10)
		g = min(on.Clock(total.Params, now+int64(10*time.Millisecond))-clock, burst/10)
		if total.Level < clock-g || total.Level > clock+min(g, away-g) {
			return
		}
	} else if g = p.s.Others.Pace.spare(&p.w, total); g < 0 || g > most {
		return
	}
	if clock+burst-total.Bound-g >= clock {
		total.Form, total.Guard, total.Ceiling = Running, g, clock+away-g
	}
}
