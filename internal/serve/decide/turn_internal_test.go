package decide

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/admission"
)

// TestRareCallerBesideAFlood checks that a caller that calls rarely waits no longer beside a flood than one that calls
// often: no longer than the calls to a store nearby take that are given to it at once, here 32 of 25 µs, one at a time.
func TestRareCallerBesideAFlood(t *testing.T) {
	t.Parallel()
	for _, gap := range []time.Duration{100 * time.Millisecond, 1500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			const took = 25 * time.Microsecond
			slots := admission.Varying(func(alone bool) int { return atOnce(took, alone) }, DefaultInflight)
			store := make(chan struct{}, 1)
			call := func(who string) {
				if slots.Take(t.Context(), who, 1, time.Second) == 0 {
					t.Errorf("%s: no turn", who)
					return
				}
				store <- struct{}{}
				time.Sleep(took)
				<-store
				slots.Free(who)
			}
			call("rare") // at its first call, a flood may be alone
			flooding, end := context.WithCancel(t.Context())
			var flood sync.WaitGroup
			for range 1000 {
				flood.Go(func() {
					for flooding.Err() == nil {
						call("flood")
					}
				})
			}
			for range 3 {
				time.Sleep(gap)
				began := time.Now()
				call("rare")
				if waited := time.Since(began) - took; waited > leastAtOnce*took {
					t.Errorf("called every %s: waited %s", gap, waited)
				}
			}
			end()
			flood.Wait()
		})
	}
}
