// Package stores opens stores by their addresses. No other package of the command imports the drivers.
package stores

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/api/storeurl"
	"github.com/weirlimits/weir/internal/lab/torture"
	"github.com/weirlimits/weir/store"
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

// AddressError marks a mistake in the address of a store.
type AddressError = storeurl.Error

// kind is a kind of store, by the scheme of its address.
type kind struct {
	knows func(scheme string) bool
	// inspect checks whether the store can be used; nil opens it.
	inspect func(ctx context.Context, address secret.Address, create *Creation) ([]Finding, error)
	// book books the store's usage; nil for a store that does so itself.
	book func(ctx context.Context, address secret.Address, b *Booking) error
	// sends returns what of the environment is sent to a host that the address names, or "".
	sends   func(address secret.Address, env func(string) (string, bool)) string
	torture Torture
	alone   bool // one process uses the store, on its own machine
}

func scheme(want string) func(string) bool { return func(scheme string) bool { return scheme == want } }

var kinds = []kind{
	{
		knows: scheme("memory"), alone: true,
		torture: Torture{Traits: torture.Traits{Atomic: true, OwnClock: true}},
	},
	{
		knows: scheme("disk"), alone: true,
		torture: Torture{Traits: torture.Traits{Atomic: true, OwnClock: true}},
	},
	{
		knows: scheme("dynamodb"), inspect: inspectDynamo, book: bookDynamo,
		sends: dynamoSends,
		torture: Torture{Rate: 200, Processes: 3, Traits: torture.Traits{
			Shared: true, OwnClock: true, Frugal: true, InFlight: 300 * time.Millisecond, Back: 2 * time.Second,
		}},
	},
	{
		knows: redis.Knows, inspect: inspectRedis, book: bookRedis, sends: redisSends,
		torture: Torture{Rate: 2000, Processes: 3, Traits: torture.Traits{
			Shared: true, Atomic: true, InFlight: 100 * time.Millisecond, Back: time.Second,
		}},
	},
}

// kindOf returns the kind of store at an address.
func kindOf(address secret.Address) (k kind, err error) {
	scheme, _, err := storeurl.Split(address)
	if err != nil {
		return k, err
	}
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.knows(scheme) })], nil
}

// Alone reports whether only one process can use the store at an address.
func Alone(address secret.Address) bool {
	k, err := kindOf(address)
	return err == nil && k.alone
}

// OnUnavailable returns how weir serve answers by default while the store at an address does not. A store of one
// process is on its machine: if it fails, there is no other process that could count what a local share admits, and
// a crash before it is charged hands it out again.
func OnUnavailable(address secret.Address) weir.OnUnavailable {
	if Alone(address) {
		return weir.OnUnavailableDeny
	}
	return weir.OnUnavailableLocal
}

// openWithin is enough to find out whether a store is there.
const openWithin = 3 * time.Second

// Open opens a store.
func Open(address secret.Address, how Access) (store.Store, error) {
	return open(address, storeurl.How{Create: how == Create})
}

func open(address secret.Address, how storeurl.How) (store.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openWithin)
	defer cancel()
	return storeurl.Open(ctx, address, how)
}

// Sends returns what of the environment would be sent to a host that an address names, or "" for nothing. Hosts of AWS
// do not count: an address names a table there, and no host.
func Sends(address secret.Address, env func(string) (string, bool)) string {
	k, err := kindOf(address)
	if err != nil || k.sends == nil {
		return ""
	}
	return k.sends(address, env)
}

// Torture is a store under test: how to open it, what to expect of it, and how much load to put on it.
type Torture struct {
	Open      torture.Opener
	Traits    torture.Traits
	Processes int
	Rate      float64
}

// OpenTorture returns how to open a store for weir torture: with a clock of its own where possible, and in its most
// exact configuration or with everything that saves calls. The store must exist.
func OpenTorture(address secret.Address) (*Torture, error) {
	k, err := kindOf(address)
	k.torture.Open = func(now func() time.Time, frugal bool) (store.Store, error) {
		return open(address, storeurl.How{Now: now, Exact: !frugal, Frugal: frugal})
	}
	return &k.torture, err
}

// Restore makes the store on disk at an address from a copy, and returns its folder, or "" for a store of another kind.
func Restore(address secret.Address, from string, replace bool) (dir string, err error) {
	return storeurl.Restore(address, from, replace)
}
