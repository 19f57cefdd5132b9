package ratelog

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/testkit/clocktest"
)

// TestClockSetBack checks that lines are written also after the machine's clock was set back.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	h := Every(time.Minute, slog.New(slog.NewTextHandler(new(bytes.Buffer), nil))).Handler().(handler)
	if !h.Enabled(t.Context(), slog.LevelWarn) || h.Enabled(t.Context(), slog.LevelWarn) {
		t.Error("of two lines, not exactly the first is written")
	}
	h.began = clocktest.Shift(t, h.began.Add(-time.Minute), time.Hour)
	if !h.Enabled(t.Context(), slog.LevelWarn) {
		t.Error("none is written a minute later")
	}
}
