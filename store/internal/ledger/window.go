package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// MinuteOf returns the minute that contains t, counted from the Unix epoch.
func MinuteOf(t time.Time) int64 { return clock.MulDivFloor(t.Unix(), 1, 60) }

// hourOf returns the hour of a minute.
func hourOf(minute int64) int64 { return clock.MulDivFloor(minute, 1, 60) }

// timeOfHour returns the start of an hour.
func timeOfHour(hour int64) time.Time { return time.Unix(hour*3600, 0).UTC() }

// Keep returns how long windows of a type are kept after their end. It is negative if they are kept for ever.
func Keep(r store.Retention, w store.Window) time.Duration {
	const day = 24 * time.Hour
	switch w {
	case store.Monthly:
		return cmp.Or(r.Monthly, -1)
	case store.Daily:
		return cmp.Or(r.Daily, 2*365*day)
	default:
		return cmp.Or(r.Hourly, 90*day)
	}
}

// Kept returns the start of the first window of a type that is still kept at now, or the zero time if all are.
func Kept(r store.Retention, w store.Window, now time.Time) time.Time {
	keep := Keep(r, w)
	if keep < 0 {
		return time.Time{}
	}
	return w.Start(now.Add(-keep))
}

// Check returns an error for an unknown type of window.
func Check(w store.Window) error {
	if !slices.Contains(store.Windows, w) {
		return store.ErrInvalid
	}
	return nil
}
