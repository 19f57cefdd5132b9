package metrics

import (
	"log/slog"
	"time"
)

// episode is a period in which the store did not answer some decisions. Its beginning and end are logged, with the
// number of decisions, instead of each decision.
type episode struct {
	began            time.Time // zero: no episode
	quiet            int       // seconds without trouble
	degraded, failed uint64
}

// second takes the counts of each second.
func (e *episode) second(log *slog.Logger, now time.Time, degraded, failed uint64) {
	switch {
	case degraded+failed > 0 && e.began.IsZero():
		*e = episode{began: now}
		log.Warn("the store does not answer every decision", slog.Uint64("degraded", degraded),
			slog.Uint64("failed", failed))
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
		log.Info("the store answers every decision again", slog.Duration("after",
			now.Add(-lately*time.Second).Sub(e.began)),
			slog.Uint64("degraded", e.degraded), slog.Uint64("failed", e.failed))
		*e = episode{}
	}
}
