package ratelog_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/ratelog"
)

// A logger and the loggers derived from it write one line per second together; disabled levels do not count.
func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := ratelog.New(slog.New(slog.NewTextHandler(&out, nil)))
		derived := []*slog.Logger{log, log.With(slog.Int("a", 1)), log.WithGroup("g")}
		for second := range 3 {
			for range 5 {
				for _, l := range derived {
					l.Debug("unseen")
					l.Warn("seen")
				}
			}
			if n := strings.Count(out.String(), "\n"); n != second+1 {
				t.Errorf("after %d s: %d lines", second, n)
			}
			time.Sleep(time.Second)
		}
		if strings.Contains(out.String(), "unseen") {
			t.Error("a disabled level was logged")
		}
	})
}
