package cells_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

// Two processes of a cell on one Redis use one share. When other cells join, the share falls in both processes at once,
// without a fresh burst in either.
func TestCellOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	registry := memory.New(nil)
	t.Cleanup(func() { registry.Close() })
	reg := cells.Registry{Catalog: registry}
	if err := reg.Set(t.Context(), func(s *cells.Settings) { s.Mode = cells.Available }); err != nil {
		t.Fatal(err)
	}
	changes := make(chan struct{}, 1000)
	start := func(cell string, st store.Store) (*cells.Agent, *weir.Limiter) {
		var lim atomic.Pointer[weir.Limiter]
		agent, err := cells.New(cells.Config{Registry: registry, Local: st, Cell: cell, Beat: 100 * time.Millisecond, Changed: func() {
			if l := lim.Load(); l != nil {
				parts.Of(l).Policies.SharesChanged()
			}
			changes <- struct{}{}
		}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := weir.New(weir.Config{Store: st})
		if err != nil {
			t.Fatal(err)
		}
		parts.Of(l).Policies.Use(agent, nil)
		lim.Store(l)
		if err := agent.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = agent.Close()
			_ = l.Close()
		})
		return agent, l
	}
	onRedis := func() store.Store {
		st, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + server.Addr})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	until := func(share int64, agents ...*cells.Agent) {
		t.Helper()
		for late := time.After(time.Minute); ; { //nolint:forbidigo // the test ends soon
			done := true
			for _, a := range agents {
				done = done && a.Share("default").Num == share
			}
			if done {
				return
			}
			select {
			case <-changes:
			case <-late: // real time: Redis has no other clock
				t.Fatalf("the share is %d, want %d", agents[0].Share("default").Num, share)
			}
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := reg.Join(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	agent1, lim1 := start("a", onRedis())
	agent2, lim2 := start("a", onRedis())
	if err := admin.New(lim1).Limits.Set(t.Context(), admin.Scope{}, weir.PerDay("rpd", 120)); err != nil {
		t.Fatal(err)
	}
	until(cells.Whole, agent1, agent2)
	admitted := func() int64 {
		var n atomic.Int64
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for range 50 {
					ok, err := []*weir.Limiter{lim1, lim2}[i%2].Allow(context.WithoutCancel(t.Context()), "e", "api")
					if err != nil {
						t.Error(err)
						return
					}
					if ok {
						n.Add(1)
					}
				}
			})
		}
		wg.Wait()
		return n.Load()
	}
	for range 50 {
		if ok, err := lim2.Allow(t.Context(), "e", "api"); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	_, limB := start("b", memory.New(nil))
	defer limB.Close()
	until(cells.Whole/2, agent1, agent2)
	if n := admitted(); n != 10 {
		t.Errorf("%d are admitted by a share of 60 of which 50 are spent", n)
	}
	_, _ = start("c", memory.New(nil))
	until(cells.Whole/3, agent1, agent2)
	if n := admitted(); n != 0 {
		t.Errorf("%d are admitted by a share of 40 of which 60 are spent", n)
	}
}
