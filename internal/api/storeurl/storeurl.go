// Package storeurl opens stores by their addresses.
package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

// How is how to open a store.
type How struct {
	Create bool             // the store of a folder that does not exist
	Now    func() time.Time // a clock in place of the store's own, where that is possible; nil for its own
	Exact  bool             // in its most exact configuration
	Frugal bool             // with everything that saves calls
}

// Open opens the store at an address, at the latest when ctx ends. A mistake in the address is an [Error].
func Open(ctx context.Context, address secret.Address, how How) (store.Store, error) {
	scheme, rest, err := Split(address)
	if err != nil {
		return nil, err
	}
	st, err := opens(scheme)(ctx, address, rest, how)
	if err != nil {
		return nil, err // and not a nil pointer as a store
	}
	return st, nil
}

type opening func(ctx context.Context, address secret.Address, rest string, how How) (store.Store, error)

// opens returns what opens the stores of a scheme; nil for an unknown one.
func opens(scheme string) opening {
	switch {
	case scheme == "memory":
		return openMemory
	case scheme == "disk":
		return openDisk
	case scheme == "dynamodb":
		return openDynamoDB
	case redis.Knows(scheme):
		return openRedis
	}
	return nil
}

// Split returns the scheme of an address, and the rest of it.
func Split(address secret.Address) (scheme, rest string, err error) {
	scheme, rest, ok := strings.Cut(string(address), ":")
	if !ok {
		return "", "", Mistakef("store %q has no scheme: for a folder, write disk:%s", address, address)
	}
	if opens(scheme) == nil {
		hint := "use disk:PATH, redis://HOST, dynamodb://TABLE or memory:"
		if port, _, _ := strings.Cut(rest, "/"); port != "" && strings.Trim(port, "0123456789") == "" {
			hint = fmt.Sprintf("for Redis, write redis://%s", address)
		}
		return "", "", Mistakef("store %q: unknown scheme %q: %s", address, scheme, hint)
	}
	return scheme, rest, nil
}

// memoryOptions are the options of a store in memory. 0 means the default.
type memoryOptions struct {
	MaxBuckets int `json:"max_buckets" range:"0.."`
	MaxUsage   int `json:"max_usage" range:"0.."`
}

func openMemory(_ context.Context, address secret.Address, rest string, how How) (store.Store, error) {
	name, query, _ := strings.Cut(rest, "?")
	if name != "" {
		return nil, Mistakef("store %q: memory: takes no name", address)
	}
	var o memoryOptions
	if err := setOptions(address, query, &o); err != nil {
		return nil, err
	}
	return memory.New(&memory.Config{Now: how.Now, MaxBuckets: o.MaxBuckets, MaxUsage: o.MaxUsage}), nil
}

// Error marks a mistake in the address of a store. It matches [store.ErrInvalid].
type Error struct{ error }

// Unwrap returns the mistake.
func (e Error) Unwrap() error { return e.error }

// Is reports whether target is [store.ErrInvalid].
func (e Error) Is(target error) bool { return target == store.ErrInvalid }

// Mistake marks err as a mistake in an address.
func Mistake(err error) error { return Error{err} }

// Mistakef returns a mistake in an address.
func Mistakef(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

// setOptions sets the options in the query of an address, which are the members of the struct to. Of an option that is
// given several times, the last counts.
func setOptions(address secret.Address, query string, to any) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return Mistakef("store %q: %w", address, err)
	}
	fields := api.FieldsOf(reflect.TypeOf(to).Elem())
	for key, texts := range values {
		i := slices.IndexFunc(fields, func(f api.Field) bool { return f.Name == key })
		if i < 0 {
			names := make([]string, len(fields))
			for i := range fields {
				names[i] = fields[i].Name
			}
			return Mistakef(
				"store %q: unknown option %q: the options are %s", address, key, strings.Join(names, ", "),
			)
		}
		var bad *weir.ConfigError
		if err := fields[i].Set(to, texts[len(texts)-1]); errors.As(err, &bad) {
			return Mistakef("store %q: %s %s", address, bad.Field, bad.Reason)
		}
	}
	return nil
}
