package plan

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// Verdict is the decision about a job. The zero value allows it.
type Verdict byte

// The verdicts.
const (
	Allowed  Verdict = iota // its write was applied, or it needs none
	Refused                 // a limit has too little left
	Stale                   // the item follows later limits
	Ended                   // the take's limits do not hold at the item's time
	TooMany                 // the item has no place for another override
	TooMuch                 // too many limits that are no longer in force still owe
	Overflow                // a level would pass clock.MaxLevel
	Held                    // a balance that is not 0 would become another kind of limit
	Moved                   // it must be placed anew: the item is outdated or, if none is given, throttled
	Again                   // it waits for another write
	Failed                  // its write had no answer, and must not be repeated
)

// Answer is the outcome of a job.
type Answer struct {
	Job     *Job
	Verdict Verdict
	At      int64 // when it was decided, by the item's time
	Item    *Item // that decided it
	On      Place
	Amounts []int64 // of a job that was written: what was written
	// What jobs after it in the write debited of its limits: the item's levels are this much too high for it.
	Later []int64
	Out   []bool // of a take with shadow charges: those that were left out
}

// Level returns a limit's level as it was when the job, and none after it, was decided.
func (a *Answer) Level(name string) (int64, bool) {
	level, ok := a.Item.Level(name, a.At)
	if ok && a.Later != nil {
		if i := slices.Index(a.Job.View.Names, name); i >= 0 {
			level -= a.Later[i]
		}
	}
	return level, ok
}

// Undo returns a job that undoes what was written for the job.
func (a *Answer) Undo() *Job {
	return &Job{
		Kind: Undo, View: a.Job.View, Amounts: a.Amounts, Counts: a.Job.Counts, Proof: a.Prove(), Terms: a.holds(),
	}
}

// Proof shows how much of a debit may be undone, so that the item is left as if the debit had never been made.
//
// The debit occupies the levels from its top down. What the clock has passed of it has been refilled, and would have
// been without the debit, too. Amounts that were returned since may have been below the debit, so it may have sunk by
// as much. The rest still stands, provided that every write since has moved the level by what it debited and returned,
// and by nothing else: a level that was set, a guard and other limits change the level without the counters.
type Proof struct {
	On   Place
	Item *Item   // as the write of the debit left it
	Tops []int64 // by limit: the level right after the debit
}

// Prove returns the proof of a job's debit.
func (a *Answer) Prove() *Proof {
	p := &Proof{On: a.On, Item: a.Item, Tops: make([]int64, len(a.Job.View.Names))}
	for i, name := range a.Job.View.Names {
		p.Tops[i], _ = a.Level(name)
	}
	return p
}

// maxUndoTries is how often an undo is written, each time on the item that the last failure showed.
const maxUndoTries = 3

// Above returns how much of the i-th limit's level is certain to lie between the clock and the top of the debit, given
// the item as it was last seen.
func (p *Proof) Above(last *Item, on Place, v *View, i int, now int64) int64 {
	was, is := p.limits(last, on, v.Names[i])
	if is == nil {
		return 0
	}
	return clock.Outstanding(p.Tops[i]-(is.Returned-was.Returned), on.Clock(is.Params, now))
}

// stands is Above, or 0 if something else than debits and returns has moved the level since; of a balance, which does
// not melt, that may be.
func (p *Proof) stands(last *Item, on Place, v *View, i int, now int64) int64 {
	was, is := p.limits(last, on, v.Names[i])
	if is == nil || is.Params != clock.Balance && was.offset() != is.offset() {
		return 0
	}
	return p.Above(last, on, v, i, now)
}

// offset is how far a level is from what the counters add up to.
func (l *Limit) offset() int64 { return l.Level - l.Debited + l.Returned }

// limits returns a limit as the write of the debit left it, and as it was last seen; nil if the item is of another
// birth, or the limit is another one than it was.
func (p *Proof) limits(last *Item, on Place, name string) (was, is *Limit) {
	if last == nil || !last.Exists || last.ID != p.Item.ID || last.Set != p.Item.Set || on != p.On {
		return nil, nil
	}
	was, is = p.Item.Find(name), last.Find(name)
	if was == nil || is == nil || !is.Has || was.Params != is.Params ||
		is.Debited < was.Debited || is.Returned < was.Returned {
		return nil, nil
	}
	return was, is
}

