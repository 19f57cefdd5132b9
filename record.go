package weir

import (
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// The catalog's records, as JSON; see docs/format/catalog.md.

type entityRecord struct {
	Name     string            `json:"name,omitempty"`
	Parent   string            `json:"parent,omitempty"`
	Cascade  bool              `json:"cascade,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Created  time.Time         `json:"created"`
	Deleting bool              `json:"deleting,omitempty"` // no child may be added
	Moving   bool              `json:"moving,omitempty"`   // about to get another parent; see entity_parent.go
	Managed  *Managed          `json:"managed,omitempty"`
}

type limitsRecord struct {
	Limits        []Limit       `json:"limits,omitempty"`
	OnUnavailable OnUnavailable `json:"on_unavailable,omitempty"`
	NearLimit     Thresholds    `json:"near_limit,omitzero"` // only in the system's record; [] is off
	Managed       *Managed      `json:"managed,omitempty"`
}

type (
	namespaceRecord   = record.Namespace
	namespaceIDRecord = record.NamespaceID
)

var errUnreadable = record.ErrUnreadable

func entityKey(space, id string) store.Key { return record.EntityKey(space, id) }

func entityLimitsKey(space, id, resource string) store.Key {
	return record.EntityLimitsKey(space, id, resource)
}

func resourceKey(space, name string) store.Key { return record.ResourceKey(space, name) }

func systemKey(space string) store.Key { return record.SystemKey(space) }

func namespaceKey(name string) store.Key { return record.NamespaceKey(name) }

func namespaceIDKey(id string) store.Key { return record.NamespaceIDKey(id) }

func put(key store.Key, version uint64, value any) store.Write {
	return record.Put(key, version, value)
}

func remove(r store.Record) store.Write { return record.Remove(r) }

func encode(value any) []byte { return record.Encode(value) }

func decodeRecord(r store.Record, into any) error { return record.Decode(r, into) }

func unreadable(r store.Record, err error) error { return record.Unreadable(r, err) }

// event is the audit event of a change, before it is committed.
type event struct {
	action, subject string
	before, after   any // nil if there is none
}

// stamp returns the current time in the precision of records.
func stamp() time.Time { return record.Stamp() }

// DefaultResource is the name under which an entity's limits for all other resources are stored and shown. No entity,
// resource, limit or namespace can have this name.
const DefaultResource = record.DefaultResource

// DefaultNamespace is the namespace that exists in every store. Its opaque id is its name.
const DefaultNamespace = record.DefaultNamespace

const (
	maxID     = record.MaxID
	maxLimits = record.MaxLimits
)

func checkID(field, id string) error { return publicError(record.CheckID(field, id)) }

// publicError returns the error as this package defines it.
func publicError(err error) error {
	if bad, ok := err.(*record.FieldError); ok { //nolint:errorlint // one that is wrapped is not the caller's
		return &ConfigError{Field: bad.Field, Reason: bad.Reason}
	}
	return err
}
