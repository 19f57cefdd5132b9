package stores

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

// redisConfig returns the configuration from the address and the environment. Passwords come from the environment
// because anyone who lists the machine's processes can see those in an address.
func redisConfig(address string) redis.Config {
	return redis.Config{
		Address:  address,
		Username: os.Getenv("WEIR_REDIS_USERNAME"), Password: os.Getenv("WEIR_REDIS_PASSWORD"),
		SentinelUsername: os.Getenv("WEIR_REDIS_SENTINEL_USERNAME"),
		SentinelPassword: os.Getenv("WEIR_REDIS_SENTINEL_PASSWORD"),
	}
}

func openRedis(address, _ string, _ opening) (store.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openWithin)
	defer cancel()
	s, err := redisAt(ctx, address)
	if err != nil {
		return nil, err // not a nil pointer as a store
	}
	return s, nil
}

func redisAt(ctx context.Context, address string) (*redis.Store, error) {
	s, err := redis.Open(ctx, redisConfig(address))
	if errors.Is(err, store.ErrInvalid) {
		err = AddressError{err}
	}
	return s, err
}

// IsRedis reports whether an address names a Redis store.
func IsRedis(address string) bool {
	scheme, _, _ := strings.Cut(address, ":")
	return redis.Knows(scheme)
}
