package clock

import "time"

// Left returns how long it is from now until an instant, by whichever of the machine's clocks shows less: the monotonic
// one stands still while the machine is suspended, and the other one may be set.
func Left(until, now time.Time) time.Duration {
	return min(until.Sub(now), until.Round(0).Sub(now.Round(0)))
}
