// Package plan decides what the next write to a bucket's item carries, and what its answer means for the callers whose
// jobs it carries. It computes with values only: it makes no calls, reads no clock and has no locks. Package dynamodb
// makes the writes; a simulation applies them to items of its own.
package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// planner plans one write.
type planner struct {
	s  State
	w  Write
	at time.Time

	alone bool // the write carries one job, and no other may join it
	takes bool // it carries takes
	gives bool // a job that returns something joined, or waits: a take that does not fit waits for it
	below bool // it returns more of a limit than it debits, so no take may join

	entries [1]Entry // space for those of most writes
	totals  [2]Total
}

// Plan decides what an item's next write carries, and which jobs wait for a later one. Those that need no write are
// answered in Write.Answers.
func Plan(s State, jobs []*Job, at time.Time) (State, *Write, []*Job) {
	p := &planner{s: s, at: at}
	p.w = Write{Now: p.s.Tick(at), Planned: at, On: s.On, Lives: Lives{Root: s.Roots.TTL}}
	if s.Rules != nil {
		p.w.Lives.Retention = s.Rules.Retention
	}
	if s.Last != nil {
		p.w.Lives.Seen, p.w.Lives.TTL = true, s.Last.TTL
	}
	p.w.Entries, p.w.Totals = p.entries[:0], p.totals[:0]
	if s.Last != nil && s.Last.Exists {
		p.w.Last = s.Last
	}
	var later []*Job
	switch {
	case p.s.Outdated():
		p.dismiss(jobs)
	default:
		later = p.finish(p.join(p.forget(p.cool(jobs))))
	}
	return p.s, &p.w, later
}

// dismiss answers the jobs of an outdated item: takes and settles are placed anew.
func (p *planner) dismiss(jobs []*Job) {
	for _, j := range jobs {
		if j.Kind == Undo {
			p.keep(j)
		} else if j.Ahead == 0 {
			p.answer(Answer{Job: j, Verdict: Moved, Item: p.s.Last})
		}
	}
}

// cool answers the takes that may move, once after a write was throttled for its key.
func (p *planner) cool(jobs []*Job) []*Job {
	if !p.s.Hot {
		return jobs
	}
	p.s.Hot = false
	var rest []*Job
	for _, j := range jobs {
		if j.MayMove {
			p.answer(Answer{Job: j, Verdict: Moved})
		} else {
			rest = append(rest, j)
		}
	}
	return rest
}

// forget lets a job that deletes the item go ahead of all others, alone.
func (p *planner) forget(jobs []*Job) []*Job {
	for {
		i := slices.IndexFunc(jobs, func(j *Job) bool { return j.Kind == Forget })
		if i < 0 {
			return jobs
		}
		j := jobs[i]
		jobs = slices.Concat(jobs[:i], jobs[i+1:])
		if j.Tries == 0 || p.w.Last != nil {
			p.w.Entries, p.w.Upkeep, p.alone = append(p.w.Entries, Entry{Job: j}), &forget{}, true
			return jobs
		}
		p.answer(Answer{Job: j, Item: p.s.Last}) // it is gone already
	}
}

// verdict is the decision about a job while a write is planned.
type verdict byte

const (
	joins    verdict = iota
	waits            // for a later write
	answered         // it needs no write
	maintain         // it waits until the write's upkeep is done
)

// join plans jobs in their order, and returns those that wait.
func (p *planner) join(jobs []*Job) (later []*Job) {
	for i, j := range jobs {
		v := waits
		switch {
		case p.alone || p.overfull(j):
		case j.Ahead > 0:
			v = p.ahead(j)
		case j.Kind == Undo:
			v = p.undo(j)
		case p.w.undoes():
		case j.Kind == Settle:
			v = p.settle(j)
		default:
			v = p.take(j)
		}
		p.gives = p.gives || v <= waits && (j.Kind == Undo || j.returns())
		switch v {
		case waits:
			if j.Ahead == 0 {
				later = append(later, j)
			}
		case maintain: // the item changes first, in a write of its own
			p.w.Entries = append(p.w.Entries, Entry{Job: j})
			return append(later, jobs[i+1:]...)
		default:
		}
	}
	return later
}

