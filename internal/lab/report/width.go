package report

import "time"

const day = 24 * time.Hour

// widths are widths of intervals that are easy to read.
var widths = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 7 * day, 28 * day,
}

// Width returns the smallest width, not below least, of which at most so many intervals cover a length of time.
func Width(length, least time.Duration, most int) time.Duration {
	for _, w := range widths {
		if w >= least && length <= time.Duration(most)*w {
			return w
		}
	}
	w := widths[len(widths)-1]
	for length/time.Duration(most) >= w {
		w *= 2
	}
	return w
}
