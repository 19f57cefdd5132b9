package record

import (
	"errors"
	"fmt"
)

// Errors of lookups.
var (
	// ErrUnknownEntity matches every [*UnknownEntityError].
	ErrUnknownEntity = errors.New("unknown entity")
	// ErrNoLimits matches every [*NoLimitsError].
	ErrNoLimits = errors.New("no limits apply")
)

// NoLimitsError reports that no scope has limits for an entity on a resource.
type NoLimitsError struct{ Entity, Resource string }

// Error names the scopes that were checked.
func (e *NoLimitsError) Error() string {
	return fmt.Sprintf("no limits apply to entity %q on resource %q: set some for the entity, the resource or the "+
		"system", e.Entity, e.Resource)
}

// Is reports whether target is [ErrNoLimits].
func (e *NoLimitsError) Is(target error) bool { return target == ErrNoLimits }

// UnknownEntityError reports a request for an entity that was never created, in a namespace that takes no others.
type UnknownEntityError struct{ Entity string }

// Error names the entity.
func (e *UnknownEntityError) Error() string {
	return fmt.Sprintf("unknown entity %q: this namespace only takes requests for entities that were created: create "+
		"it: weir entity create ID", e.Entity)
}

// Is reports whether target is [ErrUnknownEntity].
func (e *UnknownEntityError) Is(target error) bool { return target == ErrUnknownEntity }
