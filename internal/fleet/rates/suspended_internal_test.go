package rates

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
	"github.com/weirlimits/weir/internal/testkit/clocktest"
)

// TestSuspended checks that a lease ends by the machine's clock if the monotonic one stood still meanwhile. With its next
// report at the latest, the worker falls back to its safe share.
func TestSuspended(t *testing.T) {
	t.Parallel()
	var shares []int64
	w := &Worker{
		id: "w", expiry: time.NewTimer(time.Hour),
		cfg: Config{
			Refresh: 5 * time.Second, Registry: &fleet.Memory{}, Budgets: []Budget{{Name: "b", Limit: 1000}},
			Demand: func(int) (want, used int64) { return -1, 0 }, Granted: func(all []int64) { shares = slices.Clone(all) },
		},
		share: share{
			granted: true, rate: []int64{500}, safe: []int64{250}, current: make([]int64, 1),
			expires: clocktest.Shift(t, time.Now().Add(time.Hour), -2*time.Hour),
		},
	}
	p := &protocol{w: w, sent: make(map[uint64]time.Time)}
	w.member = fleet.NewMember(fleet.Place{Registry: w.cfg.Registry, ID: w.id}, p)
	if got := w.share.usable(0, time.Now()); got != 250 {
		t.Errorf("%d may be used, want the safe share", got)
	}
	if w.Status().Granted {
		t.Error("the lease counts as valid")
	}
	if _, err := p.Report(t.Context(), 1); err != nil || !slices.Equal(shares, []int64{250}) {
		t.Errorf("the share is %d after a report, want the safe one; %v", shares, err)
	}
}
