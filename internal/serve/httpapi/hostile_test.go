package httpapi_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// TestHostileManifest checks that no text takes more memory than a large honest one.
//
//nolint:paralleltest // what the whole process allocates is measured
func TestHostileManifest(t *testing.T) {
	f := setup(t, httpapi.Config{})
	allocated := func(body string, status int) (mib uint64) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		a := f.do(t, "POST", "/v1/manifests/validate", body)
		runtime.ReadMemStats(&after)
		if a.Code != status {
			t.Fatalf("%.20q…: got %d, want %d: %.300s", body, a.Code, status, a.Body)
		}
		return (after.TotalAlloc - before.TotalAlloc) >> 20
	}
	for _, piece := range []string{"a,", ",", `""`, "*a ", "a: ", "[a],", "a:\n", "- a\n", "? a\n", "'a',", "?\u0085"} {
		if mib := allocated("["+strings.Repeat(piece, 2<<20/len(piece)), 413); mib > 64 {
			t.Errorf("%d MiB were allocated for what is refused: %q", mib, piece)
		}
	}
	most := "[" + strings.Repeat("a,", 245_000) // the most expensive of those above
	if mib := allocated(most, 400); mib > 600 {
		t.Errorf("%d MiB were allocated for %d KiB of a manifest", mib, len(most)>>10)
	}
}
