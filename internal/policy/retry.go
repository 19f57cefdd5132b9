// Package policy finds which limits apply to an entity on a resource, and keeps them until the records of the catalog
// change.
package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimits/weir/store"
)

// Errors of changes and lookups.
var (
	// ErrConflict reports that others kept changing the same records.
	ErrConflict = errors.New("changed in the meantime")
	// ErrNotFound reports that a namespace, an entity or a set of limits does not exist.
	ErrNotFound = errors.New("not found")
)

// MaxTries is how often a change is attempted when others change the same records.
const MaxTries = 12

// Retry repeats a change that starts with a read, until nobody else changes the same records in between. Its errors
// begin with what is changed.
func Retry(ctx context.Context, what string, try func() error) error {
	for i := range MaxTries {
		err := try()
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		pause := time.NewTimer(rand.N(time.Millisecond << min(i, 6)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
	return fmt.Errorf("%s: %w", what, ErrConflict)
}
