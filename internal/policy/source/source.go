// Package source keeps which store the configuration of a store is copied from, so that it is changed only there.
package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weirlimits/weir/store"
)

// ErrConflict reports that others kept changing the same records, or that a record is not in the expected state.
var ErrConflict = errors.New("changed in the meantime")

// key is the key of the record that names the source of a namespace's configuration. It is in the namespace itself,
// because a process may be allowed to read no other.
func key(namespaceID string) store.Key {
	return store.Key{Namespace: namespaceID, Kind: "config-source"}
}

// The kinds of records that a mirror copies: of the registry of namespaces, and of each namespace, the least numerous
// first.
var (
	RegistryKinds  = []store.Kind{store.KindNamespace, store.KindNamespaceID}
	NamespaceKinds = []store.Kind{
		store.KindSystem, store.KindPlanLimits, store.KindPlanEntity, store.KindResourceLimits, store.KindEntity,
		store.KindEntityLimits,
	}
)

// Copied reports whether records of a kind are copied.
func Copied(kind store.Kind) bool {
	return slices.Contains(RegistryKinds, kind) || slices.Contains(NamespaceKinds, kind)
}

// Error reports a change of the configuration of a store that has it from another store. Nothing was changed.
// It matches [ErrConflict].
type Error struct{ Source string }

// Error names the source.
func (e *Error) Error() string {
	return fmt.Sprintf("the configuration of this store is copied from %s: make the change there", e.Source)
}

// Is reports whether target is [ErrConflict].
func (e *Error) Is(target error) bool { return target == ErrConflict }

type content struct {
	Source string `json:"source"`
}

// Set records that the configuration of a namespace is copied from a source, so that it cannot be changed in the store;
// "" that it no longer is. It writes only if that differs from what the store has.
func Set(ctx context.Context, c store.Catalog, namespaceID, source string) error {
	got, err := c.Get(ctx, key(namespaceID))
	if err != nil {
		return err
	}
	have := got.Records[0]
	have.Key = key(namespaceID) // also of a record that does not exist
	w := store.Write{Record: store.Record{Key: have.Key, Version: have.Version}, Delete: source == ""}
	if was := of(have); was == source {
		return nil
	}
	if !w.Delete {
		if w.Record.Value, err = json.Marshal(content{source}); err != nil {
			return err
		}
	}
	if err = c.Commit(ctx, w); errors.Is(err, store.ErrConflict) {
		return nil // another process did the same
	}
	return err
}

// of returns the source that a record names.
func of(r store.Record) string {
	var s content
	if r.Version == 0 {
		return ""
	}
	if json.Unmarshal(r.Value, &s) != nil || s.Source == "" {
		return "another store"
	}
	return s.Source
}

// Check returns a [*Error] if writes, which are of one namespace, change what is copied from another store.
func Check(ctx context.Context, c store.Catalog, writes []store.Write) error {
	i := slices.IndexFunc(writes, func(w store.Write) bool { return !w.Check && Copied(w.Record.Key.Kind) })
	if i < 0 {
		return nil
	}
	source, err := Of(ctx, c, writes[i].Record.Key.Namespace)
	if err != nil || source == "" {
		return err
	}
	return &Error{source}
}

// Of returns the source that the configuration of a namespace is copied from; "" for none.
func Of(ctx context.Context, c store.Catalog, namespaceID string) (string, error) {
	got, err := c.Get(ctx, key(namespaceID))
	if err != nil {
		return "", err
	}
	return of(got.Records[0]), nil
}
