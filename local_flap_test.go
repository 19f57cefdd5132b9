package weir_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/store/memory"
)

// A store that flaps, in any pattern, costs about one burst beyond the limit, not one per flap: tokens admitted without
// it are charged, even if it fails again before that.
func TestLocalFlaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ up, down time.Duration }{
		{time.Second, time.Second}, {2 * time.Second, 2 * time.Second}, {200 * time.Millisecond, 1300 * time.Millisecond}, {150 * time.Millisecond, 850 * time.Millisecond},
	} {
		t.Run(c.up.String()+" of "+(c.up+c.down).String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const rate = 10
				o := &outage{Store: memory.New(nil)}
				fleet, end := fleetOfTwo(t, o, time.Hour)
				defer end()
				must(t, admin.New(fleet[0]).Limits.Set(t.Context(), admin.Scope{}, weir.PerSecond("rps", rate)))
				began := time.Now()
				admitted, degraded := 0, 0
				for since := time.Duration(0); since < 2*time.Minute; since = time.Since(began) {
					o.dark.Store(since%(c.up+c.down) >= c.up)
					for _, lim := range fleet {
						lease, err := lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": 1}})
						if err == nil {
							admitted++
							if lease.Decision().Degraded {
								degraded++
							}
						}
					}
					time.Sleep(10 * time.Millisecond)
				}
				took := time.Since(began)
				o.dark.Store(false)
				limit := rate + int(rate*took.Seconds())
				t.Logf("admitted %d (%d degraded) of %d; %+v", admitted, degraded, limit, parts.Of(fleet[0]).Outage.Stats())
				if admitted > limit+6*rate {
					t.Errorf("admitted %d in %v, the limit allows %d", admitted, took, limit)
				}
			})
		})
	}
}

// fleetOfTwo returns two limiters that share a store which can go down, and a function that closes them.
func fleetOfTwo(t *testing.T, o *outage, ttl time.Duration) (fleet []*weir.Limiter, end func()) {
	t.Helper()
	for range 2 {
		lim, err := weir.New(weir.Config{
			Store: o, OnUnavailable: weir.OnUnavailableLocal, DecideWithin: 10 * time.Millisecond, StoreTimeout: 50 * time.Millisecond, CacheTTL: ttl,
			Cooldown: 100 * time.Millisecond, Instances: func() int { return 2 },
		})
		must(t, err)
		fleet = append(fleet, lim)
	}
	return fleet, func() {
		for _, lim := range fleet {
			must(t, lim.Close())
		}
	}
}
