package torture

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// Check is the result of checking one promise.
type Check struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Cases int    `json:"cases"` // how often it was checked
	// Undecided is how often the check had no result: the search took too long, or writes of the store had failed.
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
	checkApart
)

func newChecks() []Check {
	return []Check{
		checkOrder:    {Name: "order", About: "one order of the calls explains all answers"},
		checkAdmitted: {Name: "admitted", About: "no more tokens are admitted than issued"},
		checkLevel:    {Name: "level", About: "the level rises by debits - returns, to the millitoken"},
		checkLost:     {Name: "books", About: "the counters match what callers were told"},
		checkParents:  {Name: "parents", About: "a parent is debited the sum of its children's debits"},
		checkOnce:     {Name: "once", About: "a lease is returned once, whoever tries"},
		checkTime:     {Name: "time", About: "the store's time does not go back"},
		checkApart:    {Name: "apart", About: "one tenant's failures keep no other from the store"},
	}
}

// failure is a violation that a check found.
type failure struct {
	check  int
	err    error
	entity string // whose bucket it is about; "": all
	until  int64  // end of the excerpt: the latest time at which its calls were made; 0: no limit
}

// evidence is everything known about a round.
type evidence struct {
	records       []*Record // merged: one per call
	before, after []store.State
	at, end       time.Time // of before and after
	killed        map[[2]int]bool
	atomic        bool
	writesFailed  bool // of the store; some may have been made twice, so tokens may be missing
	slack         time.Duration
	tolerance     time.Duration
	credited      bool // the balances were credited; otherwise, they were given back what they had
	frugal        bool // tokens may be debited ahead, and stay debited if others write to the bucket
}

// looked counts cases of a check.
type looked func(check, cases int)

// order searches for an order of a round's calls on one bucket.
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
	// Find the earliest moment up to which there is no order: calls not answered by then are unknown.
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
	f := &failure{
		check: checkOrder, entity: ordered, err: fmt.Errorf("no order of the %d calls explains the answers", len(ops)),
	}
	if i < len(moments) {
		f.until = moments[i]
		f.err = fmt.Errorf("no order of the first %d calls explains the answers", len(ev.operations(f.until)))
	}
	return f
}

// searchFor is the time limit of the search for an order.
const searchFor = 5 * time.Second

// operations returns the calls on the ordered bucket made by a time, as they were known then.
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
		for i := range reckon.MaxLimits {
			if f := ev.limit(k, i, tallies[st.Bucket.Entity][i], seen, undecided); f != nil {
				return f
			}
		}
	}
	return ev.parents(seen, undecided, tallies)
}

// limit checks one limit of a bucket: k is the place of the bucket, i that of the limit.
func (ev *evidence) limit(k, i int, tally reckon.Tally, seen looked, undecided func(check int)) *failure {
	st, after, entity := ev.before[k], ev.after[k], ev.before[k].Bucket.Entity
	l := limitsOf(entity)[i]
	fail := func(check int, err error) *failure {
		return &failure{check: check, entity: entity, err: fmt.Errorf("%s of %s: %w", l.Name, entity, err)}
	}
	b := reckon.NewBooks()
	b.Rest(st, ev.at.Add(-ev.slack))
	b.Tally = tally
	if ev.frugal { // who debited ahead may have hidden the answer that would show when
		b.First = min(b.First, reckon.Reading(l, ev.at.Add(-ev.slack)))
		b.MaybeDebited += math.MaxInt32
	}
	seen(checkAdmitted, 1)
	if err := b.Admitted(l); err != nil {
		return fail(checkAdmitted, err)
	}
	if ev.turned(l) { // what was returned to a quota's last window gave nothing
		undecided(checkLost)
		return nil
	}
	was, is := reckon.Find(st, l), reckon.Find(after, l)
	if was == nil || is == nil || st.ID != after.ID {
		return fail(checkLost, fmt.Errorf("the bucket is gone, or was created again"))
	}
	net := func(s *store.LimitState) int64 { return s.Debited - s.Returned }
	rose, spent := is.Level-was.Level, net(is)-net(was)
	if l.IsBalance() { // 0 is added: what is spent and left is what was credited
		if spent += net(was) - was.Level; ev.credited {
			spent -= credits[i]
		}
	}
	if i == ledger || l.IsBalance() {
		seen(checkLevel, 1)
		// What a frugal store debits beyond the requests, uncounted, stays within a tenth of the burst.
		if over := rose - spent; over < 0 || over > 0 && (!ev.frugal || over > l.Burst/10) {
			return fail(
				checkLevel,
				fmt.Errorf("debits - returns are %d millitokens, but the level rose by %d", spent, rose),
			)
		}
	}
	seen(checkLost, 1)
	if ev.writesFailed {
		b.MaybeDebited += math.MaxInt32 // a write without an answer was repeated: both count
		undecided(checkLost)
	}
	if err := cmp.Or(b.Level(l, after, ev.end.Add(ev.slack)), b.Counted(l, after, !ev.atomic)); err != nil {
		return fail(checkLost, err)
	}
	return nil
}

