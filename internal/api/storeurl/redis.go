package storeurl

import (
	"context"
	"errors"
	"os"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

// The variables with the passwords of Redis. With _FILE, each names a file.
const (
	RedisPassword    = "WEIR_REDIS_PASSWORD"          //nolint:gosec // the name of one
	SentinelPassword = "WEIR_REDIS_SENTINEL_PASSWORD" //nolint:gosec // the name of one
)

// RedisConfig returns the configuration from the address and the environment.
func RedisConfig(address secret.Address) (redis.Config, error) {
	c := redis.Config{
		Address: string(address), Username: os.Getenv("WEIR_REDIS_USERNAME"),
		SentinelUsername: os.Getenv("WEIR_REDIS_SENTINEL_USERNAME"),
	}
	lookup := func(name string) (string, bool) {
		text := os.Getenv(name)
		return text, text != ""
	}
	password, err := secret.Env(lookup, RedisPassword)
	sentinels, err2 := secret.Env(lookup, SentinelPassword)
	c.Password, c.SentinelPassword = password.Reveal(), sentinels.Reveal()
	return c, errors.Join(err, err2)
}

func openRedis(ctx context.Context, address secret.Address, _ string, _ How) (store.Store, error) {
	return OpenRedis(ctx, address)
}

// OpenRedis opens the store at the address of a Redis server.
func OpenRedis(ctx context.Context, address secret.Address) (*redis.Store, error) {
	c, err := RedisConfig(address)
	if err != nil {
		return nil, err
	}
	s, err := redis.Open(ctx, c)
	if errors.Is(err, store.ErrInvalid) {
		err = Mistake(err)
	}
	return s, err
}
