package record

import (
	"errors"
	"fmt"

	"github.com/weirlimits/weir/store"
)

// Errors of lookups.
var (
	// ErrUnknownEntity matches every [*UnknownEntityError].
	ErrUnknownEntity = errors.New("unknown entity")
	// ErrNoLimits matches every [*NoLimitsError].
	ErrNoLimits = errors.New("no limits apply")
	// ErrOfCell matches every [*CellError].
	ErrOfCell = errors.New("the store belongs to a cell")
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

// KindShares is the kind of the record of the share that the cell has to which a store belongs, and SharesKey its key.
const KindShares store.Kind = "cell-shares"

// SharesKey is the key of the one record of [KindShares].
var SharesKey = store.Key{Namespace: "cells", Kind: KindShares}

// Cell is of a record of [KindShares] what shows which cell the store belongs to.
type Cell struct {
	Cell  string `json:"cell"`
	Birth string `json:"birth"` // of the cell's membership; "" if it has none
}

// Err returns a [*CellError] if the store belongs to a cell.
func (c *Cell) Err() error {
	if c == nil || c.Birth == "" {
		return nil
	}
	return &CellError{c.Cell}
}

// CellError reports that a process decides with whole limits on the store of a cell, which has only a share of them.
type CellError struct{ Cell string }

// Error names the cell, and what to do.
func (e *CellError) Error() string {
	return fmt.Sprintf("the store belongs to cell %q, which has only a share of the limits: give --cell %[1]s, or let "+
		"the program call a server of the cell", e.Cell)
}

// Is reports whether target is [ErrOfCell].
func (e *CellError) Is(target error) bool { return target == ErrOfCell }
