// Package ratelog limits how often a log line is written, for messages that any client can cause.
package ratelog

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// New returns a logger that writes at most one line per second to log and drops all others.
func New(log *slog.Logger) *slog.Logger { return slog.New(Handler(log)) }

// Handler returns the handler of [New].
func Handler(log *slog.Logger) slog.Handler { return handler{log.Handler(), new(atomic.Int64)} }

// handler drops lines in Enabled, before their attributes are evaluated. Loggers call it once per line.
type handler struct {
	slog.Handler
	last *atomic.Int64 // when a line was last written, in ns
}

// Enabled reports whether a line may be written now.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	if !h.Handler.Enabled(ctx, level) {
		return false
	}
	now, last := time.Now().UnixNano(), h.last.Load()
	return now-last >= int64(time.Second) && h.last.CompareAndSwap(last, now)
}

// WithAttrs returns a handler that shares the limit.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.last}
}

// WithGroup returns a handler that shares the limit.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.last}
}