// finish completes a write that carries something. If shard 0 must live longer first, it moves the jobs.
func (p *planner) finish(later []*Job) []*Job {
	w := &p.w
	if len(w.Entries) == 0 {
		return later
	}
	if _, upkeep := w.Upkeep.(*rebase); upkeep || w.Upkeep == nil {
		if need := w.rootNeeds(); need > 0 {
			p.s.Roots.Need = need
			return p.move(later)
		}
	}
	if w.Upkeep == nil {
		if w.Last != nil && w.Last.ID == p.s.Owed.ID && !(w.Entries[0].Job.Kind == Settle && w.onlyGives()) {
			w.Owed, p.s.Owed = p.s.Owed, Counts{}
		}
		if !w.undoes() {
			for i := range w.Totals {
				p.choose(&w.Totals[i])
			}
		}
	}
	p.s.Sent++
	w.Number = p.s.Sent
	return later
}

func (p *planner) answer(a Answer) verdict {
	p.w.Answers = append(p.w.Answers, a)
	return answered
}

func (p *planner) refuse(j *Job, now int64, it *Item) verdict {
	return p.answer(Answer{Job: j, Verdict: Refused, At: now, Item: it, On: p.w.On})
}

// sure reports whether the last answer is good enough to decide a job: it is fresh, or it came from a write that was
// planned after the job came.
func (p *planner) sure(j *Job) bool {
	return p.s.Last != nil && p.s.Shown > j.Since || p.s.fresh(p.at)
}

// settle adds a settle to the write. Some order of the write's jobs must add up to what it does: debits, then returns.
// Beside takes, no limit's net may fall below zero. What is returned to limits that the item does not have is left out,
// because they are full.
func (p *planner) settle(j *Job) verdict {
	w := &p.w
	if j.forgives() {
		return p.forgive(j)
	}
	amounts := p.returnable(j)
	var out []bool
	changes := false
	if j.View.Slots {
		var sure bool
		if amounts, out, changes, sure = settleSlots(p, j, amounts); !sure {
			return lookFirst(p)
		}
	}
	if (j.returns() || j.View.Slots) && !changes && !slices.ContainsFunc(amounts, nonzero) {
		return p.answer(Answer{Job: j, At: w.Now, Item: w.last(), On: w.On, Out: out})
	}
	below := false
	for i, a := range amounts {
		if a < 0 && j.View.Params[i].Kind() != clock.Slots {
			total := w.total(j.View.Names[i])
			below = below || total == nil || !total.Has || total.Sum-total.Back < -a
		}
	}
	if below && p.takes || w.clashes(j) || w.crosses(j) {
		return waits
	}
	exact := false
	if j.debits() {
		if amounts, exact = p.owable(j, amounts); exact && len(w.Entries) > 0 {
			return waits
		}
		if v := p.force(j, amounts); v != joins {
			return v
		}
	}
	p.below = p.below || below
	p.carry(Entry{Job: j, Amounts: amounts, Out: out, Exact: exact})
	p.alone = p.alone || exact
	return joins
}

// force decides whether what a settle debits may be written.
func (p *planner) force(j *Job, amounts []int64) verdict {
	if p.w.Last == nil {
		return p.first(j, amounts)
	}
	if v := p.overrides(j); v != joins {
		return v
	}
	if p.w.overflows(j, amounts) {
		return p.answer(Answer{Job: j, Verdict: Overflow})
	}
	return joins
}

// take adds a take to the write, or decides it by what was last seen if that is good enough.
func (p *planner) take(j *Job) verdict {
	w := &p.w
	if p.below || len(w.Entries) > 0 && (j.View.Own && w.Own.Is && j.View.Set != w.Own.Set || w.clashes(j)) {
		return waits
	}
	v := p.phase(j)
	switch {
	case v != joins:
	case w.Last != nil && j.View.Own && j.View.Set != w.Last.Set:
		v = p.follow(j)
	case w.On.exceeded(j):
		return p.refuse(j, w.Now, w.last())
	case w.Last == nil:
		v = p.first(j, j.Amounts)
	default:
		if v = p.overrides(j); v == joins {
			v = p.room(j)
		}
	}
	if v == joins {
		p.carry(Entry{Job: j, Amounts: j.Amounts})
	}
	return v
}

