package plan

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/hold"
	"github.com/weirlimits/weir/internal/batch/limitname"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Kind is what a job asks for.
type Kind byte

// The kinds of jobs.
const (
	Take   Kind = iota // debits that may be refused
	Settle             // debits that cannot be refused, and returns
	Undo               // undoes a debit as if it had never been made
	Forget             // deletes the item
)

// String names the kind, as the operation in errors.
func (k Kind) String() string { return [...]string{"take", "settle", "undo", "forget"}[k] }

// Job is one caller's request to one item.
type Job struct {
	N       int // the driver's number for it
	Kind    Kind
	View    *View
	Amounts []int64 // by limit of the view; negative: returned by a settle
	Forced  []bool  // of a take: the amounts that cannot be refused; nil: none
	Shadow  []bool  // of a take: the amounts that are left out if they do not fit; nil: none
	Epoch   uint64
	Phase   *store.Phase // of a take: when its limits hold
	Counts  bool         // it counts as a take; of an undo: it undoes one that did
	MayMove bool         // of a take: it goes to another item if this one is throttled
	Ahead   float64      // above 0: it debits ahead, at most this fraction of what is available, and is never refused
	Proof   *Proof       // of an undo: of the debit
	Terms   *Terms       // of a settle; nil: none
	Tries   int          // number of its writes whose condition failed
	Arrival
}

// Arrival is when a job came.
type Arrival struct {
	Since uint64 // number of writes planned before
	Came  int64  // by the item's time
}

// forced reports whether an amount cannot be refused.
func (j *Job) forced(i int) bool { return j.Kind == Settle || len(j.Forced) > 0 && j.Forced[i] }

// shadow reports whether an amount is left out if it does not fit.
func (j *Job) shadow(i int) bool { return len(j.Shadow) > 0 && j.Shadow[i] }

func (j *Job) returns() bool { return j.Kind == Settle && slices.ContainsFunc(j.Amounts, negative) }

func (j *Job) debits() bool { return j.Kind == Settle && slices.ContainsFunc(j.Amounts, positive) }

func negative(a int64) bool { return a < 0 }
func positive(a int64) bool { return a > 0 }
func nonzero(a int64) bool  { return a != 0 }

// State is what is remembered of an item. The conditions of a write check it again. Remembering it only saves calls.
type State struct {
	On     Place
	Rules  *Rules
	Last   *Item  // what the last answer showed; nil: nothing yet
	Shown  uint64 // the number of the write that showed it
	Wrote  int64  // when that write was planned
	Landed bool   // that write was applied
	Sent   uint64 // number of writes planned so far
	Latest int64  // the latest time at which it judged: it never judges at an earlier time

	Refused Refusals
	Misses  int  // number of conditions in a row that failed although what was last seen promised more
	Failed  int  // number of writes in a row that had no answer
	Hot     bool // the last write was throttled for its key
	Others  Others
	Owed    Counts
	Roots   Roots
}

// Refusals are what is remembered of refusals, which are repeated for a while.
type Refusals struct {
	At       time.Time // when the last write whose condition failed was planned; zero: none is repeated
	Credits  int       // number of credits under way: none is repeated
	Credited uint64    // Sent after the last credit: what writes until then showed is not repeated
}

// Others is what the answers show of writes by other processes.
type Others struct {
	Writes int64 // the item's count of writes after our last one
	Alone  int   // number of our writes in a row without a write by others in between
	Pace   Pace
}

// Rules are those settings of a store that decide what writes carry.
type Rules struct {
	Guard        float64
	RejectionTTL time.Duration
	Retention    time.Duration
}

// Counts are takes, admitted and undone, that no write of their own could count: takes that were served from what was
// debited ahead, and undone takes of which nothing was left to return. They go with the next write that asserts the
// birth of the item on which they were made.
type Counts struct {
	ID            uint64
	Takes, Undone int64
}

// None reports whether there is nothing to count.
func (n Counts) None() bool { return n.Takes == 0 && n.Undone == 0 }

// write counts takes.
func (n Counts) write(u *expr.Update) {
	if n.Takes > 0 {
		u.Op(expr.Add, attrTakes, n.Takes)
	}
	if n.Undone > 0 {
		u.Op(expr.Add, attrUndone, n.Undone)
	}
}

// Write returns a write of nothing but the counts.
func (n Counts) Write(now int64) *expr.Update {
	u := new(expr.Update)
	u.Op(expr.Equal, attrID, int64(n.ID))
	n.write(u)
	stamp(u, now)
	return u
}

// Count adds to what waits to be counted, unless the item is known to be of another birth.
func (s *State) Count(n Counts) {
	if n.None() || s.Last != nil && s.Last.ID != n.ID {
		return
	}
	if s.Owed.ID != n.ID {
		s.Owed = Counts{ID: n.ID}
	}
	s.Owed.Takes += n.Takes
	s.Owed.Undone += n.Undone
}

const (
	maxMissPause = 25 * time.Millisecond
	maxFailPause = 200 * time.Millisecond

	// StepPause is the longest pause before a write of a split is repeated, see [Freeze].
	StepPause = 10 * time.Millisecond
)

