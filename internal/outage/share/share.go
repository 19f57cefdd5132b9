package share

import (
	"math"
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// entry is a bucket: its limits, and the overriding limits of requests.
type entry struct{ limits []share }

// share is this process's share of one limit.
type share struct {
	limit *store.Limit
	of    int   // how many processes share the limit
	level int64 // a reading of the share's clock
	// fresh is what was admitted here since the store last answered and is not billed yet; kept is what remains to be
	// billed from earlier outages. The clock covers kept only after the level.
	fresh, kept int64
}

// spend debits tokens that the store has not counted.
func (x *share) spend(reading, amount int64) {
	x.cover(reading)
	x.level = min(clock.MaxLevel, clock.Spend(x.level, reading, amount))
	x.fresh = min(clock.MaxLevel, x.fresh+amount)
}

// back returns tokens debited by spend.
func (x *share) back(amount int64) {
	x.level = clock.Credit(x.level, amount)
	late := max(0, amount-x.fresh)
	x.fresh, x.kept = max(0, x.fresh-amount), max(0, x.kept-late)
}

// answered moves what the store has not counted from fresh to kept. The store answers again, so from now on it hands
// out what the clock covers.
func (x *share) answered(reading int64) {
	x.cover(reading)
	if x.fresh > 0 {
		x.kept = min(clock.MaxLevel, x.kept+min(x.fresh, clock.Outstanding(x.level, reading)))
		x.fresh = 0
	}
}

// cover lets the clock cover what is kept, once it has covered the level.
func (x *share) cover(reading int64) {
	if x.kept > 0 && x.level < reading {
		x.kept = max(0, x.kept-clock.Outstanding(reading, x.level))
		x.level = reading
	}
}

// bill returns the part of the admitted amount to charge, and removes it from the share.
func (x *share) bill(reading, admitted int64) int64 {
	x.cover(reading)
	fresh := min(x.fresh, admitted) // more is about to be owed
	due := min(admitted, x.kept+min(fresh, clock.Outstanding(x.level, reading)))
	x.fresh, x.kept = x.fresh-fresh, max(0, x.kept-admitted)
	return due
}

// idle reports whether the share is full and nothing remains to be billed.
func (x *share) idle(now int64) bool {
	reading := Of(x.limit, x.of).Clock(now)
	return x.level <= reading && x.kept <= clock.Outstanding(reading, x.level)
}

// Of returns the share of a limit that one of n processes has.
func Of(l *store.Limit, n int) clock.Params {
	p := clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}
	h := int64(max(n, 1))
	if p.Period <= math.MaxInt64/h {
		p.Period *= h // exact
	} else {
		p.Amount = max(1, p.Amount/h)
	}
	p.Burst = max(p.Burst/h, min(1000, p.Burst))
	return p
}

// warm brings a share in line with the store's answer. alone means that no other charge can have caused a refusal.
func (x *share) warm(c *store.Charge, lv *store.Level, allowed, alone bool, now, then int64) {
	p := Of(x.limit, x.of)
	reading := p.Clock(now)
	x.answered(reading)
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
	whole := clock.Params{Amount: lv.Limit.Amount, Period: int64(lv.Limit.Period), Burst: lv.Limit.Burst}
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
// share that changes keeps the spent fraction of its burst, so that no change hands out another.
func (e *entry) share(l *store.Limit, n int, now int64) int { return e.shareOf(l, n, now, never) }

// never marks a process whose store answered when it began.
const never = math.MinInt64

// shareOf is share for a process that began without its store.
func (e *entry) shareOf(l *store.Limit, n int, now, began int64) int {
	at := e.find(l)
	if at < 0 {
		if at = e.add(l, n, now); at >= 0 && began != never {
			p := Of(l, n)
			e.limits[at].level = p.Clock(began) + p.Burst - min(p.Burst, 1000)
		}
		return at
	}
	x := &e.limits[at]
	if x.of == n && (x.limit == l || *x.limit == *l) {
		return at
	}
	from, to := Of(x.limit, x.of), Of(l, n)
	used := clock.Outstanding(x.level, from.Clock(now))
	x.limit, x.of, x.level = l, n, to.Clock(now)+scaled(used, to.Burst, from.Burst)
	return at
}

func (e *entry) add(l *store.Limit, n int, now int64) int {
	x := share{limit: l, of: n, level: math.MinInt64}
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
