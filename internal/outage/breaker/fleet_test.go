package breaker_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/outage/breaker"
)

// TestFleet: 100 instances in a one-minute outage do not probe together, and recover soon after it.
func TestFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			instances = 100
			pause     = 5 * time.Second
			outage    = time.Minute
			slot      = 100 * time.Millisecond
		)
		begun := time.Now()
		var mu sync.Mutex
		probes := make(map[time.Duration]int) // by time slot
		var back []time.Duration              // delays after the outage
		var wg sync.WaitGroup
		for i := range instances {
			b := breaker.New(breaker.Config{Cooldown: pause, Uniform: rand.New(rand.NewPCG(uint64(i), 3)).Float64})
			trip(t, b) // all at once
			wg.Go(func() {
				for {
					c, ok := b.Begin(anybody)
					if !ok {
						time.Sleep(10 * time.Millisecond)
						continue
					}
					at := time.Since(begun)
					mu.Lock()
					probes[at/slot]++
					mu.Unlock()
					time.Sleep(time.Millisecond)
					if at < outage {
						c.Done(anybody(), breaker.Failed)
						continue
					}
					c.Done(anybody(), breaker.Succeeded)
					mu.Lock()
					back = append(back, at-outage)
					mu.Unlock()
					return
				}
			})
		}
		wg.Wait()
		const uniform = instances * slot / (pause / 5)
		for at, n := range probes {
			if n > 25*int(uniform)/10 {
				t.Errorf("%d probes in slot %d", n, at)
			}
		}
		if len(probes) < 30 {
			t.Errorf("probes in %d slots", len(probes))
		}
		slices.Sort(back)
		if d := back[94]; d > pause*6/5+20*time.Millisecond {
			t.Errorf("95 %% were back after %s", d)
		}
	})
}
