// Package ratelog limits how often a log line is written, for messages that any client can cause.
package ratelog

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// New returns a logger that writes at most one line per second to log and drops all others.
func New(log *slog.Logger) *slog.Logger { return Every(time.Second, log) }

// Every returns a logger that writes at most one line per interval to log and drops all others.
func Every(interval time.Duration, log *slog.Logger) *slog.Logger {
	l := &limit{interval: interval, began: time.Now()}
	l.last.Store(-int64(interval))
	return slog.New(handler{log.Handler(), l})
}

// handler drops lines in Enabled, before their attributes are evaluated. Loggers call it once per line.
type handler struct {
	slog.Handler
	*limit
}

// limit is the limit of a handler and those derived from it.
type limit struct {
	interval time.Duration
	began    time.Time
	last     atomic.Int64 // when a line was last written, in ns since began
}

// Enabled reports whether a line may be written now.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	if !h.Handler.Enabled(ctx, level) {
		return false
	}
	now, last := int64(time.Since(h.began)), h.last.Load()
	return now-last >= int64(h.interval) && h.last.CompareAndSwap(last, now)
}

// WithAttrs returns a handler that shares the limit.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.limit}
}

// WithGroup returns a handler that shares the limit.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.limit}
}

// Sources limits the lines about many sources: of each, at most one line per second, and of all together at most
// [MaxLines] per second, so that a source that causes many does not hide the others. It needs no more memory, however
// many sources there are: two of them may by chance share their line. The zero value is ready to use.
type Sources struct {
	mu     sync.Mutex
	last   [256]time.Time // when a line about a source was last written, by hash
	second time.Time      // began with the first of the lines that count
	lines  int
	left   int64 // how many lines were left out since the last one that was written
}

// MaxLines is how many lines about all sources are written per second.
const MaxLines = 10

// Allow reports whether a line about a source may be written now, and how many lines were left out before it.
func (s *Sources) Allow(source string) (leftOut int64, ok bool) {
	h := maphash.String(seed, source) % uint64(len(s.last))
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.second) >= time.Second {
		s.second, s.lines = now, 0
	}
	if now.Sub(s.last[h]) < time.Second || s.lines >= MaxLines {
		s.left++
		return 0, false
	}
	s.last[h], s.lines = now, s.lines+1
	leftOut, s.left = s.left, 0
	return leftOut, true
}

var seed = maphash.MakeSeed()
