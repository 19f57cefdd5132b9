package usage

import (
	"time"

	"github.com/weirlimits/weir/store"
)

// Start returns the start of the window of a type that contains t, in UTC.
func Start(w store.Window, t time.Time) time.Time {
	t = t.UTC()
	year, month, day := t.Date()
	switch w {
	case store.Monthly:
		return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	case store.Daily:
		return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	default:
		return time.Date(year, month, day, t.Hour(), 0, 0, 0, time.UTC)
	}
}

// Next returns the start of the window after the one that starts at start.
func Next(w store.Window, start time.Time) time.Time {
	switch w {
	case store.Monthly:
		return start.AddDate(0, 1, 0)
	case store.Daily:
		return start.AddDate(0, 0, 1)
	default:
		return start.Add(time.Hour)
	}
}

// MinuteOf returns the minute that contains t, counted from the Unix epoch.
func MinuteOf(t time.Time) int64 { return floor(t.Unix(), 60) }

// hourOf returns the hour of a minute.
func hourOf(minute int64) int64 { return floor(minute, 60) }

// timeOfHour returns the start of an hour.
func timeOfHour(hour int64) time.Time { return time.Unix(hour*3600, 0).UTC() }

func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Kept returns the start of the first window of a type that is still kept at now, or the zero time if all are.
func Kept(r store.Retention, w store.Window, now time.Time) time.Time {
	const day = 24 * time.Hour
	keep, otherwise := r.Hourly, 90*day
	switch w {
	case store.Hourly:
	case store.Daily:
		keep, otherwise = r.Daily, 2*365*day
	case store.Monthly:
		keep, otherwise = r.Monthly, -1
	}
	if keep == 0 {
		keep = otherwise
	}
	if keep < 0 {
		return time.Time{}
	}
	return Start(w, now.Add(-keep))
}
