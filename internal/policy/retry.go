// Package policy finds which limits apply to an entity on a resource, and keeps them until the records of the catalog
// change.
package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimits/weir/internal/policy/source"
	"github.com/weirlimits/weir/store"
)

// Errors of changes and lookups.
var (
	// ErrConflict reports that others kept changing the same records.
	ErrConflict = source.ErrConflict
	// ErrNotFound reports that a namespace, an entity or a set of limits does not exist.
	ErrNotFound = errors.New("not found")
)

// MaxTries is how often a change is attempted when others change the same records.
const MaxTries = 12

// Retry repeats a change that starts with a read until nobody else changes what it read. what begins its errors.
func Retry(ctx context.Context, what string, try func() error) error {
	return retry(ctx, what, MaxTries, try)
}

// retry is [Retry] with a number of tries. It pauses in proportion to how long a try takes.
func retry(ctx context.Context, what string, tries int, try func() error) error {
	for i := range tries {
		began := time.Now()
		err := try()
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		pause := time.NewTimer(rand.N(max(time.Since(began), 2*time.Millisecond) << min(i, 4)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
	return fmt.Errorf("%s: %w", what, ErrConflict)
}
