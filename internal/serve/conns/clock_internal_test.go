package conns

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/testkit/clocktest"
)

// TestClockSetBack checks that a connection for which there was no room is not refused for longer if the machine's clock
// is set back.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	l := Listen(nil, Bounds{})
	c := &Conn{l: l, pool: &l.authenticated}
	c.refused.until.Store(int64(time.Hour))
	if c.Authenticate("a") {
		t.Error("not refused")
	}
	l.began = clocktest.Shift(t, l.began.Add(-time.Hour), 2*time.Hour)
	if !c.Authenticate("a") {
		t.Error("still refused when the time is over")
	}
}
