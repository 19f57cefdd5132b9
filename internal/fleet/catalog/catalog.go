// Package catalog keeps a fleet's records in the catalog of a store.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
	"github.com/weirlimits/weir/store"
)

// Registry keeps the records of one fleet: one namespace, one kind, with a record's name as its ID.
type Registry struct {
	Catalog   store.Catalog
	Namespace string
	Kind      store.Kind
	// Key, if it is not nil, returns the keys of records that lie elsewhere. List does not find those.
	Key func(name string) store.Key
	// Lasting keeps the grants for as long as the store exists.
	Lasting bool
}

var _ fleet.Registry = Registry{}

// expiry is how long a store keeps records that nobody writes any more. It only tidies up: no decision depends on it.
const expiry = 24 * time.Hour

func (r Registry) key(name string) store.Key {
	if r.Key != nil {
		return r.Key(name)
	}
	return store.Key{Namespace: r.Namespace, Kind: r.Kind, ID: name}
}

func record(rec store.Record) fleet.Record {
	return fleet.Record{Name: rec.Key.ID, Version: strconv.FormatUint(rec.Version, 10), Value: rec.Value}
}

// Written returns when a report was written, by the clock of its writer; the zero time if that is not known.
func Written(report store.Record) time.Time {
	if report.Expires.IsZero() {
		return time.Time{}
	}
	return report.Expires.Add(-expiry)
}

// Get implements [fleet.Registry].
func (r Registry) Get(ctx context.Context, name string) (fleet.Record, error) {
	got, err := r.Catalog.Get(ctx, r.key(name))
	if err != nil {
		return fleet.Record{}, err
	}
	if got.Records[0].Version == 0 {
		return fleet.Record{Name: name}, nil
	}
	return record(got.Records[0]), nil
}

// Put implements [fleet.Registry].
func (r Registry) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	var have uint64
	if version != "" {
		var err error
		if have, err = strconv.ParseUint(version, 10, 64); err != nil {
			return "", fmt.Errorf("put %s: version %q is not a number", name, version)
		}
	}
	rec := store.Record{Key: r.key(name), Version: have, Value: value}
	if !r.Lasting || strings.HasPrefix(name, fleet.ReportPrefix) {
		rec.Expires = time.Now().Add(expiry)
	}
	err := r.Catalog.Commit(ctx, store.Write{Record: rec})
	if errors.Is(err, store.ErrConflict) {
		return "", fmt.Errorf("put %s: %w", name, fleet.ErrConflict)
	}
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(have+1, 10), nil
}

// Delete implements [fleet.Registry].
func (r Registry) Delete(ctx context.Context, name string) error {
	for {
		got, err := r.Catalog.Get(ctx, r.key(name))
		if err != nil || got.Records[0].Version == 0 {
			return err
		}
		err = r.Catalog.Commit(ctx, store.Write{Record: got.Records[0], Delete: true})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// List implements [fleet.Registry].
func (r Registry) List(ctx context.Context, prefix string) ([]fleet.Record, error) {
	var found []fleet.Record
	for rec, err := range store.All(ctx, r.Catalog, store.Query{Namespace: r.Namespace, Kind: r.Kind}) {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(rec.Key.ID, prefix) {
			found = append(found, record(rec))
		}
	}
	return found, nil
}
