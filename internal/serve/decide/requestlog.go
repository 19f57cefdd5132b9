package decide

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/weirlimits/weir"
)

// level returns the level of the lines about requests.
func (c *Config) level() slog.Level {
	if c.LogRequests {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// LogsRequests reports whether requests are logged.
func (l *logs) LogsRequests() bool {
	return l.log.Enabled(context.Background(), l.requests)
}

// Request logs a request: who made it, how long it took, and by what it was refused. The attributes are the method, the
// route and the answer.
func (l *logs) Request(
	ctx context.Context, c *Caller, from, id string, began time.Time, err error, at ...slog.Attr,
) {
	at = append(at, slog.String("client", from), slog.String("request_id", id),
		slog.Float64("duration_ms", float64(time.Since(began).Microseconds())/1000))
	if c.Principal != nil && c.Name != "" {
		at = append(at, slog.String("principal", c.Name))
	}
	if by := cmp.Or(c.RefusedBy, refusedBy(c.Err), refusedBy(err)); by != "" {
		at = append(at, slog.String("refused_by", by))
	} else if err != nil {
		at = append(at, slog.Any("error", err))
	}
	l.log.LogAttrs(ctx, l.requests, "request", at...)
}

// refusedBy returns the limits that refused a request, or the reason why its sender is refused; "" for other errors.
func refusedBy(err error) string {
	var over *weir.ExceededError
	var refusal *RefusalError
	var own *Error
	switch {
	case errors.As(err, &over):
		return limitsOf(over)
	case errors.As(err, &refusal):
		return string(refusal.Reason)
	case errors.As(err, &own) && own.Code == Overloaded:
		return "overload"
	}
	return ""
}

// limitsOf returns the names of the limits that refused a request, separated by commas; "queue" if others that wait
// came first.
func limitsOf(over *weir.ExceededError) string {
	var names []string
	for i := range over.Statuses {
		if st := &over.Statuses[i]; st.Refused && !st.Shadow {
			names = append(names, st.Limit)
		}
	}
	if names == nil {
		return "queue"
	}
	return strings.Join(names, ",")
}

// RequestID returns the id that a client gave its request, or a new one if that is empty, longer than 128 bytes or not
// of visible ASCII characters.
func RequestID(given string) string {
	visible := func(r rune) bool { return r > ' ' && r <= '~' }
	if given == "" || len(given) > 128 || strings.IndexFunc(given, func(r rune) bool { return !visible(r) }) >= 0 {
		return rand.Text()
	}
	return given
}
