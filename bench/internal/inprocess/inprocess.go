// Package inprocess opens limiters without a store, or in weir's case with one in memory.
package inprocess

import (
	"context"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// Resource is the resource of all requests to weir.
const Resource = "gpt-4"

// Ask requests one token of a key.
type Ask func(ctx context.Context, id string) (bool, error)

// Limiter returns weir over a store, with limits for every entity.
func Limiter(e *harness.Env, st store.Store, cfg weir.Config, limits ...weir.Limit) (*weir.Limiter, error) {
	cfg.Store = st
	lim, err := weir.New(cfg)
	if err != nil {
		return nil, err
	}
	e.Defer(lim.Close)
	return lim, admin.New(lim).Limits.Set(e.Ctx, admin.Scope{}, limits...)
}

// Weir asks weir with a limit for each key.
func Weir(e *harness.Env, limit weir.Limit) (Ask, error) {
	lim, err := Limiter(e, memory.New(nil), weir.Config{}, limit)
	return func(ctx context.Context, id string) (bool, error) { return lim.Allow(ctx, id, Resource) }, err
}

// GoLimiter has tokens each second for each key.
func GoLimiter(e *harness.Env, tokens uint64) (Ask, error) {
	st, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: time.Second})
	if err != nil {
		return nil, err
	}
	e.Defer(func() error { return st.Close(context.WithoutCancel(e.Ctx)) })
	return func(ctx context.Context, id string) (bool, error) {
		_, _, _, ok, err := st.Take(ctx, id)
		return ok, err
	}, nil
}

// Throttled has a rate per second for each of so many keys, and beyond the first token a burst.
func Throttled(keys, perSecond, burst int) (Ask, error) {
	st, err := memstore.NewCtx(2 * keys)
	if err != nil {
		return nil, err
	}
	lim, err := throttled.NewGCRARateLimiterCtx(st, throttled.RateQuota{
		MaxRate: throttled.PerSec(perSecond), MaxBurst: burst,
	})
	if err != nil {
		return nil, err
	}
	lim.SetMaxCASAttemptsLimit(1 << 30) // with all callers on one key it would give up
	return func(ctx context.Context, id string) (bool, error) {
		limited, _, err := lim.RateLimitCtx(ctx, id, 1)
		return err == nil && !limited, err
	}, nil
}

// XTime has a rate per second and a burst for each of so many keys.
func XTime(keys, perSecond, burst int) Ask {
	return keyed(keys, func() *rate.Limiter { return rate.NewLimiter(rate.Limit(perSecond), burst) },
		(*rate.Limiter).Allow)
}

// Uber has a rate per second for each of so many keys. It waits instead of refusing.
func Uber(keys, perSecond int) Ask {
	return keyed(keys, func() ratelimit.Limiter { return ratelimit.New(perSecond) },
		func(l ratelimit.Limiter) bool { l.Take(); return true })
}

// keyed keeps a limiter for each key in a map, as users of limiters without keys do; for one key it needs no map.
func keyed[L any](keys int, open func() L, allow func(L) bool) Ask {
	if keys == 1 {
		lim := open()
		return func(context.Context, string) (bool, error) { return allow(lim), nil }
	}
	var byKey sync.Map
	return func(_ context.Context, id string) (bool, error) {
		lim, ok := byKey.Load(id)
		if !ok {
			lim, _ = byKey.LoadOrStore(id, open())
		}
		return allow(lim.(L)), nil
	}
}
