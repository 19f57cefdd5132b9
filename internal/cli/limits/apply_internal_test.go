package limits

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest"
)

// A partial apply fails, whatever was wrong with the rest, but the store that does not answer has its own exit code.
func TestPartly(t *testing.T) {
	t.Parallel()
	bad := &weir.ConfigError{Field: "limits", Reason: "is bad"}
	for _, tt := range []struct {
		err  error
		want int
	}{
		{bad, kit.WrongUsage},
		{errors.Join(&manifest.FailedError{}, bad), kit.Failed},
		{errors.Join(&manifest.FailedError{}, weir.ErrNotFound), kit.Failed},
		{errors.Join(&manifest.FailedError{}, weir.ErrUnavailable), kit.Unavailable},
	} {
		if got := kit.CodeOf(partly(fmt.Errorf("apply: %w", tt.err))); got != tt.want {
			t.Errorf("%v: exit code %d, want %d", tt.err, got, tt.want)
		}
	}
}
