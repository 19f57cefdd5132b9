package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

// redisConfig is what an address and the environment say: passwords that are in the address would be seen by all who list
// the machine's processes.
func redisConfig(address string) redis.Config {
	return redis.Config{
		Address:  address,
		Username: os.Getenv("WEIR_REDIS_USERNAME"), Password: os.Getenv("WEIR_REDIS_PASSWORD"),
		SentinelUsername: os.Getenv("WEIR_REDIS_SENTINEL_USERNAME"), SentinelPassword: os.Getenv("WEIR_REDIS_SENTINEL_PASSWORD"),
	}
}

func openRedis(address string) (store.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second) // it is there, or it is not
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

// doctorRedis looks at a server without changing anything but what says of which version the layout is.
func doctorRedis(ctx context.Context, address string, view *doctorView) error {
	for _, f := range redis.Inspect(ctx, redisConfig(address)) {
		if errors.Is(f.Err, store.ErrInvalid) {
			return usageError{f.Err}
		}
		view.add(f.Name, f.Err, f.Detail)
	}
	return nil
}