// room decides whether a take fits the item that was last seen. A take that waited while that item was shown is judged
// at the time of the write that showed it. What the clock has issued since is for later takes. Otherwise, a crowd that
// asks for more than the limit would wait for the same few tokens, because each of them alone would fit.
func (p *planner) room(j *Job) verdict {
	w := &p.w
	it := w.Last
	if w.overflows(j, j.Amounts) {
		return p.answer(Answer{Job: j, Verdict: Overflow})
	}
	if now := p.judgedAt(j); p.s.Shown > j.Since && !p.gives && !fits(it, w.On, j, now, nil) {
		return p.refuse(j, now, it)
	}
	switch {
	case fits(it, w.On, j, w.Now, w):
		return joins
	case p.gives:
		return waits
	case !p.sure(j):
		return p.probe()
	case len(w.Entries) > 0 && fits(it, w.On, j, w.Now, nil) && !p.crowded():
		return waits // it fits alone, but not beside the jobs before it
	}
	return p.refuse(j, w.Now, it)
}

// crowded reports whether other processes take everything there is, so that this one's writes fail. A take that does
// not fit beside the takes before it is then refused as if those had been debited. Otherwise all would wait until their
// time is up.
func (p *planner) crowded() bool { return p.s.Misses > 2 && p.s.Rules.Guard >= 0 }

// probe lets a take that the last answer would refuse find out from the item itself, alone.
func (p *planner) probe() verdict {
	if len(p.w.Entries) > 0 {
		return waits
	}
	p.alone = true
	return joins
}

// first decides about a job for an item that was not seen, or was seen not to exist. Such an item counts as full.
func (p *planner) first(j *Job, amounts []int64) verdict {
	w := &p.w
	if w.overflows(j, amounts) {
		return p.answer(Answer{Job: j, Verdict: Overflow})
	}
	if w.Added+w.adds(j) > store.MaxOverrides {
		if len(w.Entries) > 0 {
			return waits
		}
		return p.answer(Answer{Job: j, Verdict: TooMany})
	}
	if j.Kind != Take || fits(Missing, w.On, j, w.Now, w) {
		return joins
	}
	if len(w.Entries) > 0 || !p.sure(j) && slices.Contains(j.View.Params, clock.Balance) {
		return p.probe() // which waits beside other jobs; the balance may have credits
	}
	return p.refuse(j, w.Now, Missing) // at the end of the clock nothing fits
}

// follow decides about a take whose limits differ from those in force on the item.
func (p *planner) follow(j *Job) verdict {
	it := p.s.Last
	if p.s.Stale(j) {
		if !p.sure(j) {
			return p.probe()
		}
		return p.answer(Answer{Job: j, Verdict: Stale})
	}
	if len(p.w.Entries) > 0 {
		return waits
	}
	former, full := it.former(p.w.On, p.w.Now, j.View)
	switch {
	case it.Holds(j.View) != "":
		return p.answer(Answer{Job: j, Verdict: Held, Item: it})
	case former <= store.MaxFormer || len(it.Limits) > mostSwept || store.IsSeal(j.View.Limits[0]):
		p.w.Upkeep = &rebase{view: j.View, epoch: j.Epoch}
	case former-len(full) <= store.MaxFormer:
		p.w.Upkeep = &sweep{names: full[:min(len(full), maxTotals)]} // the rest in another write
	case !p.sure(j):
		return p.probe()
	default:
		return p.answer(Answer{Job: j, Verdict: TooMuch})
	}
	return maintain
}

// overrides ensures that an item never holds too many overrides.
func (p *planner) overrides(j *Job) verdict {
	w, it := &p.w, p.w.Last
	added := w.adds(j)
	if added == 0 || it.Overrides+w.Added+added <= store.MaxOverrides {
		return joins
	}
	if len(w.Entries) > 0 {
		return waits
	}
	full := it.fullOverrides(w.On, w.Now, j.View)
	if it.Overrides-len(full)+added <= store.MaxOverrides {
		w.Upkeep = &sweep{names: full}
		return maintain
	}
	if !p.sure(j) {
		return p.probe()
	}
	return p.answer(Answer{Job: j, Verdict: TooMany})
}

