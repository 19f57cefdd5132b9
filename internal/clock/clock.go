package clock

import (
	"math"
	"time"
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

// Params are a limit's parameters. The arithmetic assumes that they are valid: see [Params.Check].
type Params struct {
	Amount int64 // millitokens issued per Period
	Period int64 // nanoseconds
	Burst  int64 // millitokens that may be outstanding at once
}

// Clock returns the millitokens issued from Epoch until now; negative before Epoch. It never decreases as now grows.
func (p Params) Clock(now int64) int64 { return MulDivFloor(now, p.Amount, p.Period) }

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
	return a <= p.Available(level, clock) && clock <= math.MaxInt64-p.Burst
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

// At returns the first instant at which a debit of a millitokens fits if nobody else spends, in nanoseconds since
// Epoch. If a exceeds the burst, that is the instant at which the clock will have covered a.
func (p Params) At(level, a int64) int64 {
	return MulDivCeil(Sub(level, Sub(p.Burst, a)), p.Period, p.Amount)
}

// RetryAfter returns how long after now a debit of a millitokens fits if nobody else spends. The result is exact to the
// nanosecond. It is 0 if the debit fits now, and false if the debit never fits because a exceeds the burst. It
// saturates for instants beyond int64 and at the end of the clock.
func (p Params) RetryAfter(level, now, a int64) (time.Duration, bool) {
	if a > p.Burst {
		return 0, false
	}
	if p.Fits(level, p.Clock(now), a) {
		return 0, true
	}
	wait := Sub(p.At(level, a), now)
	if wait <= 0 {
		wait = math.MaxInt64 // the tokens are there, but the clock has ended
	}
	return time.Duration(wait), true
}

// Full returns the first instant at which the bucket is full, in nanoseconds since Epoch.
func (p Params) Full(level int64) int64 { return MulDivCeil(level, p.Period, p.Amount) }

// Rebase carries a level over to other parameters at an instant. Outstanding millitokens are kept, so raising a limit
// helps at once and lowering it forgives nothing. Rebase may cost a millitoken, because of the new clock's phase; it
// never grants one.
func Rebase(from, to Params, level, now int64) int64 {
	return Add(to.Clock(now), Outstanding(level, from.Clock(now)))
}

// Problem describes which parameter is out of bounds and what the bounds are.
type Problem struct {
	Field  string // "amount", "period", "burst" or "rate"
	Reason string
}

// Check returns what is wrong with the parameters, or nil.
func (p Params) Check() *Problem {
	switch {
	case p.Amount <= 0:
		return &Problem{"amount", "must be positive"}
	case p.Period <= 0:
		return &Problem{"period", "must be positive"}
	case p.Period > int64(MaxPeriod):
		return &Problem{"period", "must be at most 366 days"}
	case p.Burst <= 0:
		return &Problem{"burst", "must be positive"}
	case p.Burst > MaxBurst:
		return &Problem{"burst", "must be at most 1e15 tokens"}
	case MulDivFloor(horizon, p.Amount, p.Period) >= 1<<62:
		return &Problem{"rate", "is above about 4 million tokens a second: count in a coarser unit"}
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
