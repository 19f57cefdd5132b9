package clock

import (
	"math"
	"time"

	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/internal/clock/slots"
)

const (
	// MaxPeriod is the longest period of a limit.
	MaxPeriod = 366 * 24 * time.Hour
	// MaxBurst is the largest burst of a limit, in millitokens: 1e15 tokens.
	MaxBurst = 1_000_000_000_000_000_000
	// MaxLevel is the highest level that a forced debit may reach.
	MaxLevel = 1<<62 + 1_000_000_000_000_000_000
)

// Epoch is the instant at which every limit's clock reads zero.
var Epoch = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// horizon is the earliest instant at which a clock may reach 2^62: 2060-01-01, in nanoseconds since Epoch.
const horizon = int64(13149 * 24 * time.Hour)

// Nanos converts an instant to nanoseconds since Epoch. Instants more than 292 years from Epoch saturate.
func Nanos(t time.Time) int64 { return int64(t.Sub(Epoch)) }

// Time is the inverse of [Nanos].
func Time(nanos int64) time.Time { return Epoch.Add(time.Duration(nanos)) }

// Params are a limit's parameters: of a rate, which has a Period; of a quota, which has a Window; of slots, which have
// a Heal time; or [Balance]. The arithmetic assumes that they are valid: see [Params.Check].
//
// The level of a limit of slots is how many are held, and its clock does not move: see [Params.Slots].
type Params struct {
	Amount int64           // millitokens issued per Period, evenly, or at the start of each window
	Period int64           // nanoseconds; 0 unless the limit is a rate
	Burst  int64           // millitokens that may be outstanding at once
	Window calendar.Window // none unless the limit is a quota
	Heal   int64           // nanoseconds; 0 unless it is a limit of slots
}

// Balance are the parameters of a limit that issues nothing: what can be debited was credited before. Its level is what
// was debited less what was credited, so that level -5 means that 5 can be debited.
var Balance = Params{Burst: -balanceClock}

// balanceClock is the reading of a balance's clock.
const balanceClock = -1 << 62

// Kind is how a limit issues tokens.
type Kind uint8

// The kinds of limits.
const (
	Rate    Kind = iota // evenly
	Quota               // all at the start of a window of the calendar
	Credits             // never by itself: see [Balance]
	Slots               // what is given back: see package slots
)

// Kind returns the limit's kind.
func (p Params) Kind() Kind {
	switch {
	case p.Period != 0:
		return Rate
	case p.Window != calendar.Window{}:
		return Quota
	case p.Heal != 0:
		return Slots
	}
	return Credits
}

// Slots returns the limit of slots that applies to a decision, where each clock is at most so many nanoseconds from
// true time. Its unit is the thousandth of a slot.
func (p Params) Slots(skew int64) slots.Limit {
	return slots.Limit{Slots: p.Burst, Heal: p.Heal, Skew: skew}
}

// Clock returns the millitokens issued from Epoch until now; negative before Epoch. It never decreases as now grows.
func (p Params) Clock(now int64) int64 {
	if p.Period != 0 {
		return MulDivFloor(now, p.Amount, p.Period)
	}
	return p.stepped(now)
}

func (p Params) stepped(now int64) int64 {
	switch p.Kind() {
	case Credits:
		return balanceClock
	case Slots:
		return 0
	default:
		return MulDivFloor(p.Window.Index(now), p.Amount, 1)
	}
}

// when returns the first instant at which the clock reads at least c. It saturates; the clocks of balances and slots
// never do.
func (p Params) when(c int64) int64 {
	switch p.Kind() {
	case Rate:
		return MulDivCeil(c, p.Period, p.Amount)
	case Quota:
		return p.Window.Start(MulDivCeil(c, 1, p.Amount))
	default:
		return math.MaxInt64
	}
}

// Fresh returns the level of a limit that has none, at an instant: it is full, and a balance is empty.
func (p Params) Fresh(now int64) int64 {
	if p.Kind() == Credits {
		return 0
	}
	return p.Clock(now)
}

// Outstanding returns the spent millitokens that the clock has not yet passed.
func Outstanding(level, clock int64) int64 {
	if level <= clock {
		return 0
	}
	return Sub(level, clock)
}

// Available returns the millitokens that a debit may take at a clock reading; negative if the bucket is in debt.
func (p Params) Available(level, clock int64) int64 { return p.Burst - Outstanding(level, clock) }