// Pause returns the longest pause before the jobs of the last write are written again: other processes do the same, and
// must not exhaust the capacity of an item by repeating themselves.
func (s *State) Pause() time.Duration {
	switch {
	case s.Failed > 0:
		return min(maxMissPause<<min(s.Failed-1, 8), maxFailPause)
	case s.Misses > 2:
		return min(time.Duration(s.Misses)*time.Millisecond, maxMissPause)
	}
	return 0
}

// Tick returns the time at which to judge, given the time of the store's clock.
func (s *State) Tick(at time.Time) int64 {
	s.Latest = max(s.Latest, clock.Nanos(at))
	return s.Latest
}

// Outdated reports whether the item was last seen frozen, or with another number of shards than the bucket is known to
// have.
func (s *State) Outdated() bool {
	return s.On.K >= s.On.N || s.Last != nil && (s.Last.Frozen || s.Last.Shards != s.On.N)
}

// fresh reports whether the last refusal is recent enough to be repeated.
func (s *State) fresh(at time.Time) bool {
	if s.Last == nil || !s.Last.Exists || s.Refused.At.IsZero() || s.Refused.Credits > 0 {
		return false
	}
	age := at.Sub(s.Refused.At)
	return age >= 0 && age < s.Rules.RejectionTTL
}

// Refuses reports whether the item as it was last seen refuses a take.
func (s *State) Refuses(j *Job, now int64) bool {
	it := s.Last
	if it == nil || !it.Exists || j.View.Own && j.View.Set != it.Set {
		return false
	}
	return !fits(it, s.On, j, now, nil)
}

// Stale reports whether the item as it was last seen follows later limits than a take's.
func (s *State) Stale(j *Job) bool {
	it := s.Last
	return it != nil && it.Exists && it.Set != "" && j.View.Own && j.View.Set != it.Set &&
		(j.Epoch < it.Epoch || j.Epoch == it.Epoch && j.View.Set < it.Set)
}

// RefusesNow is Refuses, provided that the last refusal may be repeated.
func (s *State) RefusesNow(j *Job, at time.Time, now int64) bool {
	return s.fresh(at) && s.Refuses(j, now)
}

// Room returns how much of a limit is available, by what was last seen, and the item's portion of the burst. What is
// outstanding counts by the parameters that the item has, which may differ from the view's.
func (s *State) Room(v *View, i int, now int64) (room, burst int64) {
	burst = s.On.Burst(v.Params[i])
	fresh := burst
	if v.Params[i].Kind() == clock.Credits {
		fresh = 0
	}
	if s.Last == nil {
		return fresh, burst
	}
	l := s.Last.Find(v.Names[i])
	if l == nil {
		return fresh, burst
	}
	level, has := l.at(now)
	if !has {
		return fresh, burst
	}
	return burst - clock.Outstanding(level, s.On.Clock(l.Params, now)), burst
}

// exceeded reports whether a take would not fit even a full shard.
func (pl Place) exceeded(j *Job) bool {
	for i, a := range j.Amounts {
		if !j.forced(i) && !j.shadow(i) && a > pl.Burst(j.View.Params[i]) {
			return true
		}
	}
	return false
}

// fullOverrides returns the overrides that are full, except those of a view.
func (it *Item) fullOverrides(on Place, now int64, but *View) (names []string) {
	for i := range it.Limits {
		l := &it.Limits[i]
		if limitname.IsOverride(l.Name) && l.Level <= on.Clock(l.Params, now) && !slices.Contains(but.Names, l.Name) {
			names = append(names, l.Name)
		}
	}
	return names
}

// former returns the number of limits that are not in force any more once those of a view are, and which of them are
// full.
func (it *Item) former(on Place, now int64, next *View) (n int, full []string) {
	for i := range it.Limits {
		l := &it.Limits[i]
		if limitname.IsOverride(l.Name) || slices.Contains(next.Names, l.Name) {
			continue
		}
		n++
		if l.Params.Kind() == clock.Slots && !hold.Alive(l.Slots, now) || l.Has && l.Level <= on.Clock(l.Params, now) {
			full = append(full, l.Name)
		}
	}
	return n, full
}

// Holds returns a limit of a view, not a balance, of which the item has a balance that is not 0; "" if there is none.
func (it *Item) Holds(v *View) string {
	for i, name := range v.Names {
		if l := it.Find(name); l != nil && l.Params == clock.Balance && l.Level != 0 && v.Params[i] != clock.Balance {
			return v.Limits[i].Name
		}
	}
	return ""
}

// fits reports whether a take's charges fit an item, in addition to what a write carries already, if one is given.
func fits(it *Item, on Place, j *Job, now int64, beside *Write) bool {
	for i, a := range j.Amounts {
		if !j.forced(i) && !j.shadow(i) && !fitsOne(it, on, j.View, i, a, now, beside) {
			return false
		}
	}
	return true
}

// fitsOne is fits for a single charge. A charge of 0 fits unless the item is in debt.
func fitsOne(it *Item, on Place, v *View, i int, a, now int64, beside *Write) bool {
	p, name := v.Params[i], v.Names[i]
	reading := on.Clock(p, now)
	level, ok := it.Level(name, now)
	if !ok {
		level = on.Fresh(p, now)
	}
	if n := beside.spent(name); n != 0 {
		level = clock.Spend(level, reading, n)
	}
	p.Burst = on.Burst(p)
	return p.Fits(level, reading, a)
}
