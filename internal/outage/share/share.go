package share

import (
	"math"
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// entry is a bucket: its limits, and the overriding limits of requests.
type entry struct {
	limits []share
	away   int64 // see Shares.AwayFrom
}

// share is this process's share of one limit.
type share struct {
	limit *store.Limit
	of    int   // how many processes share the limit
	level int64 // a reading of the share's clock
	// fresh is what was admitted here since the store last answered and is not billed yet. It is owed as far as the
	// clock has not covered due: the level of a share that was empty before, so that the store is charged for what it
	// may have issued to others.
	fresh, due int64
	kept       int64 // what remains to be billed from earlier outages
	// unseen is set until the store has shown how much of a quota is spent. Its share is empty until then, or until the
	// next window.
	unseen bool
}

// owes reports whether something may have to be billed.
func (x *share) owes() bool { return x.kept != 0 || x.fresh != 0 }

// unsure reports whether the share is of a limit whose share is empty where nothing is known: others may have spent
// all of a quota in its window, and all of a balance.
func unsure(l *store.Limit) bool { return l.Params().Kind() != clock.Rate }

// spend debits tokens that the store has not counted, at a time and the time up to which the clock covers them.
func (x *share) spend(p clock.Params, now, covered, amount int64) {
	x.level = min(clock.MaxLevel, clock.Spend(x.level, p.Clock(now), amount))
	if x.fresh == 0 {
		x.due = p.Clock(covered) + p.Burst
	}
	x.due = min(clock.MaxLevel, clock.Spend(x.due, p.Clock(covered), amount))
	x.fresh = min(clock.MaxLevel, x.fresh+amount)
}

// back returns tokens debited by spend.
func (x *share) back(amount int64) {
	x.level, x.due = clock.Credit(x.level, amount), clock.Credit(x.due, amount)
	if x.limit.IsBalance() {
		x.level = max(0, x.level) // the store has it
	}
	late := max(0, amount-x.fresh)
	x.fresh, x.kept = max(0, x.fresh-amount), max(0, x.kept-late)
}

// answered moves what is owed to kept. The store answers again, so from now on it hands out what the clock covers.
func (x *share) answered(covered int64) {
	if x.fresh > 0 {
		x.kept = min(clock.MaxLevel, x.kept+min(x.fresh, clock.Outstanding(x.due, covered)))
		x.fresh = 0
	}
}

// bill returns the part of the admitted amount to charge, and removes it from the share.
func (x *share) bill(covered, admitted int64) int64 {
	fresh := min(x.fresh, admitted) // more is about to be owed
	due := min(admitted, x.kept+min(fresh, clock.Outstanding(x.due, covered)))
	x.fresh, x.kept = x.fresh-fresh, max(0, x.kept-admitted)
	return due
}

// idle reports whether the share is full, and the clock has since covered what remains to be billed.
func (x *share) idle(now int64) bool {
	if unsure(x.limit) && !x.owes() {
		return true // without it, the share is empty
	}
	reading := Of(x.limit, x.of).Clock(now)
	owed := x.kept + min(x.fresh, clock.Outstanding(x.due, reading))
	return x.level <= reading && owed <= clock.Outstanding(reading, x.level)
}

// Of returns the share of a limit that one of n processes has. That of a balance has the balance's parameters, but its
// level is never below 0: nothing can be debited of it.
func Of(l *store.Limit, n int) clock.Params {
	p := l.Params()
	h := int64(max(n, 1))
	switch {
	case p.Kind() == clock.Credits:
		return p
	case p.Kind() == clock.Slots:
		p.Burst = max(p.Burst/1000/h, 1) * 1000 // whole slots
		return p
	case p.Kind() == clock.Quota:
		p.Amount = max(p.Amount/h, min(1000, p.Amount))
	case p.Period <= math.MaxInt64/h:
		p.Period *= h // exact
	default:
		p.Amount = max(1, p.Amount/h)
	}
	p.Burst = max(p.Burst/h, min(1000, p.Burst))
	return p
}

// warm brings a share in line with the store's answer. alone means that no other charge can have caused a refusal.
func (x *share) warm(c *store.Charge, lv *store.Level, allowed, alone bool, now, then int64) {
	p := Of(x.limit, x.of)
	if p.Kind() == clock.Credits {
		return
	}
	if x.unseen && lv != nil {
		x.unseen = false
		if !x.owes() {
			x.level = math.MinInt64
		}
	}
	reading := p.Clock(now)
	switch {
	case c.Amount < 0:
		x.level = clock.Credit(x.level, -c.Amount)
	case allowed && !(lv != nil && lv.Refused):
		if l := clock.Spend(x.level, reading, c.Amount); l <= reading+p.Burst {
			x.level = l
		} else {
			x.level = max(x.level, reading+p.Burst)
		}
	case lv == nil && alone:
		x.level = max(x.level, reading+p.Burst-min(c.Amount, p.Burst)+1)
	}
	if lv == nil {
		return
	}
	whole := lv.Limit.Params()
	used := clock.Outstanding(lv.Level, whole.Clock(then))
	x.level = max(x.level, reading+scaled(used, p.Burst, whole.Burst))
}

// full reports whether removing the bucket would lose nothing.
func (e *entry) full(now int64) bool {
	return !slices.ContainsFunc(e.limits, func(x share) bool { return !x.idle(now) })
}

func (e *entry) find(l *store.Limit) int {
	for i := range e.limits {
		if have := e.limits[i].limit; have == l || have.Name == l.Name && have.Override == l.Override &&
			(!l.Override || *have == *l) {
			return i
		}
	}
	return -1
}

// share returns the index of the share of a limit, adjusted to one of n processes; -1 if there are too many already. A
// share that changes keeps the spent fraction of its burst, so that no change hands out another, and of a quota what
// the store would keep, if that is more.
func (e *entry) share(l *store.Limit, n int, now int64) int { return e.shareOf(l, n, now, never) }

// never marks a process whose store answered when it began.
const never = math.MinInt64

// shareOf is share for a process that began without its store.
func (e *entry) shareOf(l *store.Limit, n int, now, began int64) int {
	at := e.find(l)
	if at < 0 {
		if at = e.add(l, n, now); at >= 0 && began != never && !unsure(l) {
			p := Of(l, n)
			e.limits[at].level = p.Clock(began) + p.Burst - min(p.Burst, 1000)
		}
		return at
	}
	x := &e.limits[at]
	if x.of == n && (x.limit == l || *x.limit == *l) {
		return at
	}
	before, from, to := Of(x.limit, x.of), Of(x.limit, n), Of(l, n)
	used, due := clock.Outstanding(x.level, before.Clock(now)), clock.Outstanding(x.due, before.Clock(now))
	used = scaled(used, from.Burst, before.Burst)
	keeps := scaled(used, to.Burst, from.Burst)
	if unsure(x.limit) || unsure(l) { // as in the store, which may have counted a whole window
		keeps = max(keeps, clock.Kept(from, to, used))
	}
	x.limit, x.of, x.level = l, n, to.Clock(now)+keeps
	x.due = clock.Add(to.Clock(now), due)
	if l.IsBalance() {
		x.level = 0
	}
	return at
}

func (e *entry) add(l *store.Limit, n int, now int64) int {
	x := share{limit: l, of: n, level: math.MinInt64}
	if p := Of(l, n); unsure(l) {
		x.unseen, x.level = true, p.Clock(now)+p.Burst // 0 of a balance
	}
	if !l.Override {
		e.limits = append(e.limits, x)
		return len(e.limits) - 1
	}
	overrides, idle := 0, -1
	for i := range e.limits {
		if have := &e.limits[i]; have.limit.Override {
			overrides++
			if have.idle(now) {
				idle = i
			}
		}
	}
	switch {
	case overrides < store.MaxOverrides:
		e.limits = append(e.limits, x)
		return len(e.limits) - 1
	case idle >= 0:
		e.limits[idle] = x
	}
	return idle
}

// scaled returns ceil(a * to / from), where a negative a counts as 0, capped at [clock.MaxBurst].
func scaled(a, to, from int64) int64 {
	return min(clock.MulDivCeil(max(a, 0), to, from), clock.MaxBurst)
}
