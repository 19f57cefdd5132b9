// Package storecoord keeps a fleet's records in the catalog of a weir store, which can be any store that all workers
// can reach.
package storecoord

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/governor/fleet"
	"github.com/weirlimits/weir/store"
)

// Coordinator keeps the records of one fleet. It is safe for concurrent use.
type Coordinator struct {
	catalog   store.Catalog
	namespace string
}

var _ fleet.Coordinator = (*Coordinator)(nil)

// kind is the kind of the records; their ID is the record's name.
const kind store.Kind = "governor"

// expiry is how long a store keeps records that nobody writes any more. It only tidies up: no decision depends on it.
const expiry = 24 * time.Hour

// New returns a coordinator for a named fleet, in a namespace of its own that is listed nowhere else in the store. It
// returns an error if the name is empty or contains anything but letters, digits, ., _ and -.
func New(catalog store.Catalog, name string) (*Coordinator, error) {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) {
		return nil, fmt.Errorf("store coordinator: the fleet's name %q must consist of letters, digits, ., _ and -", name)
	}
	return &Coordinator{catalog, "governor." + name}, nil
}

func (c *Coordinator) key(name string) store.Key {
	return store.Key{Namespace: c.namespace, Kind: kind, ID: name}
}

func record(r store.Record) fleet.Record {
	return fleet.Record{Name: r.Key.ID, Version: strconv.FormatUint(r.Version, 10), Value: r.Value}
}

// Get implements fleet.Coordinator.
func (c *Coordinator) Get(ctx context.Context, name string) (fleet.Record, error) {
	got, err := c.catalog.Get(ctx, c.key(name))
	if err != nil {
		return fleet.Record{}, err
	}
	if got.Records[0].Version == 0 {
		return fleet.Record{Name: name}, nil
	}
	return record(got.Records[0]), nil
}

// Put implements fleet.Coordinator.
func (c *Coordinator) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	var have uint64
	if version != "" {
		var err error
		if have, err = strconv.ParseUint(version, 10, 64); err != nil {
			return "", fmt.Errorf("put %s: version %q is not one of this coordinator", name, version)
		}
	}
	r := store.Record{Key: c.key(name), Version: have, Value: value, Expires: time.Now().Add(expiry)}
	err := c.catalog.Commit(ctx, store.Write{Record: r})
	if errors.Is(err, store.ErrConflict) {
		return "", fmt.Errorf("put %s: %w", name, fleet.ErrConflict)
	}
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(have+1, 10), nil
}

// Delete implements fleet.Coordinator.
func (c *Coordinator) Delete(ctx context.Context, name string) error {
	for {
		got, err := c.catalog.Get(ctx, c.key(name))
		if err != nil || got.Records[0].Version == 0 {
			return err
		}
		err = c.catalog.Commit(ctx, store.Write{Record: got.Records[0], Delete: true})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// List implements fleet.Coordinator.
func (c *Coordinator) List(ctx context.Context, prefix string) ([]fleet.Record, error) {
	var found []fleet.Record
	for query := (store.Query{Namespace: c.namespace, Kind: kind, Max: 1000}); ; {
		page, err := c.catalog.List(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Records {
			if strings.HasPrefix(r.Key.ID, prefix) {
				found = append(found, record(r))
			}
		}
		if page.Next == "" {
			return found, nil
		}
		query.After = page.Next
	}
}
