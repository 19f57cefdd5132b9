package replay

import (
	"testing"
	"time"
)

func TestIntervals(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, time.March, 2, 9, 17, 3, 5, time.UTC)
	for _, tt := range []struct {
		span, width time.Duration
	}{
		{0, time.Second},
		{time.Minute, time.Second},
		{5 * time.Minute, 5 * time.Second},
		{time.Hour, time.Minute},
		{24 * time.Hour, 30 * time.Minute},
		{30 * 24 * time.Hour, 12 * time.Hour},
		{366 * 24 * time.Hour, 7 * 24 * time.Hour},
		{200 * 366 * 24 * time.Hour, 1792 * 24 * time.Hour},
	} {
		to := from.Add(tt.span)
		width, series := intervals(from.UnixNano(), to.UnixNano())
		if width != tt.width || len(series) == 0 || len(series) > maxIntervals {
			t.Errorf("%s: %d intervals of %s, want %s", tt.span, len(series), width, tt.width)
			continue
		}
		last := series[len(series)-1].Start
		if series[0].Start.After(from) || last.After(to) || !last.Add(width).After(to) {
			t.Errorf("%s: from %s to %s do not cover it", tt.span, series[0].Start, last)
		}
	}
}

func TestPercent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		part, whole int
		want        float64
	}{{0, 3, 0}, {1, 3, 33.33}, {3, 3, 100}, {999_999, 1_000_000, 99.99}} {
		if got := percent(tt.part, tt.whole); got != tt.want {
			t.Errorf("percent(%d, %d) = %v, want %v", tt.part, tt.whole, got, tt.want)
		}
	}
}
