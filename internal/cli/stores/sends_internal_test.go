package stores

import (
	"testing"

	"github.com/weirlimits/weir/internal/api/secret"
)

// An operator is warned of a server that may lose everything.
func TestWarning(t *testing.T) {
	t.Parallel()
	for address, want := range map[secret.Address]bool{
		"redis://x": false, "redis://x?volatile=false": false, "redis://x?volatile=true": true,
		"valkeys+cluster://x,y?prefix=a&volatile=true": true, "disk:x?volatile=true": false, "redis://x?%zz": false,
	} {
		if got := Warning(address); (got != "") != want {
			t.Errorf("%s: %q", address, got)
		}
	}
}
