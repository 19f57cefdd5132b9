package weir_test

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store/redis"
)

// TestRedisOutage kills a real server, and freezes it, under load. It asserts that every call was answered and that no
// more was admitted than the decisions said; times are only logged. WEIR_OUTAGE=full runs 5 s and 15 s with 64 callers,
// as make outage does.
func TestRedisOutage(t *testing.T) {
	t.Parallel()
	killed, frozen, callers := 500*time.Millisecond, time.Second, 16
	within := 300 * time.Millisecond // for a machine that is busy with other tests
	if os.Getenv("WEIR_OUTAGE") == "full" {
		killed, frozen, callers, within = 5*time.Second, 15*time.Second, 64, 12*time.Millisecond
	}
	srv := redistest.Start(t)
	st, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + srv.Addr})
	must(t, err)
	lim, err := weir.New(weir.Config{Store: st, OnUnavailable: weir.OnUnavailableLocal, DecideWithin: within})
	must(t, err)
	defer func() { must(t, lim.Close()) }()
	const rate = 1000 // per second, and the burst
	must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerSecond("rps", rate)))

	req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": 1}}
	for err := errors.New("cold"); err != nil && t.Context().Err() == nil; { // reads the limits, however long that takes
		_, err = lim.Acquire(t.Context(), req)
	}

	var admitted, degraded, unanswered atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	defer all.Wait()
	defer stop.Store(true)
	times := make([][]time.Duration, callers)
	began := time.Now()
	for i := range callers {
		all.Go(func() {
			for !stop.Load() {
				began := time.Now()
				lease, err := lim.Acquire(t.Context(), req)
				times[i] = append(times[i], time.Since(began))
				var over *weir.ExceededError
				switch {
				case err == nil:
					admitted.Add(1)
					if lease.Decision().Degraded {
						degraded.Add(1)
					}
				case errors.As(err, &over):
					if over.Degraded {
						degraded.Add(1)
					}
				case errors.Is(err, weir.ErrOverloaded): // it waited for others of this process
				default:
					unanswered.Add(1)
					t.Log(err)
				}
				time.Sleep(time.Millisecond) // real time: the server is real
			}
		})
	}
	time.Sleep(200 * time.Millisecond) // real time: the server is real
	breakFor(t, lim, &degraded, "frozen", frozen,
		func() { must(t, srv.Signal(syscall.SIGSTOP)) }, func() { must(t, srv.Signal(syscall.SIGCONT)) })
	breakFor(t, lim, &degraded, "killed", killed, srv.Kill, func() { must(t, srv.Restart()) })
	time.Sleep(200 * time.Millisecond) // real time: the server is real
	stop.Store(true)
	all.Wait()
	took := time.Since(began)

	flat := slices.Sorted(func(yield func(time.Duration) bool) {
		for _, ts := range times {
			for _, d := range ts {
				if !yield(d) {
					return
				}
			}
		}
	})
	at := func(q float64) time.Duration { return flat[int(q*float64(len(flat)-1))].Round(10 * time.Microsecond) }
	t.Logf("%d calls: p50 %v, p99 %v, p99.9 %v, max %v; %d admitted in %v; %+v",
		len(flat), at(0.5), at(0.99), at(0.999), at(1), admitted.Load(), took.Round(time.Millisecond), parts.Of(lim).Outage.Stats())
	if unanswered.Load() > 0 {
		t.Errorf("%d calls were not answered", unanswered.Load())
	}
	// The burst, the bound stated in the decisions for each of the two outages, and another burst: a killed server has
	// forgotten its buckets.
	if most := int64(rate*took.Seconds()) + 4*rate; admitted.Load() > most {
		t.Errorf("admitted %d, at most %d", admitted.Load(), most)
	}
}

// breakFor breaks a store for a while, and waits until it is asked again.
func breakFor(t *testing.T, lim *weir.Limiter, degraded *atomic.Int64, name string, broken time.Duration, begin, end func()) {
	t.Helper()
	degraded.Store(0)
	begin()
	time.Sleep(broken) // real time: the server is real
	end()
	back := time.Now()
	for parts.Of(lim).Outage.Stats().Breaker != "closed" {
		if time.Since(back) > time.Minute {
			t.Fatalf("%s: not asked again: %+v", name, parts.Of(lim).Outage.Stats())
		}
		time.Sleep(time.Millisecond) // real time: the server is real
	}
	t.Logf("%s for %v: %d degraded answers, asked again after %v", name, broken, degraded.Load(), time.Since(back).Round(time.Millisecond))
	if degraded.Load() == 0 {
		t.Errorf("%s: the store was never missed", name)
	}
}
