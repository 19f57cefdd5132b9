package serve

import (
	"io"
	"log/slog"

	"github.com/weirlimits/weir/internal/cli/kit"
)

// logFlags configure the log: one line for each problem, and one for each request only with --log-requests.
type logFlags struct {
	Format   string `json:"log_format" values:"text,json" default:"text"`
	Level    string `json:"log_level" default:"info"`
	Requests bool   `json:"log_requests"`
}

func (f *logFlags) check() error {
	if err := new(slog.Level).UnmarshalText([]byte(f.Level)); err != nil {
		return kit.Usagef("--log-level %q must be debug, info, warn or error", f.Level)
	}
	return nil
}

// logger returns the log. Call it after check.
func (f *logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.Level)) // already checked
	opts := &slog.HandlerOptions{Level: level}
	if f.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
