package serve

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestDurationsInJSON checks that a JSON log has durations in milliseconds, as the log of requests does.
func TestDurationsInJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	f := LogFlags{Format: "json", Level: "info"}
	log, err := f.Open(&out)
	if err != nil {
		t.Fatal(err)
	}
	log.With(slog.Duration("p99", 1500*time.Microsecond)).Info("measured",
		slog.Group("again", slog.Duration("in", 2*time.Second)))
	if want := `"msg":"measured","p99_ms":1.5,"again":{"in_ms":2000}}`; !strings.Contains(out.String(), want) {
		t.Errorf("%s, want %s", out.String(), want)
	}
}
