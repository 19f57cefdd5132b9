package serve

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/cli/kit"
)

// logFlags configure the log: one line for each problem, and one for each request only with --log-requests.
type logFlags struct {
	format, level string
	requests      bool
}

func (f *logFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.format, "log-format", "text", "log `FORMAT`: text or json")
	flags.StringVar(&f.level, "log-level", "info", "minimum `LEVEL` to log: debug, info, warn or error")
	flags.BoolVar(&f.requests, "log-requests", false, "log a line for each request")
}

func (f *logFlags) check() error {
	if f.format != "text" && f.format != "json" {
		return kit.Usagef("--log-format %q must be text or json", f.format)
	}
	if err := new(slog.Level).UnmarshalText([]byte(f.level)); err != nil {
		return kit.Usagef("--log-level %q must be debug, info, warn or error", f.level)
	}
	return nil
}

// logger returns the log. Call it after check.
func (f *logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.level)) // already checked
	opts := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
