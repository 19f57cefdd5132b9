package metrics

import (
	"log/slog"
	"time"
)

// episode is a time in which the store did not answer some decisions. It is logged when it begins and when it is over,
// with how many there were, instead of each.
type episode struct {
	began            time.Time // zero: there is none
	quiet            int       // seconds
	degraded, failed uint64
}

// second is told what came in each second.
func (e *episode) second(log *slog.Logger, now time.Time, degraded, failed uint64) {
	switch {
	case degraded+failed > 0 && e.began.IsZero():
		*e = episode{began: now}
		log.Warn("the store does not answer every decision", slog.Uint64("degraded", degraded), slog.Uint64("failed", failed))
	case e.began.IsZero():
		return
	case degraded+failed > 0:
		e.quiet = 0
	default:
		e.quiet++
	}
	e.degraded += degraded
	e.failed += failed
	if e.quiet == lately {
		log.Info("the store answers every decision again", slog.Duration("after", now.Add(-lately*time.Second).Sub(e.began)),
			slog.Uint64("degraded", e.degraded), slog.Uint64("failed", e.failed))
		*e = episode{}
	}
}
