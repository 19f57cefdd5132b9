package weir

import (
	"time"

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
	Limits        []Limit     `json:"limits,omitempty"`
	OnUnavailable Unavailable `json:"on_unavailable,omitempty"`
	NearLimit     Thresholds  `json:"near_limit,omitzero"` // only in the system's record; [] is off
	Managed       *Managed    `json:"managed,omitempty"`
}

type namespaceRecord struct {
	ID      string     `json:"id"`
	Created time.Time  `json:"created"`
	Deleted *time.Time `json:"deleted,omitempty"`
}

type namespaceIDRecord struct {
	Name string `json:"name"`
}

// DefaultNamespace is the namespace that exists in every store. Its opaque id is its name.
const DefaultNamespace = "default"

func entityKey(space, id string) store.Key {
	return store.Key{Namespace: space, Kind: store.KindEntity, ID: id}
}

func entityLimitsKey(space, id, resource string) store.Key {
	return store.Key{Namespace: space, Kind: store.KindEntityLimits, ID: id, Sub: resource}
}

func resourceKey(space, name string) store.Key {
	return store.Key{Namespace: space, Kind: store.KindResourceLimits, ID: name}
}

func systemKey(space string) store.Key {
	return store.Key{Namespace: space, Kind: store.KindSystem}
}

func namespaceKey(name string) store.Key {
	return store.Key{Namespace: store.Registry, Kind: store.KindNamespace, ID: name}
}

func namespaceIDKey(id string) store.Key {
	return store.Key{Namespace: store.Registry, Kind: store.KindNamespaceID, ID: id}
}
