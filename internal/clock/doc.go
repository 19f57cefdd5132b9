// Package clock implements the token clock: the exact integer arithmetic under every limit.
//
// A limit issues Amount millitokens per Period, evenly, since Epoch:
//
//	clock(t) = floor((t - Epoch) * Amount / Period)
//
// A quota issues Amount at the start of each window of the calendar (see package calendar), and a balance issues
// nothing: their clocks differ, and nothing else. A limit of slots bounds how much is held at once, by other
// arithmetic: see package slots.
//
// For each limit a bucket keeps one number, the level: the clock reading up to which tokens are already spent.
//
//	outstanding(t) = max(0, level - clock(t))
//	available(t)   = Burst - outstanding(t)        negative: in debt
//	debit a        : allowed when outstanding(t) + a <= Burst; then level = max(level, clock(t)) + a
//
// There is no refill step. The clock is a pure function of time, so the difference of two readings does not depend on
// the readings between them, and no pattern of calls can create or lose a millitoken.
//
// All functions are pure: the caller passes the time, as nanoseconds since [Epoch], and nothing is allocated. Results
// that do not fit into int64 saturate.
package clock
