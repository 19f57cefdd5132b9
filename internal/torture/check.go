package torture

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimits/weir/internal/torture/reckon"
	"github.com/weirlimits/weir/store"
)

// Check is one promise that was held to.
type Check struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Cases int    `json:"cases"` // how often it was looked at
	// Undecided is how often it could not be said: the search took too long, or writes of the store had failed.
	Undecided int    `json:"undecided,omitempty"`
	Failure   string `json:"failure,omitempty"`
}

// The checks, in the order of the report.
const (
	checkOrder = iota
	checkAdmitted
	checkLevel
	checkLost
	checkParents
	checkOnce
	checkTime
	checkCount
)

func newChecks() []Check {
	return []Check{
		checkOrder:    {Name: "order", About: "all answers are explained by one order of the calls"},
		checkAdmitted: {Name: "admitted", About: "no more is admitted than is issued"},
		checkLevel:    {Name: "level", About: "debited - returned is the level, to the millitoken"},
		checkLost:     {Name: "books", About: "what callers were told is what is counted"},
		checkParents:  {Name: "parents", About: "a parent is charged what its children are"},
		checkOnce:     {Name: "once", About: "a lease is given back once, whoever tries"},
		checkTime:     {Name: "time", About: "a store's time does not go back"},
	}
}

// failure is what a check found.
type failure struct {
	check  int
	err    error
	entity string // whose bucket it is about; "": of all
	until  int64  // of the excerpt, by when calls were made; 0: the end
}

// evidence is all of a round.
type evidence struct {
	records       []*Record // merged: one of each call
	before, after []store.State
	at, end       time.Time // of them
	killed        map[[2]int]bool
	atomic        bool
	writesFailed  bool // of the store, some of which may have been made twice: tokens may be missing
	slack         time.Duration
	tolerance     time.Duration
}

// looked counts cases of a check.
type looked func(check, cases int)

// order looks for an order of the calls of a round on one bucket.
func (ev *evidence) order(seen looked, undecided func(check int)) *failure {
	ops := ev.operations(math.MaxInt64)
	seen(checkOrder, len(ops))
	if ev.writesFailed {
		undecided(checkOrder)
		return nil
	}
	switch orderLimits.Check(ops, searchFor) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		undecided(checkOrder)
		return nil
	case porcupine.Illegal:
	}
	// The earliest moment up to which there is no order: what was not answered by then is unknown.
	var moments []int64
	for _, r := range ev.records {
		if r.Told > 0 {
			moments = append(moments, r.Told)
		}
	}
	slices.Sort(moments)
	i, _ := slices.BinarySearchFunc(moments, 0, func(t int64, _ int) int {
		if orderLimits.Check(ev.operations(t), searchFor) == porcupine.Illegal {
			return 1
		}
		return -1
	})
	f := &failure{check: checkOrder, entity: ordered, err: fmt.Errorf("there is no order of the %d calls that explains the answers", len(ops))}
	if i < len(moments) {
		f.until = moments[i]
		f.err = fmt.Errorf("no order of the first %d calls explains the answers", len(ev.operations(f.until)))
	}
	return f
}

// searchFor bounds the search for an order.
const searchFor = 5 * time.Second

// operations returns the calls on the ordered bucket that were made by a time, as they were known then.
func (ev *evidence) operations(by int64) (ops []porcupine.Operation) {
	for _, r := range ev.records {
		if r.Asked > by {
			continue
		}
		known := r.known() && r.Told <= by
		if r.Op == OpLook && !known {
			continue
		}
		op := porcupine.Operation{ClientId: r.Process<<16 | r.Caller, Call: r.Asked, Return: math.MaxInt64}
		a := reckon.Answer{Unknown: true, At: ev.end.Add(time.Minute)}
		if known {
			op.Return = r.Told
			a = reckon.Answer{Allowed: r.Result != Refused, At: r.At}
			for _, lv := range r.Levels {
				a.Levels = append(a.Levels, store.Level{Level: lv})
			}
		}
		op.Input, op.Output = callOf(r), a
		ops = append(ops, op)
	}
	return ops
}

