package policy

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/testkit/clocktest"
)

// TestSuspended checks that a share ends by the machine's clock if the monotonic one stood still meanwhile, and that a
// clock that is set back does not make it last.
func TestSuspended(t *testing.T) {
	t.Parallel()
	for what, until := range map[string]time.Time{
		"suspended": clocktest.Shift(t, time.Now().Add(time.Hour), -2*time.Hour),
		"set back":  clocktest.Shift(t, time.Now().Add(-time.Hour), 2*time.Hour),
	} {
		sh := Share{Num: 1, Den: 2, Until: until}
		if err := (&Policy{Share: &sh}).usable(); !errors.Is(err, ErrShareExpired) {
			t.Errorf("%s: a policy: %v", what, err)
		}
		if err := sh.Late(time.Minute); !errors.Is(err, ErrShareExpired) {
			t.Errorf("%s: a decision: %v", what, err)
		}
	}
	sh := Share{Num: 1, Den: 2, Until: clocktest.Shift(t, time.Now().Add(time.Hour), -time.Minute)}
	if err := errors.Join((&Policy{Share: &sh}).usable(), sh.Late(0)); err != nil {
		t.Errorf("suspended for less: %v", err)
	}
}
