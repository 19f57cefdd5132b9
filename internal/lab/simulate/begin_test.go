package simulate_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/lab/simulate"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// away is a store that does not answer for a while.
type away struct {
	store.Store

	dark atomic.Bool
}

func (a *away) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if a.dark.Load() {
		<-ctx.Done()
		return store.Outcome{}, ctx.Err()
	}
	return a.Store.Take(ctx, t)
}

func (a *away) Settle(ctx context.Context, s store.Settle) (store.Outcome, error) {
	if a.dark.Load() {
		<-ctx.Done()
		return store.Outcome{}, ctx.Err()
	}
	return a.Store.Settle(ctx, s)
}

// TestAgreesInOutage checks that limiters that lose their store, and those that join during the outage, admit what the
// model predicts.
func TestAgreesInOutage(t *testing.T) {
	t.Parallel()
	burst := weir.PerSecond("rps", 10).WithBurst(400)
	outage := []simulate.Outage{{From: time.Second, To: 13 * time.Second}}
	for _, tt := range []struct {
		name string
		cfg  simulate.Config
	}{
		{"all are there", simulate.Config{Limit: burst, Processes: 20, Rate: 200, For: 20 * time.Second, Outages: outage}},
		{"some join", simulate.Config{Limit: burst, Processes: 20, Begin: 2, JoinFrom: 2 * time.Second, JoinTo: 4 * time.Second, Rate: 200, For: 20 * time.Second, Outages: outage}},
		{"none is there before", simulate.Config{Limit: burst, Processes: 20, Rate: 200, For: 10 * time.Second, Outages: []simulate.Outage{{To: 5 * time.Second}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := tt.cfg
			cfg.Seed, cfg.P50, cfg.P99, cfg.Within, cfg.Capacity, cfg.Heartbeat = 1, time.Millisecond, time.Millisecond, 20*time.Millisecond, 1e9, time.Nanosecond
			model, err := simulate.Run(t.Context(), cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				asked, admitted, degraded := lose(t, cfg)
				t.Logf("of %d, model admitted %d, degraded %d; limiters %d, %d", asked, model.Admitted, model.DegradedAdmitted, admitted, degraded)
				if asked != model.Asked {
					t.Fatalf("the limiters were asked %d times, the model %d times", asked, model.Asked)
				}
				far := func(a, b int, off float64) bool { return math.Abs(float64(a-b)) > max(8, off*float64(b)) }
				if far(model.DegradedAdmitted, degraded, 0.05) || far(model.Admitted, admitted, 0.15) { // which process pays when is random
					t.Error("the model is far off")
				}
			})
		})
	}
}

// lose makes limiters do what a scenario contains.
func lose(t *testing.T, cfg simulate.Config) (asked, admitted, degraded int) {
	t.Helper()
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	inner := memory.New(nil)
	begun := time.Now()
	joined := func() int {
		since := time.Since(begun)
		if since < cfg.JoinFrom || cfg.Begin == cfg.Processes {
			return cfg.Begin
		}
		return min(cfg.Processes, cfg.Begin+int(float64(cfg.Processes-cfg.Begin)*float64(since-cfg.JoinFrom)/float64(cfg.JoinTo-cfg.JoinFrom)))
	}
	st := &away{Store: inner}
	var fleet []*weir.Limiter
	join := func() {
		for len(fleet) < joined() {
			lim, err := weir.New(weir.Config{
				Store: st, OnUnavailable: weir.OnUnavailableLocal, DecideWithin: cfg.Within, StoreTimeout: 2 * time.Second, CacheTTL: time.Hour, Instances: joined,
			})
			if err != nil {
				t.Fatal(err)
			}
			fleet = append(fleet, lim)
		}
	}
	join()
	defer func() {
		for _, lim := range fleet {
			if err := lim.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	if err := admin.New(fleet[0]).Limits.Set(t.Context(), admin.Scope{}, cfg.Limit); err != nil {
		t.Fatal(err)
	}
	arrivals := rand.New(rand.NewPCG(cfg.Seed, 1))
	var yes, without atomic.Int64
	var all sync.WaitGroup
	for next := begun; ; {
		next = next.Add(time.Duration(arrivals.ExpFloat64() / cfg.Rate * 1e9))
		if next.Sub(begun) > cfg.For {
			break
		}
		time.Sleep(time.Until(next)) // real time: none, all callers are in a bubble
		join()
		since := time.Since(begun)
		st.dark.Store(since >= cfg.Outages[0].From && since < cfg.Outages[0].To)
		lim := fleet[arrivals.IntN(joined())]
		asked++
		all.Go(func() {
			lease, err := lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": cfg.Tokens}})
			switch {
			case err == nil && lease.Decision().Degraded:
				without.Add(1)
				yes.Add(1)
			case err == nil:
				yes.Add(1)
			case !errors.Is(err, weir.ErrExceeded):
				t.Error(err)
			}
		})
	}
	all.Wait()
	return asked, int(yes.Load()), int(without.Load())
}