func callOf(r *Record) reckon.Call {
	ch := r.Charges[0]
	d := []reckon.Debit{{Amounts: ch.Amounts, Force: [reckon.MaxLimits]bool{ch.Force, ch.Force}}}
	switch r.Op {
	case OpTake:
		return reckon.Call{Take: d}
	case OpAdjust:
		return reckon.Call{Settle: d}
	default:
		return reckon.Call{}
	}
}

// spent checks a round of spending.
func (ev *evidence) spent(seen looked, undecided func(check int)) *failure {
	backs, f := ev.once(seen)
	if f != nil {
		return f
	}
	tallies := map[string]*[reckon.MaxLimits]reckon.Tally{}
	for _, st := range ev.before {
		var of [reckon.MaxLimits]reckon.Tally
		for i := range of {
			of[i] = ev.tally(st.Bucket.Entity, i, backs)
		}
		tallies[st.Bucket.Entity] = &of
	}
	for k, st := range ev.before {
		entity := st.Bucket.Entity
		for i, l := range limitsOf(entity) {
			fail := func(check int, err error) *failure {
				return &failure{check: check, entity: entity, err: fmt.Errorf("%s of %s: %w", l.Name, entity, err)}
			}
			b := reckon.NewBooks()
			b.Rest(st, ev.at.Add(-ev.slack))
			b.Tally = tallies[entity][i]
			seen(checkAdmitted, 1)
			if err := b.Admitted(l); err != nil {
				return fail(checkAdmitted, err)
			}
			after := ev.after[k]
			was, is := reckon.Find(st, l), reckon.Find(after, l)
			if was == nil || is == nil || st.ID != after.ID {
				return fail(checkLost, fmt.Errorf("the bucket is gone"))
			}
			net := func(s *store.LimitState) int64 { return s.Debited - s.Returned }
			if i == ledger {
				seen(checkLevel, 1)
				if rose, spent := is.Level-was.Level, net(is)-net(was); rose != spent {
					return fail(checkLevel, fmt.Errorf("%d debited and not returned, the level rose by %d millitokens", spent, rose))
				}
			}
			seen(checkLost, 1)
			if ev.writesFailed {
				b.MaybeDebited += math.MaxInt32 // a write without an answer was made again: both count
				undecided(checkLost)
			}
			if err := cmp.Or(b.Level(l, after, ev.end.Add(ev.slack)), b.Counted(l, after, !ev.atomic)); err != nil {
				return fail(checkLost, err)
			}
		}
	}
	return ev.parents(seen, undecided, tallies)
}

// parents checks that the parent was charged what its children were.
func (ev *evidence) parents(seen looked, undecided func(int), tallies map[string]*[reckon.MaxLimits]reckon.Tally) *failure {
	if ev.writesFailed {
		undecided(checkParents)
		return nil
	}
	for i := range reckon.MaxLimits {
		var sum, charged, maybe int64
		for k, st := range ev.before {
			l := limitsOf(st.Bucket.Entity)[i]
			was, is := reckon.Find(st, l), reckon.Find(ev.after[k], l)
			n := is.Debited - is.Returned - was.Debited + was.Returned
			if t := tallies[st.Bucket.Entity][i]; !ev.atomic {
				maybe += t.MaybeDebited + t.MaybeReturned
			}
			if st.Bucket.Entity == parent {
				charged = n
			} else {
				sum += n
			}
		}
		seen(checkParents, 1)
		if d := charged - sum; d > maybe || -d > maybe {
			return &failure{check: checkParents, entity: parent, err: fmt.Errorf(
				"%s of %s: %d millitokens charged, its children's are %d, and %d are in doubt", limitNames[i], parent, charged, sum, maybe)}
		}
	}
	return nil
}