// Fits reports whether a debit of a millitokens is allowed at a clock reading. A debit of 0 fits unless the bucket is
// in debt. If the clock is so near the end of int64 that levels would saturate (2088 at the earliest), nothing fits: a
// level that cannot rise would admit without limit.
func (p Params) Fits(level, clock, a int64) bool {
	return Fits(p.Burst, level, clock, a)
}

// Fits is [Params.Fits] for a limit of which only the burst is at hand: copying all of Params slows down a hot path.
func Fits(burst, level, clock, a int64) bool {
	return a <= burst-Outstanding(level, clock) && clock <= math.MaxInt64-burst
}

// Spend returns the level after a debit of a millitokens at a clock reading. It does not check whether they fit: for an
// ordinary debit the caller has checked [Params.Fits], and a forced debit needs no check.
func Spend(level, clock, a int64) int64 { return Add(max(level, clock), a) }

// Debit spends a millitokens at an instant if they fit. Otherwise it returns the level unchanged, and false.
func (p Params) Debit(level, now, a int64) (int64, bool) {
	c := p.Clock(now)
	if !p.Fits(level, c, a) {
		return level, false
	}
	return Spend(level, c, a), true
}

// Force spends a millitokens at an instant whether they fit or not; the bucket may go into debt. If the level would
// exceed [MaxLevel], Force returns the level unchanged, and false.
func (p Params) Force(level, now, a int64) (int64, bool) {
	l := Spend(level, p.Clock(now), a)
	if l > MaxLevel {
		return level, false
	}
	return l, true
}

// Credit returns the level after a return of a millitokens. A level below the clock means that the bucket is full, so a
// return to a bucket that has filled up again adds nothing.
func Credit(level, a int64) int64 { return Sub(level, a) }

// Takes reports whether a limit takes back what was debited from one of the same name with other parameters: only a
// rate does, from a rate. What was debited from a limit of another kind is neither a credit nor of this window.
func (p Params) Takes(from Params) bool { return p == from || p.Kind() == Rate && from.Kind() == Rate }

// Unissued returns the part of a debit of a millitokens that the clock has not issued again between two readings of it.
// A limit that gives back no more of a debit than that admits at most its burst and what it issues, counted by what is
// kept: see docs/format/token-clock.md.
func Unissued(a, then, now int64) int64 { return max(0, Sub(a, Outstanding(now, then))) }

// Owable returns how much of a forced debit of a millitokens brings the bucket at most that many millitokens into debt.
func (p Params) Owable(level, clock, a, debt int64) int64 {
	return max(0, min(a, Add(p.Available(level, clock), debt)))
}

// Debt returns how many millitokens the bucket is in debt.
func (p Params) Debt(level, clock int64) int64 { return max(0, -p.Available(level, clock)) }

// At returns the first instant at which a debit of a millitokens fits if nobody else spends, in nanoseconds since
// Epoch. If a exceeds the burst, that is the instant at which the clock will have covered a.
func (p Params) At(level, a int64) int64 {
	return p.when(Sub(level, Sub(p.Burst, a)))
}

// RetryAfter returns how long after now a debit of a millitokens fits if nobody else spends. The result is exact to the
// nanosecond. It is 0 if the debit fits now, and false if time alone does not help: 0 if a exceeds the burst, and the
// longest duration if the limit is a balance or of slots. It saturates for instants beyond int64 and at the end of the
// clock.
func (p Params) RetryAfter(level, now, a int64) (time.Duration, bool) {
	if a > p.Burst {
		return 0, false
	}
	if p.Fits(level, p.Clock(now), a) {
		return 0, true
	}
	if k := p.Kind(); k == Credits || k == Slots {
		return math.MaxInt64, false
	}
	wait := Sub(p.At(level, a), now)
	if wait <= 0 {
		wait = math.MaxInt64 // the tokens are there, but the clock has ended
	}
	return time.Duration(wait), true
}

// Wait returns how long after now a millitokens are available if nobody else spends; if a exceeds the burst, how long
// until the clock will have covered a. It is the longest duration for a balance without them, and 0 for slots, of which
// nobody knows when they come back.
func (p Params) Wait(level, now, a int64) time.Duration {
	switch c := p.Clock(now); {
	case p.Kind() == Slots, p.Fits(level, c, a):
		return 0
	case p.Kind() == Credits:
		return math.MaxInt64
	default:
		return time.Duration(max(0, Sub(p.At(max(level, c), a), now)))
	}
}

