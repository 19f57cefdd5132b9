// Package stores opens stores by their addresses. No other package of the command imports the drivers.
package stores

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
	"github.com/weirlimits/weir/internal/lab/torture"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

// Access defines whether a command may create the store. Only commands that configure or serve may, so that a mistyped
// name in any other command creates nothing.
type Access bool

// Whether a store must exist.
const (
	Existing Access = false
	Create   Access = true
)

// opening is how to open a store.
type opening struct {
	Access
	now   func() time.Time // a clock in place of the store's own, where that is possible; nil for its own
	exact bool             // in its most exact configuration
}

// kind is a kind of store, by the scheme of its address.
type kind struct {
	knows func(scheme string) bool
	open  func(address, rest string, how opening) (store.Store, error)
	// inspect checks whether the store can be used; nil opens it.
	inspect func(ctx context.Context, address, rest string, create *Creation) ([]Finding, error)
	// book books the store's usage; nil for a store that does so itself.
	book    func(ctx context.Context, address, rest string, b *Booking) error
	torture Torture
}

func scheme(want string) func(string) bool { return func(scheme string) bool { return scheme == want } }

var kinds = []kind{
	{
		knows: scheme("memory"), open: openMemory,
		torture: Torture{Traits: torture.Traits{Atomic: true, OwnClock: true}},
	},
	{
		knows: scheme("disk"), open: openDisk,
		torture: Torture{Traits: torture.Traits{Atomic: true, OwnClock: true}},
	},
	{
		knows: scheme("dynamodb"), open: openDynamoDB, inspect: inspectDynamo, book: bookDynamo,
		torture: Torture{Rate: 200, Processes: 3, Traits: torture.Traits{
			Shared: true, OwnClock: true, InFlight: 300 * time.Millisecond, Back: 2 * time.Second,
		}},
	},
	{
		knows: redis.Knows, open: openRedis, inspect: inspectRedis, book: bookRedis,
		torture: Torture{Rate: 2000, Processes: 3, Traits: torture.Traits{
			Shared: true, Atomic: true, InFlight: 100 * time.Millisecond, Back: time.Second,
		}},
	},
}

// kindOf returns the kind of store at an address, and the address without its scheme.
func kindOf(address string) (k kind, rest string, err error) {
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok {
		return k, "", storeUsage("store %q has no scheme: for a folder, write disk:%s", address, address)
	}
	if i := slices.IndexFunc(kinds, func(k kind) bool { return k.knows(scheme) }); i >= 0 {
		return kinds[i], rest, nil
	}
	return k, "", storeUsage(
		"store %q: unknown scheme %q: use disk:PATH, redis://HOST, dynamodb://TABLE or memory:", address, scheme,
	)
}

// Open opens a store.
func Open(address string, how Access) (store.Store, error) {
	k, rest, err := kindOf(address)
	if err != nil {
		return nil, err
	}
	return k.open(address, rest, opening{Access: how})
}

// Torture is a store under test: how to open it, what to expect of it, and how much load to put on it.
type Torture struct {
	Open      torture.Opener
	Traits    torture.Traits
	Processes int
	Rate      float64
}

// OpenTorture returns how to open a store for weir torture: with a clock of its own where possible, and in its most
// exact configuration. The store must exist.
func OpenTorture(address string) (*Torture, error) {
	k, rest, err := kindOf(address)
	k.torture.Open = func(now func() time.Time) (store.Store, error) {
		return k.open(address, rest, opening{Existing, now, true})
	}
	return &k.torture, err
}

// openWithin is enough to find out whether a store is there.
const openWithin = 3 * time.Second

func openMemory(address, rest string, how opening) (store.Store, error) {
	if rest != "" {
		return nil, storeUsage("store %q: memory: takes no name and no options", address)
	}
	return memory.New(&memory.Config{Now: how.now}), nil
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
