package plan

import (
	"math"
	"slices"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/hold"
	"github.com/weirlimits/weir/internal/batch/limitname"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Terms bound what a settle changes.
type Terms struct {
	MaxDebt []int64 // by limit of the view: how far into debt an amount may bring it; 0: any
	Strict  []bool  // by limit: what is given back is what the limit has not issued again since
	Since   int64   // when what is given back was debited; clock readings are of the whole limit
	Dated   bool    // Since is known
	Forgive bool    // it gives back what the limits are in debt, and no more

	Holds []*store.Hold // by limit: of a settle or undo, what it renews or gives back of slots
}

func (j *Job) forgives() bool { return j.Terms != nil && j.Terms.Forgive }

// strict reports whether an amount is given back strictly.
func (j *Job) strict(i int) bool {
	return j.Terms != nil && j.Terms.Strict[i] && j.Amounts[i] < 0 && !j.Terms.Forgive
}

// returnable returns a settle's amounts without what it returns to limits that the item is known not to have, and
// without what strict limits do not take back.
func (p *planner) returnable(j *Job) []int64 {
	if !j.returns() {
		return j.Amounts
	}
	amounts := slices.Clone(j.Amounts)
	for i, name := range j.View.Names {
		l := p.w.last().Find(name)
		if j.View.Params[i].Kind() == clock.Slots {
			continue
		}
		gone := p.s.Last != nil && p.sure(j) && (l == nil || !l.Has)
		if amounts[i] < 0 && (gone || l != nil && !l.Params.Takes(j.View.Params[i])) {
			amounts[i] = 0
		}
		if j.strict(i) && amounts[i] < 0 {
			amounts[i] = -p.unissued(j, i)
		}
	}
	return amounts
}

// unissued returns how much of a strict return is given back. On one of several shards, the whole limit's clock counts:
// the debit may have been on others.
func (p *planner) unissued(j *Job, i int) int64 {
	now, is := p.w.Now, j.View.Params[i]
	if it := p.w.Last; it != nil {
		l := it.Find(j.View.Names[i])
		if l != nil && l.Params != is || !j.View.Limits[i].Override && (it.Set == "" || it.Epoch > j.Epoch) {
			return 0
		}
		now = max(now, it.At)
	}
	if !j.Terms.Dated {
		return 0
	}
	return clock.Unissued(-j.Amounts[i], is.Clock(j.Terms.Since), is.Clock(now))
}

// crosses reports whether a settle that both debits and returns debits what another one in the write returns, or the
// reverse. The write debits first and returns last, and no order of the two settles may add up to that.
func (w *Write) crosses(j *Job) bool {
	if !j.debits() || !j.returns() {
		return false
	}
	for i, a := range j.Amounts {
		if p := w.total(j.View.Names[i]); p != nil && (a > 0 && p.Mixed < 0 || a < 0 && p.Mixed > 0) {
			return true
		}
	}
	return false
}

// settledBy returns the latest epoch of the limits in force for which the write's strict returns hold; false if it has
// none.
func (w *Write) settledBy() (epoch uint64, some bool) {
	for _, e := range w.Entries {
		if e.Job.Terms == nil {
			continue
		}
		for i, a := range e.Amounts {
			if a < 0 && e.Job.strict(i) && !e.Job.View.Limits[i].Override && (!some || e.Job.Epoch < epoch) {
				epoch, some = e.Job.Epoch, true
			}
		}
	}
	return epoch, some
}

// assertEpoch asserts that the limits in force are those of the debits that strict returns are of.
func (w *Write) assertEpoch(u *expr.Update) {
	if epoch, some := w.settledBy(); some {
		u.Op(expr.Between, attrEpoch, 0, int64(min(epoch, math.MaxInt64)))
	}
}

// give writes what is returned to a limit of which nothing is debited. It asserts that the limit has a level, whatever
// it is, and that it is the one that was seen or, if none was, the one that was debited. Of a quota, it asserts that no
// later window has begun: what is returned then is of this one, and counts for nothing.
func (w *Write) give(u *expr.Update, p *Total) {
	if !p.Limit.Override {
		u.OpText(expr.Equal, prefixParams+p.Name, limitname.Format(p.Params))
	}
	high := clock.Add(w.On.Clock(p.Params, w.Now), w.On.Burst(p.Params))
	switch {
	case p.Params.Kind() != clock.Quota:
		u.Op(expr.Exists, p.attrs.level)
	case p.Has && p.Level > high: // in debt
		u.Op(expr.Between, p.attrs.level, p.Level, p.Level)
	default:
		u.Op(expr.AtMost, p.attrs.level, high)
	}
	u.Op(expr.Add, p.attrs.level, -p.Back)
}

// owable returns a settle's amounts without what would bring limits too far into debt, and whether there is such a
// part. It then holds only for the levels that were seen.
func (p *planner) owable(j *Job, amounts []int64) (owed []int64, less bool) {
	if j.Terms == nil || j.Terms.Forgive {
		return amounts, false
	}
	for i, most := range j.Terms.MaxDebt {
		if most <= 0 || amounts[i] <= 0 {
			continue
		}
		params, name := j.View.Params[i], j.View.Names[i]
		if l := p.w.last().Find(name); l != nil {
			params = l.Params
		}
		reading := p.w.On.Clock(params, p.w.Now)
		level, ok := p.w.last().Level(name, p.w.Now)
		if !ok {
			level = p.w.On.Fresh(params, p.w.Now)
		}
		level = clock.Spend(level, reading, p.w.spent(name))
		params.Burst = p.w.On.Burst(params)
		n := params.Owable(level, reading, amounts[i], p.w.On.PortionOf(params, most))
		if n == amounts[i] {
			continue
		}
		if !less {
			amounts, less = slices.Clone(amounts), true
		}
		amounts[i] = n
	}
	return amounts, less
}

// forgive adds to a write of its own what makes up for debts. It asserts the levels that were seen.
func (p *planner) forgive(j *Job) verdict {
	w := &p.w
	if len(w.Entries) > 0 {
		return waits
	}
	if w.Last == nil {
		return p.answer(Answer{Job: j, At: w.Now, Item: Missing, On: w.On, Amounts: make([]int64, len(j.Amounts))})
	}
	e := Entry{Job: j, Amounts: make([]int64, len(j.Amounts))}
	some := false
	for i, name := range j.View.Names {
		l := w.Last.Find(name)
		if l == nil || !l.Has || !l.Params.Takes(j.View.Params[i]) {
			continue
		}
		params := l.Params
		params.Burst = w.On.Burst(params)
		e.Amounts[i] = max(j.Amounts[i], -params.Debt(l.Level, w.On.Clock(params, w.Now)))
		some = some || e.Amounts[i] < 0
		total := w.totalOf(&e, i)
		total.Back, total.Exact = -e.Amounts[i], true
	}
	if !some && p.sure(j) {
		w.Totals = w.Totals[:0]
		return p.answer(Answer{Job: j, At: w.Now, Item: w.Last, On: w.On, Amounts: e.Amounts})
	}
	p.alone = true
	w.Entries = append(w.Entries, e)
	return joins
}

// judgedAt returns the time of our write that showed the last item; or, if its condition failed, the time of the last
// write that the item shows, provided that the job had come by then.
func (p *planner) judgedAt(j *Job) int64 {
	if at := min(p.s.Last.At, p.w.Now); !p.s.Landed && at >= j.Came {
		return at
	}
	return p.s.Wrote
}

// phase judges whether a take's limits hold by now if the item has others. If they begin soon, they begin now; with
// slots, no sooner than clocks differ, since what is held would end too early.
func (p *planner) phase(j *Job) verdict {
	w := &p.w
	if j.Phase == nil || w.Last != nil && j.View.Set == w.Last.Set {
		return joins
	}
	from, until := j.Phase.Bounds()
	ahead := clock.Sub(from, w.Now)
	if ahead > mostAhead || j.View.Slots && ahead > hold.Skew || w.Last != nil && w.Now >= until {
		return p.answer(Answer{Job: j, Verdict: Ended, At: w.Now})
	}
	w.Now = max(w.Now, from) // from here on, so that nobody brings the former limits back
	p.s.Latest = w.Now
	return joins
}
