package serve

import (
	"io"
	"log/slog"
	"time"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/policy/record"
)

// LogFlags configure the log: one line for each problem, and one for each request only with --log-requests.
type LogFlags struct {
	Format   string `json:"log_format" values:"text,json" default:"text"`
	Level    string `json:"log_level" default:"info"`
	Requests bool   `json:"log_requests"`

	all bool // the start, the end and errors are lines of the log, too
}

// Open returns the log of the flags.
func (f *LogFlags) Open(w io.Writer) (*slog.Logger, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	return f.logger(w), nil
}

func (f *LogFlags) check() error {
	if err := new(slog.Level).UnmarshalText([]byte(f.Level)); err != nil {
		return kit.Usagef("--log-level %q must be debug, info, warn or error", f.Level)
	}
	return nil
}

// logger returns the log. Call it after check.
func (f *LogFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.Level)) // already checked
	opts := &slog.HandlerOptions{Level: level}
	w = visible{w}
	if f.Format == "json" {
		opts.ReplaceAttr = inMillis
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// inMillis writes durations in milliseconds, with the unit in their names, as in the duration_ms of a request.
func inMillis(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"_ms", float64(a.Value.Duration())/float64(time.Millisecond))
	}
	return a
}

// visible is a writer that escapes characters that cannot be seen, and omits passwords of addresses in errors. A
// handler writes each record at once.
type visible struct{ to io.Writer }

// Write implements io.Writer.
func (v visible) Write(line []byte) (int, error) {
	if _, err := io.WriteString(v.to, secret.Redact(string(record.VisibleJSON(line)))); err != nil {
		return 0, err
	}
	return len(line), nil
}
