package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/measure"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store/redis"
)

var errNoRedis = errors.New("no redis-server is installed")

// startRedis starts a server that ends with the row, and returns its address.
func startRedis(e *env) (string, error) {
	for _, name := range []string{os.Getenv("WEIR_TEST_REDIS_SERVER"), "redis-server", "valkey-server"} {
		path, err := exec.LookPath(name)
		if name == "" || err != nil {
			continue
		}
		s, err := redistest.Launch(path)
		if err != nil {
			return "", err
		}
		e.defers(func() error { s.Stop(); return nil })
		return s.Addr, nil
	}
	return "", errNoRedis
}

// asker requests one token for an entity.
type asker func(ctx context.Context, entity string) (bool, error)

// quota is an asker's limit: a burst, and one more token each time every has passed.
type quota struct {
	burst int
	every time.Duration
}

func (q quota) limit() weir.Limit {
	return weir.Limit{Name: "rpm", Amount: 1, Period: q.every, Burst: int64(q.burst)}
}

func weirRedis(e *env, addr string, q quota) (asker, error) {
	st, err := redis.Open(e.ctx, redis.Config{Address: "redis://" + addr})
	if err != nil {
		return nil, err
	}
	lim, err := weir.New(weir.Config{Store: st, StoreTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	e.defers(lim.Close)
	return func(ctx context.Context, id string) (bool, error) { return lim.Allow(ctx, id, "api") },
		admin.New(lim).Limits.Set(e.ctx, admin.Scope{Resource: "api"}, q.limit())
}

func redisClient(e *env, addr string) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: addr, PoolSize: 32})
	e.defers(c.Close)
	return c
}

func redisRate(e *env, addr string, q quota) (asker, error) {
	lim := redis_rate.NewLimiter(redisClient(e, addr))
	limit := redis_rate.Limit{Rate: 1, Period: q.every, Burst: q.burst}
	return func(ctx context.Context, id string) (bool, error) {
		res, err := lim.Allow(ctx, id, limit)
		return err == nil && res.Allowed > 0, err
	}, nil
}

func throttledRedis(e *env, addr string, q quota) (asker, error) {
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
	open func(*env, string, quota) (asker, error)
}{{"weir on Redis", weirRedis}, {"redis_rate", redisRate}, {"throttled on Redis", throttledRedis}}

func redisRows() (rows []row) {
	for _, s := range []struct {
		name          string
		keys, workers int
	}{
		{"1 caller, 1 key", 1, 1},
		{"64 callers, 1 key", 1, 64},
		{"64 callers, 10,000 keys", 10_000, 64},
	} {
		r := row{part: partRedis, name: s.name}
		for _, c := range onRedis {
			r.contenders = append(r.contenders, contender{c.name, func(e *env) (drive, error) {
				addr, err := startRedis(e)
				if err != nil {
					return nil, err
				}
				ask, err := c.open(e, addr, quota{1_000_000, time.Microsecond})
				if err != nil {
					return nil, err
				}
				ks := newKeys(min(s.keys, e.few(s.keys, 100)))
				if err := touch(e, ks, ask); err != nil {
					return nil, err
				}
				work := timed(e, s.workers, meter{cpu: measure.CPU}, func(ctx context.Context, w int) error {
					_, err := ask(ctx, ks.id(w))
					return err
				})
				return func(_ int, length time.Duration) (sample, error) { return work(length / 2), nil }, nil
			}})
		}
		rows = append(rows, r)
	}
	return rows
}

// touch makes one request for every key.
func touch(e *env, ks *keys, ask asker) error {
	for _, id := range ks.ids {
		if _, err := ask(e.ctx, id); err != nil {
			return err
		}
	}
	return nil
}