// Got is what came of a write.
type Got struct {
	Item    *Item // as it now is; nil if there was no answer
	Applied bool

	// Without an answer:
	Unknown bool // the write may have been applied
	Repeat  bool // the same write may succeed a little later
	Hot     bool // it was throttled for its key
}

// Judge takes over what an answer shows, and decides the jobs of the write. Debits may be repeated: at worst, tokens
// are spent twice and nobody has them. Returns are not, once they may have been applied; nor are takes of slots, of
// which there are few.
func Judge(s State, w *Write, got Got) (State, []Answer) {
	answers := make([]Answer, len(w.Entries))
	for i := range w.Entries {
		e := &w.Entries[i]
		a := Answer{Job: e.Job, Verdict: Again, At: w.Now, Item: got.Item, On: w.On, Amounts: e.Amounts, Out: e.Out}
		switch {
		case got.Applied && (w.Upkeep == nil || e.Job.Kind == Forget):
			a.Verdict = Allowed
		case got.Item != nil:
		case got.Hot && e.Job.MayMove:
			a.Verdict = Moved
		case !got.Repeat, got.Unknown && (e.Job.Kind == Undo || e.Job.returns() || e.takesSlots()):
			a.Verdict = Failed
		}
		answers[i] = a
	}
	s.Failed++
	if got.Item != nil {
		s.Failed = 0
		s.learn(w, got)
	}
	if got.Applied {
		w.order(answers)
	} else if !got.Unknown {
		s.Count(w.Owed)
	}
	s.Hot = got.Hot
	return s, answers
}

// mostAhead is how far the time of a write by another process may be ahead of ours to be followed: the item is then
// judged at no earlier time. So a process whose clock is ahead begins a window for all.
const mostAhead = int64(5 * time.Second)

// aloneAfter is the number of our writes, with none by others in between, after which an item counts as ours alone.
const aloneAfter = 32

// learn remembers what an answer showed.
func (s *State) learn(w *Write, got Got) {
	it := got.Item
	if e := w.Entries; got.Applied {
		s.Misses = 0
	} else if w.Upkeep != nil || len(e) != 1 || e[0].Job.Kind != Take || fits(w.last(), w.On, e[0].Job, w.Now, nil) {
		s.Misses++ // not a take that only probes whether it is still refused
	}
	if it.Exists {
		s.Others.Learn(it, got.Applied)
	}
	s.Last, s.Shown, s.Wrote, s.Landed = it, w.Number, w.Now, got.Applied
	if clock.Sub(it.At, w.Now) <= mostAhead {
		s.Latest = max(s.Latest, it.At)
	}
	switch {
	case !got.Applied && w.Number > s.Refused.Credited:
		s.Refused.At = w.Planned
	case w.Upkeep != nil || w.Entries[0].Job.Kind != Take:
		s.Refused.At = time.Time{} // a return or another change of ours
	}
}

// Learn remembers an item after a write that this process made, if it was applied, or else tried to make.
func (o *Others) Learn(it *Item, applied bool) {
	ours := o.Writes
	if applied {
		ours++
	}
	switch {
	case applied && it.Writes <= 1:
		o.Alone = aloneAfter // our write created it
	case it.Writes != ours:
		o.Alone = 0
	case o.Alone < aloneAfter:
		o.Alone++
	}
	o.Writes = it.Writes
	o.Pace.read(it)
}

// order computes how much the write debited after each of its jobs.
func (w *Write) order(answers []Answer) {
	if len(answers) < 2 || w.Upkeep != nil || w.undoes() {
		return
	}
	later := make([]int64, len(w.Totals))
	for i := len(answers) - 1; i >= 0; i-- {
		a := &answers[i]
		a.Later = make([]int64, len(a.Amounts))
		for n := len(a.Amounts) - 1; n >= 0; n-- {
			if at := w.index(a.Job.View.Names[n]); at >= 0 {
				a.Later[n] = later[at]
				later[at] += a.Amounts[n]
			}
		}
	}
}
