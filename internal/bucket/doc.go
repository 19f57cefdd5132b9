// Package bucket is the token clock: the exact integer arithmetic under every limit.
//
// A limit issues Amount millitokens per Period, evenly, since Epoch:
//
//	clock(t) = floor((t - Epoch) * Amount / Period)
//
// A bucket keeps one number for a limit, its level: the clock reading up to which tokens are already spent.
//
//	outstanding(t) = max(0, level - clock(t))
//	available(t)   = Burst - outstanding(t)        negative: in debt
//	debit a        : allowed when outstanding(t) + a <= Burst; then level = max(level, clock(t)) + a
//
// Nothing is ever refilled. The clock is a pure function of time, so two readings telescope and no pattern of
// calls can create or lose a millitoken.
//
// Everything here is pure: the time is passed in, as nanoseconds since [Epoch], and nothing is allocated.
// Results that would leave int64 saturate.
package bucket
