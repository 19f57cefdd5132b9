package store

import (
	"math"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// Phase is the time in which the limits of a debit hold, if limits begin or end. A bucket follows them only within it,
// by the bucket's own time, which never runs back: so a process whose clock is behind cannot bring the former limits
// back once another process has passed the switch. A store whose buckets have the time of their writers may let a
// bucket follow limits that begin within the next seconds; the bucket's time is then no earlier than their begin.
type Phase struct {
	From  time.Time // the zero time: they have no begin
	Until time.Time // they hold no more; the zero time: they have no end
}

// Bounds returns the phase in nanoseconds since the clock's epoch. Nil has the least and the largest int64.
func (p *Phase) Bounds() (from, until int64) {
	from, until = math.MinInt64, math.MaxInt64
	if p != nil && !p.From.IsZero() {
		from = clock.Nanos(p.From)
	}
	if p != nil && !p.Until.IsZero() {
		until = clock.Nanos(p.Until)
	}
	return from, until
}

// PhaseError reports that the limits of a debit differ from those of its bucket, and do not hold at the bucket's time:
// find out which limits hold then, and retry. Nothing was debited. It matches [ErrStaleLimits].
type PhaseError struct {
	At time.Time // the bucket's time
}

// Error has the time.
func (e *PhaseError) Error() string {
	return "other limits hold at " + e.At.UTC().Format(time.RFC3339Nano)
}

// Is reports whether target is [ErrStaleLimits].
func (e *PhaseError) Is(target error) bool { return target == ErrStaleLimits }
