// Package stores opens stores by their addresses. No other package of the command knows the drivers.
package stores

import (
	"fmt"
	"strings"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

// Access says whether a command may create the store. Only commands that configure or serve may, so that a mistyped
// name in any other command creates nothing.
type Access bool

// Whether a store must exist.
const (
	Existing Access = false
	Create   Access = true
)

// Open opens a store. It is the only place that knows every driver.
func Open(address string, how Access) (store.Store, error) {
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok {
		return nil, storeUsage("store %q has no scheme: for a folder, write disk:%s", address, address)
	}
	switch scheme {
	case "memory":
		if rest != "" {
			return nil, storeUsage("store %q: memory: takes no name and no options", address)
		}
		return memory.New(nil), nil
	case "disk":
		path, cfg, err := diskConfig(address, rest)
		if err != nil {
			return nil, err
		}
		cfg.MustExist = how == Existing
		return disk.Open(path, cfg)
	case "dynamodb":
		return openDynamoDB(address, rest)
	}
	if redis.Knows(scheme) {
		return openRedis(address)
	}
	return nil, storeUsage(
		"store %q: unknown scheme %q: use disk:PATH, redis://HOST, dynamodb://TABLE or memory:", address, scheme,
	)
}

// AddressError marks a mistake in the address of a store.
type AddressError struct{ error }

// Unwrap returns the mistake.
func (e AddressError) Unwrap() error { return e.error }

func storeUsage(format string, args ...any) error { return AddressError{fmt.Errorf(format, args...)} }
