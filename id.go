package weir

import (
	"github.com/weirlimits/weir/internal/policy/record"
)

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
