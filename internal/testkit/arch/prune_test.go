package arch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// callers links a program as shipped and returns the reachable functions that call methods by name. A single one makes
// the linker keep every method of every type, which doubles the binary.
func callers(t *testing.T, dir, pkg string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags="+shipped, "-ldflags=-dumpdep",
		"-o", filepath.Join(t.TempDir(), "program"), pkg)
	cmd.Dir = filepath.FromSlash(dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out[max(0, len(out)-2000):])
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		from, _, _ := strings.Cut(line, " -> ")
		if name, by := strings.CutSuffix(from, " <ReflectMethod>"); by {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestMethodsArePruned(t *testing.T) {
	t.Parallel()
	if found := callers(t, root, "./cmd/weir"); len(found) != 0 {
		t.Errorf("weir calls methods by name, in %q", found)
	}
}

func TestMethodByNameCaught(t *testing.T) {
	t.Parallel()
	if found := callers(t, ".", "./testdata/byname"); !slices.Contains(found, "main.main") {
		t.Errorf("found %q, want main.main among them", found)
	}
}
