// Package record holds the records of the catalog: their JSON, keys and ids, and a limit's text and bounds.
package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir/store"
)

// The catalog's records, as JSON; see docs/format/catalog.md.

// Entity is an entity's own record.
type Entity struct {
	Name     string            `json:"name,omitempty"`
	Parent   string            `json:"parent,omitempty"`
	Cascade  bool              `json:"cascade,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Created  time.Time         `json:"created"`
	Deleting bool              `json:"deleting,omitempty"` // no child may be added
	Moving   bool              `json:"moving,omitempty"`   // about to get another parent
	Managed  *Managed          `json:"managed,omitempty"`
}

// Limits are the limits of an entity, a resource or the system, and the settings stored with them.
type Limits struct {
	Limits        []Limit  `json:"limits,omitempty"`
	OnUnavailable string   `json:"on_unavailable,omitempty"`
	NearLimit     []int    `json:"near_limit,omitzero"` // only in the system's record; [] is off
	Managed       *Managed `json:"managed,omitempty"`
}

// Namespace is the record of a namespace by name.
type Namespace struct {
	ID      string     `json:"id"`
	Created time.Time  `json:"created"`
	Deleted *time.Time `json:"deleted,omitempty"`
}

// NamespaceID is the record of a namespace by opaque id.
type NamespaceID struct {
	Name string `json:"name"`
}

// DefaultNamespace is the namespace that exists in every store. Its opaque id is its name.
const DefaultNamespace = "default"

// EntityKey returns the key of an entity's own record.
func EntityKey(namespace, id string) store.Key {
	return store.Key{Namespace: namespace, Kind: store.KindEntity, ID: id}
}

// EntityLimitsKey returns the key of an entity's limits on a resource; those for all others are on [DefaultResource].
func EntityLimitsKey(namespace, id, resource string) store.Key {
	return store.Key{Namespace: namespace, Kind: store.KindEntityLimits, ID: id, Sub: resource}
}

// ResourceKey returns the key of a resource's limits.
func ResourceKey(namespace, name string) store.Key {
	return store.Key{Namespace: namespace, Kind: store.KindResourceLimits, ID: name}
}

// SystemKey returns the key of the namespace's limits and settings.
func SystemKey(namespace string) store.Key {
	return store.Key{Namespace: namespace, Kind: store.KindSystem}
}

// LimitsKey returns the key of the limits of an entity on a resource. Without an entity or a resource, they are those
// for all.
func LimitsKey(namespace, entity, resource string) store.Key {
	switch {
	case entity != "":
		return EntityLimitsKey(namespace, entity, cmp.Or(resource, DefaultResource))
	case resource != "":
		return ResourceKey(namespace, resource)
	}
	return SystemKey(namespace)
}

// LimitsOf returns the entity and the resource of a [LimitsKey].
func LimitsOf(k store.Key) (entity, resource string) {
	switch {
	case k.Kind == store.KindResourceLimits:
		return "", k.ID
	case k.Kind == store.KindEntityLimits && k.Sub == DefaultResource:
		return k.ID, ""
	}
	return k.ID, k.Sub
}

// NamespaceKey returns the key of a namespace by name.
func NamespaceKey(name string) store.Key {
	return store.Key{Namespace: store.Registry, Kind: store.KindNamespace, ID: name}
}

// NamespaceIDKey returns the key of a namespace by opaque id.
func NamespaceIDKey(id string) store.Key {
	return store.Key{Namespace: store.Registry, Kind: store.KindNamespaceID, ID: id}
}

// Managed marks a record as declared by a manifest.
type Managed struct {
	Manifest string `json:"manifest"` // its name
	Hash     string `json:"hash"`     // of the declared value
}

// Name returns the manifest's name, or "".
func (m *Managed) Name() string {
	if m == nil {
		return ""
	}
	return m.Manifest
}

// Put returns a write of value to a record that must have this version now; 0 means that it must not exist.
func Put(key store.Key, version uint64, value any) store.Write {
	return store.Write{Record: store.Record{Key: key, Version: version, Value: Encode(value)}}
}

// Remove returns the deletion of a record, provided it is as it was read.
func Remove(r store.Record) store.Write {
	return store.Write{Record: store.Record{Key: r.Key, Version: r.Version}, Delete: true}
}

// Encode returns a record's JSON, in which < and > stay readable.
func Encode(value any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		panic(err) // only weir's own types are encoded, and they always succeed
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// Event is the audit event of a change, before it is committed.
type Event struct {
	Action, Subject string
	Before, After   any // nil if there is none
}

// ErrUnreadable marks an answer of the store that cannot be used, as opposed to no answer.
var ErrUnreadable = errors.New("unreadable")

// Decode reads a record's JSON. Its error is a [*store.Error] that wraps [ErrUnreadable].
func Decode(r store.Record, into any) error {
	if err := json.Unmarshal(r.Value, into); err != nil {
		return Unreadable(r, err)
	}
	return nil
}

// Unreadable returns the error of a record that cannot be used.
func Unreadable(r store.Record, err error) error {
	return &store.Error{
		Op: "read", Key: r.Key.String(), Err: fmt.Errorf("%w: %w", ErrUnreadable, err),
		Hint: "the record was written by a later version of weir, or not by weir",
	}
}
