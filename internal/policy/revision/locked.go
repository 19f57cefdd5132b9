package revision

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/policy"
)

// LockedError reports that another process is applying a manifest.
type LockedError struct {
	Manifest string
	By       string    // the holder of the lock
	Until    time.Time // when the lock expires
}

// Error names the manifest, the holder of the lock, and when it expires.
func (e *LockedError) Error() string {
	return fmt.Sprintf("manifest %q is being applied by %s: retry when they are done, or at %s when the lock expires",
		e.Manifest, strings.TrimSpace(e.By), e.Until.UTC().Format(time.RFC3339))
}

// Is reports whether target is [policy.ErrConflict].
func (e *LockedError) Is(target error) bool { return target == policy.ErrConflict }
