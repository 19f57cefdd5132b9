package plan

import (
	"math"
	"slices"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/hold"
	"github.com/weirlimits/weir/internal/clock"
	arithmetic "github.com/weirlimits/weir/internal/clock/slots"
	"github.com/weirlimits/weir/store"
)

// What is held of limits of slots is on shard 0, whatever the number of shards. A write that changes it asserts the
// birth of what is held and, by package hold, what it goes by; the rest of the item may change meanwhile. What a job
// does to it follows from the item that was seen, so a job that finds less than it expects looks at the item first.

// look makes the write of a job that shows the item, and changes nothing: its condition never holds.
type look struct{}

func (look) write(_ *Write, u *expr.Update) {
	u.Op(expr.Exists, attrID)
	u.Op(expr.Absent, expr.Key)
}

func (look) full(w *Write) int64 { return w.Now }

// lookFirst makes a job see the item before it is planned.
func lookFirst(p *planner) verdict {
	if len(p.w.Entries) > 0 {
		return waits
	}
	p.w.Upkeep = look{}
	return maintain
}

// Hold returns what a charge of a settle or undo renews or gives back; nil: nothing.
func (j *Job) Hold(i int) *store.Hold {
	if j.Terms == nil || j.Terms.Holds == nil {
		return nil
	}
	return j.Terms.Holds[i]
}

// takesSlots reports whether the entry takes slots.
func (e *Entry) takesSlots() bool {
	j := e.Job
	if j.View == nil || !j.View.Slots || j.Kind > Settle {
		return false
	}
	for i, a := range e.Amounts {
		if a > 0 && j.View.Params[i].Kind() == clock.Slots {
			return true
		}
	}
	return false
}

// heldOf returns what is held of a limit after what the write carries already.
func heldOf(w *Write, name string) (h arithmetic.Held) {
	if p := w.total(name); p != nil && p.slots != nil {
		return p.slots.To
	}
	if l := w.last().Find(name); l != nil {
		return l.Slots
	}
	return h
}

// slotted reports whether the write carries charges on limits of slots.
func slotted(w *Write) bool {
	return slices.ContainsFunc(w.Totals, func(p Total) bool { return p.slots != nil })
}

// charge returns what is held of a limit of slots after an entry's charge, given what is before: by how much more that
// is; whether a renewal was granted; and whether the result follows even if the item has changed since it was seen.
func (e *Entry) charge(w *Write, i int, h arithmetic.Held) (after arithmetic.Held, more int64, ok, sure bool) {
	j, now := e.Job, w.Now
	params := j.View.Params[i]
	if l := w.last().Find(j.View.Names[i]); l != nil && j.Kind != Take {
		params = l.Params
	}
	limit := params.Slots(hold.Skew)
	held := j.Hold(i)
	k, back := j.Amounts[i], j.Kind == Undo
	if k < 0 {
		k, back = -k, true
	}
	switch {
	case k == 0 || back && held == nil:
		return h, 0, true, true
	case held == nil:
		return limit.Force(h, now, e.Amounts[i]), e.Amounts[i], true, true
	case w.last().Held != held.Birth:
		return h, 0, false, false
	}
	end := clock.Nanos(held.End)
	late := end <= clock.Add(now, hold.Skew) // as others may judge
	if !back {
		after, ok = limit.Renew(h, now, k, end)
		return after, 0, ok, ok || late
	}
	was := h.At(now, hold.Skew).Total()
	after = limit.Release(h, now, k, end)
	more = after.At(now, hold.Skew).Total() - was
	return after, more, true, more == -k || late
}

// settleSlots returns a settle's amounts with, of limits of slots, how many more are held; which renewals are refused;
// whether it changes what is held; and false if the item must be seen first.
func settleSlots(p *planner, j *Job, amounts []int64) (net []int64, out []bool, changes, sure bool) {
	e := Entry{Job: j, Amounts: slices.Clone(amounts), Out: make([]bool, len(amounts))}
	after := make([]arithmetic.Held, len(amounts))
	seen := p.s.Last != nil && p.s.Shown > j.Since
	for i, name := range j.View.Names {
		if j.View.Params[i].Kind() != clock.Slots {
			continue
		}
		h := heldOf(&p.w, name)
		for n := range i { // a settle may renew several holds of a limit
			if j.View.Names[n] == name {
				h = after[n]
			}
		}
		var ok, certain bool
		if after[i], e.Amounts[i], ok, certain = e.charge(&p.w, i, h); !certain && !seen {
			return nil, nil, false, false
		}
		e.Out[i], changes = !ok && j.Amounts[i] > 0, changes || after[i] != h
	}
	return e.Amounts, e.Out, changes, true
}

