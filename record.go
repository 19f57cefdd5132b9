package weir

import (
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
)

// MaxDepth is the maximum number of entities in a chain: an entity, its parent, and so on.
const MaxDepth = policy.MaxDepth

// DefaultResource is the name under which an entity's limits for all other resources are stored and shown. No entity,
// resource, limit or namespace can have this name.
const DefaultResource = record.DefaultResource

// DefaultNamespace is the namespace that exists in every store. Its opaque id is its name.
const DefaultNamespace = record.DefaultNamespace

func checkID(field, id string) error { return publicError(record.CheckID(field, id)) }

// publicError returns the error as this package defines it.
func publicError(err error) error {
	if bad, ok := err.(*record.FieldError); ok { //nolint:errorlint // one that is wrapped is not the caller's
		return &ConfigError{Field: bad.Field, Reason: bad.Reason}
	}
	return err
}
