package reckon

import (
	"fmt"
	"math"
	"time"

	"github.com/weirlimits/weir/store"
)

// Tally is what callers did to a limit of a bucket between two rests, in millitokens, according to the answers they
// got.
type Tally struct {
	Debited, Forced, Returned int64
	// MaybeDebited and MaybeReturned are for calls with unknown outcome: amounts debited or forced, and returned.
	MaybeDebited, MaybeReturned int64
	// First and Last are clock readings of the earliest and latest unforced debit.
	First, Last int64
	// Early and Late are clock readings of the earliest and latest change of any kind, if callers' clocks differ.
	Early, Late int64
}

// NewTally returns an empty tally.
func NewTally() Tally {
	return Tally{First: math.MaxInt64, Last: math.MinInt64, Early: math.MaxInt64, Late: math.MinInt64}
}

// Add adds another caller's tally.
func (a *Tally) Add(b Tally) {
	a.Debited, a.Forced, a.Returned = a.Debited+b.Debited, a.Forced+b.Forced, a.Returned+b.Returned
	a.MaybeDebited, a.MaybeReturned = a.MaybeDebited+b.MaybeDebited, a.MaybeReturned+b.MaybeReturned
	a.First, a.Last = min(a.First, b.First), max(a.Last, b.Last)
	a.Early, a.Late = min(a.Early, b.Early), max(a.Late, b.Late)
}

// Books are what is known about a limit of a bucket over any number of rests.
type Books struct {
	Tally // since the last rest

	state store.State // at the last rest
	now   time.Time
	sum   int64 // debits - returns since the first rest
	least int64 // minimum of sum - clock, before any debit
}

// NewBooks returns the books of a limit about which nothing is known.
func NewBooks() *Books { return &Books{least: math.MaxInt64} }

// Rest starts a tally: the bucket was seen in this state at this time, while no caller was active.
func (b *Books) Rest(seen store.State, at time.Time) {
	b.state, b.now, b.Tally = seen, at, NewTally()
}

// Admitted checks that, from any rest to any later one, debits - returns <= burst + clock(last debit) - clock(first
// debit), not counting forced debits. Call it once after each rest, before the next.
func (b *Books) Admitted(l *store.Limit) error {
	if b.Debited == 0 {
		b.sum -= b.Returned + b.MaybeReturned
		return nil
	}
	b.least = min(b.least, b.sum-b.First)
	b.sum += b.Debited - b.Returned - b.MaybeReturned
	if over := b.sum - b.Last - l.Burst - b.least; over > 0 {
		return fmt.Errorf("I1: over-admitted by %d millitokens", over)
	}
	return nil
}

// Level checks the level seen while the callers rest: nothing that was spent is lost, and no more than was spent is
// missing.
func (b *Books) Level(l *store.Limit, after store.State, now time.Time) error {
	was, is := Find(b.state, l), Find(after, l)
	from := min(Reading(l, b.now), b.Early)
	end := max(Reading(l, now), b.Late)
	to := end
	if was != nil {
		from = max(from, was.Level)
	}
	if is != nil {
		to = max(end, is.Level)
	}
	spent := b.Debited + b.Forced
	if to < from+spent-b.Returned-b.MaybeReturned {
		return fmt.Errorf(
			"tokens lost: the level is %d, but %d were spent and %d returned since %d", to, spent,
			b.Returned+b.MaybeReturned, from,
		)
	}
	if l.IsBalance() && is != nil && is.Level > max(from, 0)+b.Forced+b.MaybeDebited {
		return fmt.Errorf("over-admitted: the balance is %d, and %d were forced since %d", -is.Level, b.Forced, -from)
	}
	if most := max(from, end) + spent + b.MaybeDebited; to > most {
		return fmt.Errorf(
			"the level is %d, but with %d spent since %d it may be at most %d", to, spent+b.MaybeDebited, from, most,
		)
	}
	return nil
}

// Counted checks that the counters have grown by what was spent and returned. If a refused take may have been visible
// (net), it checks only their difference. It checks nothing if the bucket was created again.
func (b *Books) Counted(l *store.Limit, after store.State, net bool) error {
	was, is := Find(b.state, l), Find(after, l)
	if was == nil || is == nil || b.state.ID != after.ID {
		return nil
	}
	d, r := is.Debited-was.Debited, is.Returned-was.Returned
	spent := b.Debited + b.Forced
	within := func(n, least, more int64) bool { return n >= least && n <= least+more }
	if net {
		if !within(d-r, spent-b.Returned-b.MaybeReturned, b.MaybeDebited+b.MaybeReturned) {
			return fmt.Errorf("counted debits - returns of %d, want %d", d-r, spent-b.Returned)
		}
		return nil
	}
	// The store itself may return a take whose caller has left, as far as it was debited.
	if !within(d, spent, b.MaybeDebited) || !within(r, b.Returned, b.MaybeReturned+d-spent) {
		return fmt.Errorf("counted %d debited and %d returned, want %d and %d", d, r, spent, b.Returned)
	}
	return nil
}
