package serve

import (
	"log/slog"
	"testing"

	"github.com/weirlimits/weir/internal/api/secret"
)

// How servers are counted depends on the store and on --instances.
func TestInstances(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		instances, store string
		ok, counts       bool
		before           int // before any server is counted
	}{
		{"auto", "redis://x", true, true, 1},
		{"auto", "disk:x", true, false, 1},
		{"7", "redis://x", true, false, 7},
		{"dns:weir.svc", "dynamodb://x", true, true, 1},
		{"dns:weir.svc", "memory:", true, false, 1},
		{"dns:", "redis://x", false, false, 1},
		{"dns:weir.svc:8080", "redis://x", false, false, 1}, // never resolves
		{"dns://weir.svc", "redis://x", false, false, 1},
		{"0", "redis://x", false, false, 1},
	} {
		f := backstopFlags{Instances: tt.instances}
		if err := f.check(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.instances, err)
		}
		if p := f.task(secret.Address(tt.store), nil, slog.New(slog.DiscardHandler)); tt.ok && (p != nil) != tt.counts {
			t.Errorf("%s on %s: counts %v", tt.instances, tt.store, p != nil)
		}
		if n := f.count(); n != tt.before {
			t.Errorf("%s: %d before anything is counted", tt.instances, n)
		}
	}
}
