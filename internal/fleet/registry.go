package fleet

import (
	"context"
	"errors"
)

// ErrConflict reports that a record does not have the version that a write expected, because another process wrote it.
var ErrConflict = errors.New("changed in the meantime")

// Registry keeps small, versioned records. It makes no decisions; all it must support is conditional writes. All
// methods may be called concurrently, and each respects the deadline of its context.
//
// Reads see every write that succeeded before they began. A write whose outcome is unknown may still take effect, once,
// as long as the record has the version that the write expects.
type Registry interface {
	// Get returns a record. If it does not exist, its Version is "".
	Get(ctx context.Context, name string) (Record, error)

	// Put writes value if the record still has the given version ("" if it must not exist), and returns the new
	// version. Otherwise it returns an error that matches [ErrConflict]. Different values have different versions; a
	// fleet never writes the same value twice.
	Put(ctx context.Context, name string, value []byte, version string) (string, error)

	// Delete removes a record. It is not an error if the record does not exist.
	Delete(ctx context.Context, name string) error

	// List returns the records whose names begin with prefix, in any order. Records that are written or removed during
	// the call may or may not be included.
	List(ctx context.Context, prefix string) ([]Record, error)
}

// Record is a named value.
type Record struct {
	Name    string // letters, digits, - and /
	Version string // opaque; "" if the record does not exist
	Value   []byte // the receiver must not modify it
}

// The names of the records of a fleet: its grants, and the members' reports.
const (
	GrantsName   = "grants"
	ReportPrefix = "worker/"
)