// hold lets the write carry an entry's charge on a limit of slots.
func (e *Entry) hold(w *Write, i int) {
	total := w.total(e.Job.View.Names[i])
	if total.slots != nil && !(e.Job.Kind == Take && e.leftOut(i)) {
		total.slots.To, _, _, _ = e.charge(w, i, total.slots.To)
	}
}

// hold writes what becomes of a limit of slots.
func (p *Total) hold(w *Write, u *expr.Update) {
	p.slots.Exact, p.slots.New, p.slots.Asserted = p.Exact, !p.Known, unchanged(w)
	attrs := hold.AttrsOf(p.Name)
	p.slots.Write(u, &attrs, w.Now, w.On.Burst(p.Params)-p.Bound+p.Back, p.Bound >= 0)
	if p.Sum > 0 {
		u.Op(expr.Add, p.attrs.debited, p.Sum)
	}
	if p.Back > 0 {
		u.Op(expr.Add, p.attrs.returned, p.Back)
	}
	if !p.Known && (p.Sum > 0 || p.Listed) {
		w.introduce(u, p)
	}
}

// unchanged reports whether a write asserts that its item is as it was seen, as conditions on limits would be too many.
func unchanged(w *Write) bool { return w.Last != nil && len(w.Totals) > maxTotals/2 && slotted(w) }

// longer reports whether slots of a limit are held for longer after the write.
func longer(p Total) bool { return p.slots != nil && p.slots.To.End > p.slots.From.End }

// keep asserts the birth of what is held if the write changes that, or begins it.
func keep(w *Write, u *expr.Update) {
	if unchanged(w) {
		u.Op(expr.Equal, AttrWrites, w.Last.Writes)
	}
	switch birth := w.last().Held; {
	case !slices.ContainsFunc(w.Totals, func(p Total) bool { return p.slots != nil && p.slots.Any() }):
	case birth != 0:
		u.Op(expr.Equal, hold.Birth, int64(birth))
	default:
		u.Op(expr.Absent, hold.Birth)
		u.Op(expr.Set, hold.Birth, int64(w.Birth&math.MaxInt64))
	}
}

// Corrects returns of how many limits of slots the write corrects the end, which a clock far ahead has set.
func Corrects(w *Write) (n uint64) {
	for i := range w.Totals {
		if c := w.Totals[i].slots; c != nil && c.To.End < c.From.End {
			n++
		}
	}
	return n
}

// Hold returns what the i-th charge of a job that was allowed took of a limit of slots, or renewed; nil: nothing.
func (a *Answer) Hold(i int) *store.Hold {
	j := a.Job
	took := len(a.Amounts) > 0 && a.Amounts[i] > 0
	renewed := j.Hold(i) != nil && len(a.Out) > 0 && !a.Out[i]
	if a.Verdict != Allowed || j.View.Params[i].Kind() != clock.Slots || j.Amounts[i] <= 0 || !took && !renewed {
		return nil
	}
	l := a.Item.Find(j.View.Names[i])
	h := store.HoldOf(j.View.Limits[i], a.Item.Held, l.Slots.End, a.At, hold.Skew)
	return &h
}

// holds returns the terms of a job that undoes a take of slots.
func (a *Answer) holds() *Terms {
	v := a.Job.View
	if !v.Slots {
		return nil
	}
	n := len(v.Limits)
	t := &Terms{MaxDebt: make([]int64, n), Strict: make([]bool, n), Holds: make([]*store.Hold, n)}
	for i := range v.Limits {
		if a.Job.Hold(i) == nil { // what was renewed stays
			t.Holds[i] = a.Hold(i)
		}
	}
	return t
}
