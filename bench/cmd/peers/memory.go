package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// keys are ids and the order in which workers use them.
type keys struct {
	ids   []string
	order []uint32
	at    [64]cursor // by worker
}

// cursor fills a cache line, or two that are fetched together, so that workers do not share one.
type cursor struct {
	next int
	_    [120]byte
}

func newKeys(n int) *keys {
	k := &keys{ids: make([]string, n), order: make([]uint32, 1<<18)}
	for i := range k.ids {
		k.ids[i] = "user:" + strconv.Itoa(10_000_000+i)
	}
	r := rand.New(rand.NewPCG(2024, 1))
	for i := range k.order {
		k.order[i] = uint32(r.IntN(n))
	}
	for i := range k.at {
		k.at[i].next = i * 4096
	}
	return k
}

func (k *keys) id(worker int) string {
	c := &k.at[worker]
	c.next++
	return k.ids[k.order[c.next&(len(k.order)-1)]]
}

func memoryRows() (rows []row) {
	parallel := runtime.GOMAXPROCS(0)
	for _, r := range []struct {
		name          string
		keys, workers int
	}{
		{"allow, 1 key, 1 goroutine", 1, 1},
		{"allow, 1 key, " + strconv.Itoa(parallel) + " goroutines", 1, parallel},
		{"allow, 100,000 keys, " + strconv.Itoa(parallel) + " goroutines", 100_000, parallel},
	} {
		// open returns, for a number of keys, a function that requests one token of a key.
		local := func(name string, open func(*env, int) (func(context.Context, string) error, error)) contender {
			return contender{name, func(e *env) (drive, error) {
				n := r.keys
				if n > 1 {
					n = e.few(n, 1000)
				}
				ask, err := open(e, n)
				if err != nil {
					return nil, err
				}
				ks := newKeys(n)
				for range 2 { // use every key before anything is measured
					for _, id := range ks.ids {
						if err := ask(e.ctx, id); err != nil {
							return nil, err
						}
					}
				}
				work := batched(e, r.workers, func(ctx context.Context, w int) error { return ask(ctx, ks.id(w)) })
				return func(_ int, length time.Duration) (sample, error) { return work(length / 2), nil }, nil
			}}
		}
		rows = append(rows, row{partMemory, r.name, []contender{
			local("weir", askWeir), local("go-limiter", askGoLimiter), local("throttled", askThrottled),
			local("x/time/rate", askXTime), local("uber/ratelimit", askUber),
		}})
	}
	return rows
}

func askWeir(e *env, _ int) (func(context.Context, string) error, error) {
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		return nil, err
	}
	e.defers(lim.Close)
	err = admin.New(lim).Limits.Set(e.ctx, admin.Scope{}, weir.PerSecond("rps", 1_000_000).WithBurst(weir.MaxTokens))
	return func(ctx context.Context, id string) error {
		_, err := lim.Allow(ctx, id, "api")
		return err
	}, err
}

func askGoLimiter(e *env, _ int) (func(context.Context, string) error, error) {
	st, err := memorystore.New(&memorystore.Config{Tokens: 1 << 60, Interval: time.Second})
	if err != nil {
		return nil, err
	}
	e.defers(func() error { return st.Close(context.WithoutCancel(e.ctx)) })
	return func(ctx context.Context, id string) error {
		_, _, _, _, err := st.Take(ctx, id)
		return err
	}, nil
}

func askThrottled(_ *env, n int) (func(context.Context, string) error, error) {
	st, err := memstore.NewCtx(2 * n)
	if err != nil {
		return nil, err
	}
	lim, err := throttled.NewGCRARateLimiterCtx(st, throttled.RateQuota{
		MaxRate: throttled.PerSec(1_000_000), MaxBurst: 1 << 40,
	})
	if err != nil {
		return nil, err
	}
	lim.SetMaxCASAttemptsLimit(1 << 30) // with all callers on one key it would give up
	return func(ctx context.Context, id string) error {
		_, _, err := lim.RateLimitCtx(ctx, id, 1)
		return err
	}, nil
}

// askXTime keeps a limiter for each key in a map, as users of x/time with keys do; for one key it needs no map.
func askXTime(_ *env, n int) (func(context.Context, string) error, error) {
	if n == 1 {
		lim := rate.NewLimiter(1_000_000, 1<<50)
		return func(context.Context, string) error { lim.Allow(); return nil }, nil
	}
	var byKey sync.Map
	return func(_ context.Context, id string) error {
		lim, ok := byKey.Load(id)
		if !ok {
			lim, _ = byKey.LoadOrStore(id, rate.NewLimiter(1_000_000, 1<<50))
		}
		lim.(*rate.Limiter).Allow()
		return nil
	}, nil
}

// askUber has a token a nanosecond, because at a slower rate it would wait.
func askUber(_ *env, n int) (func(context.Context, string) error, error) {
	if n == 1 {
		lim := ratelimit.New(1_000_000_000)
		return func(context.Context, string) error { lim.Take(); return nil }, nil
	}
	var byKey sync.Map
	return func(_ context.Context, id string) error {
		lim, ok := byKey.Load(id)
		if !ok {
			lim, _ = byKey.LoadOrStore(id, ratelimit.New(1_000_000_000))
		}
		lim.(ratelimit.Limiter).Take()
		return nil
	}, nil
}
