package fleet

import (
	"context"
	"errors"
)

// ErrConflict says that a record's version is not the one that a write expected: somebody else wrote it.
var ErrConflict = errors.New("changed meanwhile")

// Coordinator keeps small records with versions. It decides nothing: all it must be able to do is to write on
// condition. All methods may be called concurrently, and each honours the deadline of its context.
//
// Reads see every write that succeeded before they began. A write whose outcome is unknown may still take effect,
// once, as long as the record has the version that it expects.
type Coordinator interface {
	// Get returns a record; one that does not exist has Version "".
	Get(ctx context.Context, name string) (Record, error)

	// Put writes value if the record's version is still the one given ("": if it does not exist), and returns the
	// new version. Else an error that matches [ErrConflict]. Values that differ have versions that differ; a fleet never
	// writes the same value twice.
	Put(ctx context.Context, name string, value []byte, version string) (string, error)

	// Delete removes a record. One that does not exist is no error.
	Delete(ctx context.Context, name string) error

	// List returns the records whose names begin with prefix, in any order. Those that are written or removed
	// meanwhile may be missing or not.
	List(ctx context.Context, prefix string) ([]Record, error)
}

// Record is a named value.
type Record struct {
	Name    string // letters, digits, - and /
	Version string // opaque; "" does not exist
	Value   []byte // not to be changed by the receiver
}

// The names of the records of a fleet.
const (
	grantsName   = "grants"
	reportPrefix = "worker/"
)
