package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

// redisConfig returns the configuration from the address and the environment. Passwords come from the environment because
// anyone who lists the machine's processes can see those in an address.
func redisConfig(address string) redis.Config {
	return redis.Config{
		Address:  address,
		Username: os.Getenv("WEIR_REDIS_USERNAME"), Password: os.Getenv("WEIR_REDIS_PASSWORD"),
		SentinelUsername: os.Getenv("WEIR_REDIS_SENTINEL_USERNAME"), SentinelPassword: os.Getenv("WEIR_REDIS_SENTINEL_PASSWORD"),
	}
}

func openRedis(address string) (store.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second) // enough to find out whether it is there
	defer cancel()
	s, err := redis.Open(ctx, redisConfig(address))
	if errors.Is(err, store.ErrInvalid) {
		return nil, usageError{err}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// namesRedis reports whether an address names a Redis store.
func namesRedis(address string) bool {
	scheme, _, _ := strings.Cut(address, ":")
	return redis.Knows(scheme)
}

// aggregateRedis books usage from a Redis server's buckets until ctx ends.
func (a *app) aggregateRedis(ctx context.Context, flags *aggregateFlags) error {
	retention, err := flags.retention()
	if err != nil {
		return err
	}
	if flags.every <= 0 {
		return usageError{fmt.Errorf("--every %s is not positive", flags.every)}
	}
	s, err := redis.Open(ctx, redisConfig(a.store))
	if errors.Is(err, store.ErrInvalid) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	defer s.Close()
	log := slog.New(slog.NewTextHandler(a.err.W, nil))
	if flags.once {
		return s.Ledger(retention).Once(ctx, log)
	}
	a.err.Printf("booking usage from the buckets\n")
	return s.Ledger(retention).Run(ctx, flags.every, log)
}

// doctorRedis checks a server. It changes nothing except the record of the layout's version.
func doctorRedis(ctx context.Context, address string, view *doctorView) error {
	for _, f := range redis.Inspect(ctx, redisConfig(address)) {
		if errors.Is(f.Err, store.ErrInvalid) {
			return usageError{f.Err}
		}
		view.add(f.Name, f.Err, f.Detail)
	}
	return nil
}
