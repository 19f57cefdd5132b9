package clock_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/testkit/clocktest"
)

func TestLeft(t *testing.T) {
	t.Parallel()
	now := time.Now()
	until := now.Add(10 * time.Second)
	for by, want := range map[time.Duration]time.Duration{
		0: 10 * time.Second, -5 * time.Minute: 10*time.Second - 5*time.Minute, time.Hour: 10 * time.Second,
	} {
		if got := clock.Left(clocktest.Shift(t, until, by), now); got != want {
			t.Errorf("shifted by %s: %s are left, want %s", by, got, want)
		}
	}
	if got := clock.Left(time.Time{}, now); got >= 0 {
		t.Errorf("%s are left until the zero time", got)
	}
}
