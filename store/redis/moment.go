package redis

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis/internal/layout"
	"github.com/weirlimits/weir/store/redis/internal/settings"
)

// moment is the time for which a call carries the windows of quotas. A script knows no calendar. If the server's time
// is in other windows, or a bucket has further quotas, the script writes nothing and answers W; the call is then
// repeated with the windows that it needs.
type moment struct {
	now     int64
	further []*store.Limit // limits of buckets that the call does not name
}

// others encodes the limits that the call does not name.
func (m *moment) others() string {
	var text []byte
	for _, l := range m.further {
		text = layout.AppendLimit(text, l, m.now)
	}
	return string(text)
}

// further adds to what the calls of a run do not name what one of them does not.
func further(all, others string) string {
	if strings.Contains(all, others) {
		return all
	}
	return all + others
}

// maxCalls is how often a call is repeated. The first time suffices, unless a window ends meanwhile, or another bucket
// is further ahead in time.
const maxCalls = 8

var errWindows = errors.New("the windows of quotas kept changing")

// hand is what is known of the server's clock.
type hand struct {
	local func() time.Time
	ahead atomic.Int64 // of this process's, in ns, when a script last answered W
}

// time returns what the server's clock is expected to read.
func (h *hand) time() int64 { return clock.Add(clock.Nanos(h.local()), h.ahead.Load()) }

// reckon makes a call, and repeats it with other windows as long as the answer is W. All calls together are within the
// timeout.
func (h *hand) reckon(
	ctx context.Context, timeout time.Duration, call func(context.Context, *moment) (answer string, err error),
) (string, error) {
	began, m := time.Now(), &moment{now: h.time()}
	raw, err := call(ctx, m)
	if err != nil || !outside(raw) {
		return raw, err
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(timeout))
	defer cancel()
	for range maxCalls {
		more, err := layout.ParseLimits(raw[13:])
		if err != nil {
			return "", &store.Error{Op: "take", Err: err, Hint: settings.HintFormat, Extent: store.ExtentKey}
		}
		m.now, m.further = layout.Read64(raw[1:]), append(m.further, more...)
		h.ahead.Store(clock.Sub(m.now, clock.Nanos(h.local())))
		if raw, err = call(ctx, m); err != nil || !outside(raw) {
			return raw, err
		}
	}
	return "", &store.Error{Op: "take", Err: errWindows, Hint: "retry", Extent: store.ExtentKey}
}

// outside reports whether an answer is W: the time, the length of the limits, and the limits.
func outside(raw string) bool { return len(raw) >= 13 && raw[0] == 'W' }
