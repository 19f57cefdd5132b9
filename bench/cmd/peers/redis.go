package main

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/engine"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/bench/internal/inprocess"
	"github.com/weirlimits/weir/store/redis"
)

// asker requests one token for an entity.
type asker = inprocess.Ask

// quota is an asker's limit: a burst, and one more token each time every has passed.
type quota struct {
	burst int
	every time.Duration
}

func (q quota) limit() weir.Limit {
	return weir.Limit{Name: "rpm", Amount: 1, Period: q.every, Burst: int64(q.burst)}
}

func weirRedis(e *harness.Env, addr string, q quota) (asker, error) {
	st, err := redis.Open(e.Ctx, redis.Config{Address: "redis://" + addr})
	if err != nil {
		return nil, err
	}
	lim, err := weir.New(weir.Config{Store: st, StoreTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	e.Defer(lim.Close)
	return func(ctx context.Context, id string) (bool, error) { return lim.Allow(ctx, id, "api") },
		admin.New(lim).Limits.Set(e.Ctx, admin.Scope{Resource: "api"}, q.limit())
}

func redisClient(e *harness.Env, addr string) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: addr, PoolSize: 32})
	e.Defer(c.Close)
	return c
}

func redisRate(e *harness.Env, addr string, q quota) (asker, error) {
	lim := redis_rate.NewLimiter(redisClient(e, addr))
	limit := redis_rate.Limit{Rate: 1, Period: q.every, Burst: q.burst}
	return func(ctx context.Context, id string) (bool, error) {
		res, err := lim.Allow(ctx, id, limit)
		return err == nil && res.Allowed > 0, err
	}, nil
}

func throttledRedis(e *harness.Env, addr string, q quota) (asker, error) {
	st, err := goredisstore.NewCtx(redisClient(e, addr), "throttled:")
	if err != nil {
		return nil, err
	}
	lim, err := throttled.NewGCRARateLimiterCtx(st, throttled.RateQuota{
		MaxRate: throttled.PerDuration(1, q.every), MaxBurst: q.burst - 1,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, id string) (bool, error) {
		limited, _, err := lim.RateLimitCtx(ctx, id, 1)
		return err == nil && !limited, err
	}, nil
}

// onRedis are the limiters that decide on a Redis, each in one process.
var onRedis = []struct {
	name string
	open func(*harness.Env, string, quota) (asker, error)
}{{"weir on Redis", weirRedis}, {"redis_rate", redisRate}, {"throttled on Redis", throttledRedis}}

func redisRows() (rows []harness.Row) {
	for _, s := range []struct {
		name          string
		keys, workers int
	}{
		{"1 caller, 1 key", 1, 1},
		{"64 callers, 1 key", 1, 64},
		{"64 callers, 10,000 keys", 10_000, 64},
	} {
		r := harness.Row{Part: partRedis, Name: s.name}
		for _, c := range onRedis {
			r.Add(c.name, func(e *harness.Env) (harness.Drive, error) {
				addr, err := engine.Redis(e)
				if err != nil {
					return nil, err
				}
				ask, err := c.open(e, addr, quota{1_000_000, time.Microsecond})
				if err != nil {
					return nil, err
				}
				ks := harness.Uniform(min(s.keys, e.Few(s.keys, 100)))
				if err := touch(e, ks, ask); err != nil {
					return nil, err
				}
				one := func(ctx context.Context, w int) error {
					_, err := ask(ctx, ks.ID(w))
					return err
				}
				return func(_ int, length time.Duration) (harness.Sample, error) {
					return harness.Meter{CPU: harness.CPU}.Timed(e, s.workers, length/2, one), nil
				}, nil
			})
		}
		rows = append(rows, r)
	}
	return rows
}

// touch makes one request for every key.
func touch(e *harness.Env, ks *harness.Keys, ask asker) error {
	return ks.Touch(func(id string) error { _, err := ask(e.Ctx, id); return err })
}
