// Package parts gives the packages of this module that manage or serve a limiter what the limiter is put together from.
package parts

import (
	"context"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Parts are what a limiter is put together from.
type Parts struct {
	Store    store.Store // each call is bounded and observed
	Usage    store.Usage // the same store; nil if it keeps no usage
	Policies Policies
	Flush    func(context.Context) // hands the usage counted in this process to the store
}

// Policies are the limits of the limiter's namespace, as decisions use them.
type Policies interface {
	// ID returns the namespace's opaque id.
	ID(ctx context.Context) (string, error)
	// Commit writes records of a namespace and the audit events of the change in one atomic step. It is the only way to
	// write to the catalog. Decisions of this process follow the change when Commit returns, also after an error,
	// because the step may have been made.
	Commit(ctx context.Context, namespaceID string, events []record.Event, writes ...store.Write) error
	// Changed makes decisions read records again that were changed elsewhere.
	Changed(keys ...store.Key)
}

// Handle is embedded in a limiter and leads to its parts.
type Handle struct{ parts Parts }

// Join returns a handle for parts.
func Join(p Parts) Handle { return Handle{p} }

func (h *Handle) reach() Parts { return h.parts }

// Of returns the parts of a limiter.
func Of(limiter interface{ reach() Parts }) Parts { return limiter.reach() }