// once checks that leases that were held were given back once, and returns how: 1 for certain, 0 in doubt.
func (ev *evidence) once(seen looked) (map[string]int, *failure) {
	type tries struct{ applied, before, unknown int }
	leases := map[string]*tries{}
	for _, r := range ev.records {
		if r.Op == OpReturn && r.Result == Twice {
			return nil, &failure{check: checkOnce, entity: r.Charges[0].Entity, err: fmt.Errorf("a lease was given back a second time: %s", r)}
		}
		if r.Op != OpRelease {
			continue
		}
		t := leases[r.Lease]
		if t == nil {
			t = &tries{}
			leases[r.Lease] = t
		}
		switch r.Result {
		case Applied:
			t.applied++
		case Before:
			t.before++
		default:
			t.unknown++
		}
	}
	backs := map[string]int{}
	for id, t := range leases {
		seen(checkOnce, 1)
		switch {
		case t.applied > 1:
			return nil, &failure{check: checkOnce, err: fmt.Errorf("lease %s was given back %d times", id, t.applied)}
		case t.applied == 0 && t.unknown == 0:
			return nil, &failure{check: checkOnce, err: fmt.Errorf("lease %s is said to have been given back, %d times, by nobody", id, t.before)}
		}
		backs[id] = t.applied
	}
	return backs, nil
}

// tally is what callers did to a limit of an entity's bucket, as far as they were told.
func (ev *evidence) tally(entity string, limit int, backs map[string]int) reckon.Tally {
	sum := reckon.NewTally()
	l := limitsOf(entity)[limit]
	issued := reckon.Reading(l, ev.end.Add(ev.slack)) - reckon.Reading(l, ev.at.Add(-ev.slack))
	released := map[string]bool{}
	for _, r := range ev.records {
		ch, ok := r.of(entity)
		n := ch.Amounts[limit]
		if !ok || n == 0 {
			continue
		}
		t := reckon.NewTally()
		if !r.At.IsZero() && n > 0 && r.Result == Admitted {
			t.Early, t.Late = reckon.Reading(l, r.At), reckon.Reading(l, r.At)
		}
		switch r.Op {
		case OpTake:
			switch {
			case r.Result == Admitted:
				t.Debited, t.First, t.Last = n, t.Early, t.Late
				if !ev.atomic { // it tells when the last of its buckets was debited; this one may have been as it was asked
					t.First = reckon.Reading(l, r.At.Add(-time.Duration(r.Told-r.Asked)))
					t.Early = t.First
				}
			case !r.known(), !ev.atomic && ev.killed[[2]int{r.Process, r.Life}]: // perhaps before what was refused was undone
				t.MaybeDebited = n
			case !ev.atomic && r.Result == Refused: // what was refilled before it was undone is not given back
				t.MaybeDebited = min(n, issued)
			}
		case OpRelease:
			back, tried := backs[r.Lease]
			if !tried || released[r.Lease] {
				continue
			}
			released[r.Lease] = true
			if back == 1 {
				t.Returned = -n
			} else {
				t.MaybeReturned = -n
			}
		case OpAdjust, OpReturn:
			switch {
			case n > 0 && r.known():
				t.Forced = n
			case n > 0:
				t.MaybeDebited = n
			case r.known():
				t.Returned = -n
			default:
				t.MaybeReturned = -n
			}
		case OpHold, OpLook:
		}
		sum.Add(t)
	}
	return sum
}

// time checks that what a process was told later was decided later, on the same bucket.
func (ev *evidence) time(seen looked) *failure {
	type place struct {
		process, life int
		entity        string
	}
	by := map[place][]*Record{}
	for _, r := range ev.records {
		if r.known() && !r.At.IsZero() && len(r.Charges) > 0 {
			p := place{r.Process, r.Life, r.Charges[0].Entity}
			by[p] = append(by[p], r)
		}
	}
	for p, asked := range by {
		told := slices.Clone(asked)
		slices.SortFunc(asked, func(a, b *Record) int { return cmp.Compare(a.Asked, b.Asked) })
		slices.SortFunc(told, func(a, b *Record) int { return cmp.Compare(a.Told, b.Told) })
		var latest *Record
		for _, r := range asked {
			for len(told) > 0 && told[0].Told < r.Asked {
				if latest == nil || told[0].At.After(latest.At) {
					latest = told[0]
				}
				told = told[1:]
			}
			if latest == nil {
				continue
			}
			seen(checkTime, 1)
			if back := latest.At.Sub(r.At); back > ev.tolerance {
				return &failure{check: checkTime, entity: p.entity, until: r.Told, err: fmt.Errorf("decided at %s, %v before what was answered earlier", r.At.Format(time.RFC3339Nano), back)}
			}
		}
	}
	return nil
}
