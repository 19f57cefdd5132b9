package bucket

import (
	"math"
	"time"
)

const (
	// MaxPeriod is the longest period of a limit.
	MaxPeriod = 366 * 24 * time.Hour
	// MaxBurst is the largest burst, in millitokens: 1e15 tokens.
	MaxBurst = 1_000_000_000_000_000_000
	// MaxLevel is the level past which no forced debit may carry a bucket.
	MaxLevel = 1<<62 + 1_000_000_000_000_000_000
)

// Epoch is the instant at which every limit's clock reads zero.
var Epoch = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// horizon is when a clock may reach 2^62 at the earliest: 2060-01-01, in nanoseconds since Epoch.
const horizon = int64(13149 * 24 * time.Hour)

// Nanos turns an instant into nanoseconds since Epoch. Instants more than 292 years from it saturate.
func Nanos(t time.Time) int64 { return int64(t.Sub(Epoch)) }

// Time is the inverse of [Nanos].
func Time(nanos int64) time.Time { return Epoch.Add(time.Duration(nanos)) }

// Params are a limit's parameters. The arithmetic takes them as valid: see [Params.Check].
type Params struct {
	Amount int64 // millitokens issued per Period
	Period int64 // nanoseconds
	Burst  int64 // millitokens that may be outstanding at once
}

// Clock returns the millitokens issued from Epoch until now; negative before Epoch. It never decreases with now.
func (p Params) Clock(now int64) int64 { return MulDivFloor(now, p.Amount, p.Period) }

// Outstanding returns what of the spent millitokens the clock has not yet passed.
func Outstanding(level, clock int64) int64 {
	if level <= clock {
		return 0
	}
	return sub(level, clock)
}

// Available returns the millitokens that a debit may take at a clock reading; negative when the bucket is in debt.
func (p Params) Available(level, clock int64) int64 { return p.Burst - Outstanding(level, clock) }

// Fits reports whether a debit of a millitokens is allowed at a clock reading. A debit of 0 fits unless the bucket
// is in debt. Nothing fits a clock so near the end of int64 that levels would saturate (2088 at the earliest): a
// level that cannot rise admits without end.
func (p Params) Fits(level, clock, a int64) bool {
	return a <= p.Available(level, clock) && clock <= math.MaxInt64-p.Burst
}

// Spend returns the level after a debit of a millitokens at a clock reading. It does not ask whether they fit:
// for an ordinary debit [Params.Fits] was asked before, a forced one is not asked.
func Spend(level, clock, a int64) int64 { return add(max(level, clock), a) }

// Debit spends a millitokens at an instant if they fit; else it returns the level as it was, and false.
func (p Params) Debit(level, now, a int64) (int64, bool) {
	c := p.Clock(now)
	if !p.Fits(level, c, a) {
		return level, false
	}
	return Spend(level, c, a), true
}

// Force spends a millitokens at an instant whether they fit or not; the bucket may go into debt. It returns the
// level as it was, and false, when the level would pass [MaxLevel].
func (p Params) Force(level, now, a int64) (int64, bool) {
	l := Spend(level, p.Clock(now), a)
	if l > MaxLevel {
		return level, false
	}
	return l, true
}

// Credit returns the level after a millitokens were given back. A level under the clock just means full, so what
// comes back to a bucket that has filled up again gives nothing.
func Credit(level, a int64) int64 { return sub(level, a) }

// At returns the first instant at which a debit of a millitokens fits if nobody else spends, in nanoseconds since
// Epoch, whatever the burst: an amount above it gets the instant at which the clock will have covered it.
func (p Params) At(level, a int64) int64 {
	return MulDivCeil(sub(level, sub(p.Burst, a)), p.Period, p.Amount)
}

// RetryAfter returns how long after now a debit of a millitokens fits if nobody else spends: exactly, not one
// nanosecond earlier. It is 0 when the debit fits now, and false when it never will because a exceeds the burst. It
// saturates for instants that int64 does not reach, and at the end of the clock.
func (p Params) RetryAfter(level, now, a int64) (time.Duration, bool) {
	if a > p.Burst {
		return 0, false
	}
	if p.Fits(level, p.Clock(now), a) {
		return 0, true
	}
	wait := sub(p.At(level, a), now)
	if wait <= 0 {
		wait = math.MaxInt64 // it has the tokens, but the clock has ended
	}
	return time.Duration(wait), true
}

// Full returns the first instant at which the bucket is full, in nanoseconds since Epoch.
func (p Params) Full(level int64) int64 { return MulDivCeil(level, p.Period, p.Amount) }

// Rebase carries a level over to other parameters at an instant. What is outstanding is kept, so that raising a
// limit helps at once and lowering it never forgives. It may cost a millitoken, the new clock's phase; it never
// gives one.
func Rebase(from, to Params, level, now int64) int64 {
	return add(to.Clock(now), Outstanding(level, from.Clock(now)))
}

// Problem says which parameter is out of bounds and what the bounds are.
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

func add(a, b int64) int64 {
	c := a + b
	if (c > a) == (b > 0) {
		return c
	}
	return saturated(b > 0)
}

func sub(a, b int64) int64 {
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
