package serve

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/policy/lastgood"
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
		f := backstopFlags{Instances: tt.instances, LocalMax: "100%"}
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

func TestLocalMax(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"1%": 1, "50%": 50, "100%": 100, "0%": 0, "101%": 0, "50": 0, "": 0, "half": 0, "-5%": 0, "1.5%": 0,
	} {
		f := backstopFlags{Instances: "auto", LocalMax: text}
		s := &serving{run: &kit.Run{}}
		if err := f.check(); (err == nil) != (want > 0) {
			t.Errorf("%q: %v", text, err)
		}
		if err := f.open(t.Context(), s); err == nil && s.run.Config.LocalMax != want {
			t.Errorf("%q: %d percent", text, s.run.Config.LocalMax)
		}
	}
}

// A server begins with the number of servers in the file of the last known limits.
func TestInstancesFromFile(t *testing.T) {
	t.Parallel()
	known, err := lastgood.Open(filepath.Join(t.TempDir(), "known"), "redis://x")
	if err != nil {
		t.Fatal(err)
	}
	known.SetInstances(4)
	s := &serving{parts: &parts{}, run: &kit.Run{}, log: slog.New(slog.DiscardHandler)}
	s.run.Store, s.config.known, s.backstop.Instances = "redis://x", known, "auto"
	if err := s.backstop.start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if n := s.backstop.count(); n != 4 {
		t.Errorf("%d servers, want 4", n)
	}
}
