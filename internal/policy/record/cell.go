package record

import (
	"errors"
	"fmt"

	"github.com/weirlimits/weir/store"
)

// ErrOfCell matches every [*CellError].
var ErrOfCell = errors.New("the store belongs to a cell")

// KindShares is the kind of the record of the share of the limits that a cell's store has.
const KindShares store.Kind = "cell-shares"

// SharesKey is the key of the one record of [KindShares].
var SharesKey = store.Key{Namespace: "cells", Kind: KindShares}

// Cell is the part of a record of [KindShares] that names the cell to which the store belongs.
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
