package governor

import (
	"context"

	"github.com/weirlimits/weir/internal/fleet"
	"github.com/weirlimits/weir/internal/fleet/rates"
)

// Coordinator keeps the small, versioned records over which governors share their limits. It makes no decisions; all it
// must support is conditional writes: Get returns a [Record], with an empty Version if there is none; Put writes it if
// its version is still the one given, or returns an error that matches [ErrConflict]; Delete removes it; List returns
// the records whose names begin with a prefix. Packages s3coord and storecoord implement it, and [Memory] within one
// process.
type Coordinator = fleet.Registry

// Record is a named value: Name, Version and Value.
type Record = fleet.Record

// Memory is a [Coordinator] in this process's memory, for tests and for several governors in one process. The zero
// value is empty and ready to use.
type Memory = fleet.Memory

// ErrConflict reports that a record does not have the version that a write expected, because another process wrote it.
var ErrConflict = fleet.ErrConflict

// JoinError reports that a governor could not join the others, because their records cannot be read or written: Op is
// the step that failed, Err the cause.
type JoinError = fleet.JoinError

// FleetStatus is the state of a governor among those that share its coordinator.
type FleetStatus = rates.Status

// FleetView is the state of all governors that share a coordinator, as their records show it.
type FleetView = rates.View

// Inspect reads the current records of a coordinator. It writes nothing and does not join. If no governor has used the
// coordinator yet, the view is empty.
func Inspect(ctx context.Context, c Coordinator) (FleetView, error) { return rates.Inspect(ctx, c) }
