package weir_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// outage is a store that a fleet shares and that goes dark.
type outage struct {
	store.Store // only Take and Settle go dark: the limits are known

	dark atomic.Bool
	mu   sync.Mutex
	asks []time.Time // times of the calls while it is dark
}

func (o *outage) ask(ctx context.Context) error {
	if !o.dark.Load() {
		return nil
	}
	o.mu.Lock()
	o.asks = append(o.asks, time.Now())
	o.mu.Unlock()
	return hang(ctx)
}

func (o *outage) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if err := o.ask(ctx); err != nil {
		return store.Outcome{}, err
	}
	return o.Store.Take(ctx, t)
}

func (o *outage) Settle(ctx context.Context, s store.Settle) (store.Outcome, error) {
	if err := o.ask(ctx); err != nil {
		return store.Outcome{}, err
	}
	return o.Store.Settle(ctx, s)
}

// TestFleetOutage: a hundred processes, each asked ten times a second under a limit that allows a hundredth of that, lose
// their store for a minute.
func TestFleetOutage(t *testing.T) {
	t.Parallel()
	const (
		instances = 100
		limit     = 10 * instances // per minute
		every     = 100 * time.Millisecond
		cooldown  = 5 * time.Second
		down      = time.Minute
	)
	synctest.Test(t, func(t *testing.T) {
		o := &outage{Store: memory.New(nil)}
		var fleet []*weir.Limiter
		for range instances {
			lim, err := weir.New(weir.Config{
				Store: o, OnUnavailable: weir.OnUnavailableLocal, DecideWithin: 10 * time.Millisecond, CacheTTL: time.Hour,
				Cooldown: cooldown, Instances: func() int { return instances },
			})
			must(t, err)
			fleet = append(fleet, lim)
		}
		defer func() {
			for _, lim := range fleet {
				must(t, lim.Close())
			}
		}()
		must(t, admin.New(fleet[0]).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", limit)))

		var admitted, other atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var all sync.WaitGroup
		for i, lim := range fleet {
			all.Go(func() {
				time.Sleep(every * time.Duration(i) / instances)
				tick := time.NewTicker(every)
				defer tick.Stop()
				for ctx.Err() == nil {
					<-tick.C
					began := time.Now()
					_, err := lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: one})
					switch {
					case err == nil:
						admitted.Add(1)
					case !errors.Is(err, weir.ErrExceeded):
						other.Add(1)
					}
					if time.Since(began) > 10*time.Millisecond {
						other.Add(1)
					}
				}
			})
		}
		time.Sleep(30 * time.Second) // after half a minute, the burst and the rate are all spent
		before := admitted.Load()
		o.dark.Store(true)
		began := time.Now()
		time.Sleep(down)
		o.dark.Store(false)
		during := admitted.Load() - before
		closed := func() (n int) {
			for _, lim := range fleet {
				if parts.Of(lim).Outage.Stats().Breaker == "closed" {
					n++
				}
			}
			return n
		}
		back := time.Now()
		for closed() < instances*95/100 && time.Since(back) < 10*cooldown {
			time.Sleep(every)
		}
		took := time.Since(back)
		time.Sleep(down)
		stop()
		all.Wait()
		whole := admitted.Load()

		if during > limit*12/10 || during < limit*8/10 {
			t.Errorf("admitted %d in a minute without the store, the limit allows %d", during, limit)
		}
		if other.Load() > 0 {
			t.Errorf("%d answers were late, or none", other.Load())
		}
		if took > cooldown*12/10+2*every {
			t.Errorf("95 %% asked again only after %v", took)
		}
		if allowed := int64(limit + limit*(30+60+6+60)/60); whole > allowed*11/10 {
			t.Errorf("admitted %d from before to after, the limit allows %d", whole, allowed)
		}
		most := 0
		var perWindow [down / (100 * time.Millisecond)]int
		for _, at := range o.asks {
			if since := at.Sub(began); since >= time.Second && since < down { // in the first second they detect the outage
				w := since / (100 * time.Millisecond)
				perWindow[w]++
				most = max(most, perWindow[w])
			}
		}
		if bound := 2.5 * 0.1 * instances / (0.2 * cooldown.Seconds()); float64(most) > bound || most == 0 {
			t.Errorf("%d probes in 100 ms, at most %g", most, bound)
		}
		t.Logf("%d admitted of %d; at most %d probes in 100 ms, %d calls in all; asked again after %v; %d of %d in all",
			during, limit, most, len(o.asks), took, whole, limit+limit*(30+60+6+60)/60)
	})
}

// lasting is an outage that outlives the processes that use it.
type lasting struct{ *outage }

func (lasting) Close() error { return nil }

// TestFleetRestarts: processes are replaced repeatedly while the store is away, as in a rollout. A new process does not
// hand out another burst.
func TestFleetRestarts(t *testing.T) {
	t.Parallel()
	const (
		instances = 10
		limit     = 600 // per minute
		down      = time.Minute
		restarts  = 6
	)
	synctest.Test(t, func(t *testing.T) {
		o := &outage{Store: memory.New(nil)}
		begin := func() *weir.Limiter {
			lim, err := weir.New(weir.Config{
				Store: lasting{o}, OnUnavailable: weir.OnUnavailableLocal, DecideWithin: 10 * time.Millisecond, StoreTimeout: 20 * time.Millisecond, CacheTTL: time.Hour,
				Instances: func() int { return instances },
			})
			must(t, err)
			return lim
		}
		fleet := make([]*weir.Limiter, instances)
		for i := range fleet {
			fleet[i] = begin()
		}
		must(t, admin.New(fleet[0]).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", limit)))
		admitted := 0
		ask := func(lim *weir.Limiter) {
			if _, err := lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: one}); err == nil {
				admitted++
			}
		}
		for range 2 * limit { // the burst is spent
			ask(fleet[0])
		}
		o.dark.Store(true)
		admitted = 0
		began := time.Now()
		for n := 0; time.Since(began) < down; {
			if time.Since(began) >= time.Duration(n)*down/restarts {
				n++
				for i, lim := range fleet {
					must(t, lim.Close())
					fleet[i] = begin()
				}
			}
			for _, lim := range fleet {
				ask(lim)
			}
			time.Sleep(50 * time.Millisecond)
		}
		took := time.Since(began)
		if most := int(limit*took.Minutes()*12/10) + restarts*instances; admitted > most || admitted < limit/2 {
			t.Errorf("admitted %d in %v, of %d and a token for each process that began: %d", admitted, took, limit, most)
		}
		t.Logf("%d admitted in %v of %d a minute", admitted, took, limit)
		for _, lim := range fleet {
			must(t, lim.Close())
		}
		must(t, o.Close())
	})
}