// parents checks that the parent was charged what its children were.
func (ev *evidence) parents(
	seen looked, undecided func(int), tallies map[string]*[reckon.MaxLimits]reckon.Tally,
) *failure {
	if ev.frugal {
		return nil
	}
	if ev.writesFailed {
		undecided(checkParents)
		return nil
	}
	for i := range reckon.MaxLimits {
		turned := func(st store.State) bool { return ev.turned(limitsOf(st.Bucket.Entity)[i]) }
		if slices.ContainsFunc(ev.before, turned) {
			undecided(checkParents)
			continue
		}
		var sum, charged, maybe int64
		for k, st := range ev.before {
			l := limitsOf(st.Bucket.Entity)[i]
			was, is := reckon.Find(st, l), reckon.Find(ev.after[k], l)
			n := is.Debited - is.Returned - was.Debited + was.Returned
			if !ev.atomic {
				t := tallies[st.Bucket.Entity][i]
				maybe += t.MaybeDebited + t.MaybeReturned
			}
			switch st.Bucket.Entity {
			case neighbour:
			case parent:
				charged = n
			default:
				sum += n
			}
		}
		more, less := maybe, maybe
		if ev.atomic {
			more = ev.kept(i)
		}
		seen(checkParents, 1)
		if d := charged - sum; d > more || -d > less {
			return &failure{check: checkParents, entity: parent, err: fmt.Errorf(
				"%s of %s: debited %d millitokens, its children %d, and %d are in doubt",
				limitNames[i], parent, charged, sum, more)}
		}
	}
	return nil
}

// kept is how much less may have been returned to the parent than to its children. A store returns a take itself if its
// caller has left, except for what the limit issued since: the parent's limit issues more.
func (ev *evidence) kept(limit int) (sum int64) {
	for _, r := range ev.records {
		if r.Op == OpTake && !r.known() {
			ch, _ := r.of(parent)
			sum += min(ch.Amounts[limit], ev.issued(parentLimits[limit]))
		}
	}
	return sum
}

// turned reports whether a window of a quota began during the round.
func (ev *evidence) turned(l *store.Limit) bool { return reckon.Quota(l) && ev.issued(l) > 0 }

// issued is what a limit issued during the round, at most.
func (ev *evidence) issued(l *store.Limit) int64 {
	return reckon.Reading(l, ev.end.Add(ev.slack)) - reckon.Reading(l, ev.at.Add(-ev.slack))
}

// once checks that each held lease was returned once, and returns for each whether that is certain (1) or in doubt (0).
func (ev *evidence) once(seen looked) (map[string]int, *failure) {
	type tries struct{ applied, before, unknown int }
	leases := map[string]*tries{}
	for _, r := range ev.records {
		if r.Op == OpReturn && r.Result == Twice {
			return nil, &failure{
				check: checkOnce, entity: r.Charges[0].Entity,
				err: fmt.Errorf("a lease was returned a second time: %s", r),
			}
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
			return nil, &failure{check: checkOnce, err: fmt.Errorf("lease %s was returned %d times", id, t.applied)}
		case t.applied == 0 && t.unknown == 0:
			return nil, &failure{
				check: checkOnce,
				err: fmt.Errorf(
					"lease %s was reported as already returned %d times, but no call returned it", id, t.before,
				),
			}
		}
		backs[id] = t.applied
	}
	return backs, nil
}

// apart checks that the neighbour was always decided in the store; the cases are calls while others were not.
func (ev *evidence) apart(seen looked) *failure {
	for _, r := range ev.records {
		if _, on := r.of(neighbour); !on {
			continue
		}
		if r.Op == OpBeside {
			seen(checkApart, 1)
		}
		if r.Result == KeptOut {
			return &failure{check: checkApart, entity: neighbour, until: r.Told, err: errors.New(r.Err)}
		}
	}
	return nil
}

// tally is what callers did to a limit of an entity's bucket, according to the answers they got.
func (ev *evidence) tally(entity string, limit int, backs map[string]int) reckon.Tally {
	sum := reckon.NewTally()
	l := limitsOf(entity)[limit]
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
		case OpTake, OpBeside:
			switch {
			case r.Result == Admitted:
				t.Debited, t.First, t.Last = n, t.Early, t.Late
				// Its time is that of the last bucket debited; this one may have been debited as early as the call.
				if !ev.atomic {
					t.First = reckon.Reading(l, r.At.Add(-time.Duration(r.Told-r.Asked)))
					t.Early = t.First
				}
			case !r.known(), !ev.atomic && (r.Result == Refused || ev.killed[[2]int{r.Process, r.Life}]):
				// A refused take stays debited where its process died before undoing it, or others kept writing.
				t.MaybeDebited = n
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

// time checks that, for one process and bucket, an answer that arrived later was decided later.
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
				return &failure{
					check: checkTime, entity: p.entity, until: r.Told,
					err: fmt.Errorf(
						"decided at %s, %v before the time of an earlier answer", r.At.Format(time.RFC3339Nano), back,
					),
				}
			}
		}
	}
	return nil
}
