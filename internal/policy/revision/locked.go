package revision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
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

// Again makes a commit of a lock's holder, which asserts the version of the manifest's record. It makes it once more if
// the record has another version but still the lock's token: a commit whose answer was lost has written it.
func Again(
	ctx context.Context, from store.Catalog, key store.Key, token string, version *uint64, commit func() error,
) error {
	err := commit()
	if !errors.Is(err, store.ErrConflict) {
		return err
	}
	now, bad := from.Get(ctx, key)
	if bad != nil || now.Records[0].Version == 0 {
		return cmp.Or(bad, err)
	}
	var m record.Manifest
	if bad = record.Decode(now.Records[0], &m); bad != nil || m.Lock == nil || m.Lock.Token != token {
		return cmp.Or(bad, err)
	}
	*version = now.Records[0].Version
	return commit()
}
