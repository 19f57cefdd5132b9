// Package stores opens stores by their addresses. No other package of the command knows the drivers.
package stores

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
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

// Open opens a store. A new scheme goes into OpenTorture and Inspect, too.
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

// setOptions sets the options in the query of an address, which are the members of the struct to. Of an option that is
// given several times, the last counts.
func setOptions(address, query string, to any) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return storeUsage("store %q: %w", address, err)
	}
	fields := api.FieldsOf(reflect.TypeOf(to).Elem())
	for key, texts := range values {
		i := slices.IndexFunc(fields, func(f api.Field) bool { return f.Name == key })
		if i < 0 {
			names := make([]string, len(fields))
			for i := range fields {
				names[i] = fields[i].Name
			}
			return storeUsage(
				"store %q: unknown option %q: the options are %s", address, key, strings.Join(names, ", "),
			)
		}
		var bad *weir.ConfigError
		if err := fields[i].Set(to, texts[len(texts)-1]); errors.As(err, &bad) {
			return storeUsage("store %q: %s %s", address, bad.Field, bad.Reason)
		}
	}
	return nil
}