// undo adds to the write what an undo returns. Undos make writes of their own, each of which asserts that the item is
// the one that it was planned on.
func (p *planner) undo(j *Job) verdict {
	w := &p.w
	if len(w.Entries) > 0 && !w.undoes() {
		return waits
	}
	later := w.Now
	if w.Last != nil {
		later = max(later, w.Last.At)
	}
	back := make([]int64, len(j.Amounts))
	for i, a := range j.Amounts {
		if j.View.Params[i].Kind() == clock.Slots {
			_, more, _, _ := (&Entry{Job: j, Amounts: j.Amounts}).charge(w, i, heldOf(w, j.View.Names[i]))
			back[i] = -more
		} else if a > 0 && (j.Tries < maxUndoTries || j.View.Params[i] == clock.Balance) {
			stands := j.Proof.stands(w.Last, w.On, j.View, i, later)
			if total := w.total(j.View.Names[i]); total != nil {
				stands -= total.Back
			}
			back[i] = min(a, max(0, stands))
		}
	}
	if !slices.ContainsFunc(back, positive) {
		return p.keep(j)
	}
	e := Entry{Job: j, Amounts: back}
	w.Entries = append(w.Entries, e)
	if j.Counts {
		w.Counts.Undone++
	}
	for i, a := range back {
		if a > 0 {
			w.totalOf(&e, i).Back += a
			e.hold(w, i)
		}
	}
	return joins
}

// keep answers an undo when nothing more can be given back. The debit stays, except that it is not counted as a take.
func (p *planner) keep(j *Job) verdict {
	if j.Counts {
		p.s.Count(Counts{ID: j.Proof.Item.ID, Undone: 1})
	}
	return p.answer(Answer{Job: j, At: p.w.Now, Item: p.w.last(), On: p.w.On})
}

// ahead adds to a write of takes what is debited in addition: as much as the job wants, and at most its share of what
// is available.
func (p *planner) ahead(j *Job) verdict {
	w := &p.w
	if len(w.Entries) == 0 || w.Last == nil || !w.Own.Is || w.Upkeep != nil || p.s.Misses > 0 {
		return waits
	}
	for _, e := range w.Entries {
		if e.Job.Kind != Take || e.Job.View != j.View || e.Job.Forced != nil || e.Job.Shadow != nil {
			return waits
		}
	}
	e := Entry{Job: j, Amounts: make([]int64, len(j.Amounts))}
	for i, name := range j.View.Names {
		total := w.total(name)
		available := w.On.Burst(total.Params) - total.Bound
		if total.Has {
			available -= clock.Outstanding(total.Level, w.On.Clock(total.Params, w.Now))
		}
		e.Amounts[i] = int64(max(0, min(float64(j.Amounts[i]), j.Ahead*float64(available))))
		if total.Sum == 0 && e.Amounts[i] > 0 {
			return waits
		}
	}
	if !slices.ContainsFunc(e.Amounts, positive) {
		return waits
	}
	p.carry(e)
	return joins
}

// carry adds a take or settle to the write.
func (p *planner) carry(e Entry) {
	w, j := &p.w, e.Job
	if j.Counts {
		w.Counts.Takes++
	}
	p.takes = p.takes || j.Kind == Take
	if j.Kind == Take && j.View.Own {
		w.Own = Limits{true, j.View.Set, j.Epoch}
	}
	if j.Shadow != nil {
		w.leaveOut(&e)
	}
	w.Entries = append(w.Entries, e)
	for i, a := range e.Amounts {
		if j.Kind == Settle && a == 0 && !(e.Exact && j.Amounts[i] > 0) && j.Hold(i) == nil {
			continue
		}
		total := w.totalOf(&e, i)
		e.hold(w, i)
		total.Listed = total.Listed || j.Kind == Take && !total.Limit.Override
		total.Exact = total.Exact || e.Exact && a != j.Amounts[i] && a >= 0
		if j.debits() && j.returns() {
			total.Mixed = cmp.Compare(a, 0)
		}
		switch {
		case a < 0:
			total.Back -= a
		case !e.leftOut(i):
			if a > 0 && total.Sum == 0 && !total.Known && total.Limit.Override {
				w.Added++
			}
			total.Sum += a
			if !j.forced(i) {
				total.Bound = total.Sum
			}
		}
	}
}