// Full returns the first instant at which the bucket is full, in nanoseconds since Epoch. Balances and slots never
// are by their levels: the result is the largest int64.
func (p Params) Full(level int64) int64 { return p.when(level) }

// Rebase carries a level over to other parameters at an instant. Outstanding millitokens are kept, so raising a limit
// helps at once and lowering it forgives nothing. Rebase may cost a millitoken, because of the new clock's phase; it
// never grants one.
//
// From or to a quota, what was spent within the former limit counts at most as one whole new burst; a debt stays.
// Otherwise, what was spent of a larger quota would take several windows of a smaller one. A limit that becomes a
// balance has no credits.
func Rebase(from, to Params, level, now int64) int64 {
	return Add(to.Clock(now), Kept(from, to, Outstanding(level, from.Clock(now))))
}

// Kept returns how much [Rebase] keeps of what is outstanding.
func Kept(from, to Params, out int64) int64 {
	switch debt := max(0, Sub(out, from.Burst)); {
	case to.Kind() == Credits:
		return Add(to.Burst, debt)
	case from.Kind() != Rate || to.Kind() != Rate:
		return Add(min(out, from.Burst, to.Burst), debt)
	default:
		return out
	}
}

// Problem describes which parameter is out of bounds and what the bounds are.
type Problem struct {
	Field  string // "amount", "period", "burst", "window", "heal" or "rate"
	Reason string
}

// Check returns what is wrong with the parameters, or nil.
func (p Params) Check() *Problem {
	switch quota := (p.Window != calendar.Window{}); {
	case p == Balance:
		return nil
	case p.Heal != 0:
		return p.checkSlots()
	case p.Amount <= 0:
		return &Problem{"amount", "must be positive"}
	case quota && p.Period != 0:
		return &Problem{"window", "cannot be together with a period"}
	case p.Period <= 0 && !quota:
		return &Problem{"period", "must be positive"}
	case quota && p.Burst != p.Amount:
		return &Problem{"burst", "must be the amount: what a window leaves does not carry over"}
	case p.Period > int64(MaxPeriod):
		return &Problem{"period", "must be at most 366 days"}
	case p.Burst <= 0:
		return &Problem{"burst", "must be positive"}
	case p.Burst > MaxBurst:
		return &Problem{"burst", "must be at most 1e15 tokens"}
	case quota && p.Clock(horizon) >= 1<<62:
		return &Problem{"amount", "is above what can be counted until 2060: count in a coarser unit"}
	case !quota && p.Clock(horizon) >= 1<<62:
		return &Problem{"rate", "is above about 4 million tokens a second: count in a coarser unit"}
	}
	return nil
}

func (p Params) checkSlots() *Problem {
	switch {
	case p != Params{Burst: p.Burst, Heal: p.Heal}:
		return &Problem{"heal", "cannot be together with an amount, a period or a window"}
	case p.Heal < int64(slots.MinHeal) || p.Heal > int64(slots.MaxHeal):
		return &Problem{"heal", "must be from 16 seconds to 1 hour"}
	case p.Burst <= 0:
		return &Problem{"burst", "must be positive"}
	case p.Burst > MaxBurst:
		return &Problem{"burst", "must be at most 1e15 tokens"}
	}
	return nil
}

// Add returns a + b. The sum saturates.
func Add(a, b int64) int64 {
	c := a + b
	if (c > a) == (b > 0) {
		return c
	}
	return saturated(b > 0)
}

// Times returns a * n, where n is above 0. The product saturates.
func Times(a int64, n int) int64 {
	switch m := int64(n); {
	case a > math.MaxInt64/m:
		return math.MaxInt64
	case a < math.MinInt64/m:
		return math.MinInt64
	default:
		return a * m
	}
}

// Sub returns a - b. The difference saturates.
func Sub(a, b int64) int64 {
	c := a - b
	if (c < a) == (b > 0) {
		return c
	}
	return saturated(b < 0)
}

func saturated(up bool) int64 {
	if up {
		return math.MaxInt64
	}
	return math.MinInt64
}
