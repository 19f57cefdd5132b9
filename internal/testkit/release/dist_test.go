package release_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// root is the module's root.
const root = "../../.."

// platform is this machine's, as make dist names it.
const platform = runtime.GOOS + "-" + runtime.GOARCH

// needDist skips a test that builds a release, which takes minutes where Go has not built the packages yet.
func needDist(t *testing.T) {
	t.Helper()
	if os.Getenv("WEIR_TEST_DIST") == "" {
		t.Skip("make test-dist builds the release")
	}
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "MAKEFLAGS=")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// clone clones the last commit into a folder of its own.
func clone(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "weir")
	run(t, ".", "git", "clone", "--quiet", "--shared", "--no-tags", root, dir)
	return dir
}

// dist makes the release of the last commit for this platform, in a clone, and returns its files by name.
func dist(t *testing.T) map[string][]byte {
	t.Helper()
	dir := clone(t)
	run(t, dir, "make", "dist", "PLATFORMS="+platform)
	paths, err := filepath.Glob(filepath.Join(dir, "dist", "*"))
	if err != nil || len(paths) != 4 {
		t.Fatalf("%q, error %v: not the program, its SBOM, the manual pages and the checksums", paths, err)
	}
	files := make(map[string][]byte)
	for _, path := range paths {
		if files[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// made is the release that all tests share.
var made struct {
	sync.Once
	files map[string][]byte
}

// shared makes the release once, and returns its files by name.
func shared(t *testing.T) map[string][]byte {
	t.Helper()
	made.Do(func() { made.files = dist(t) })
	if made.files == nil {
		t.Fatal("the release could not be made: see the other test")
	}
	return made.files
}

// TestDist makes the release of the last commit twice, in two folders. Both have the same bytes, and none of the
// folder's name; the checksums are those of the files, and the program prints the commit.
func TestDist(t *testing.T) {
	t.Parallel()
	needDist(t)
	first, second := shared(t), dist(t)
	for name, content := range first {
		if !bytes.Equal(content, second[name]) {
			t.Errorf("%s differs between two folders", name)
		}
	}
	program := "weir-" + platform
	for _, name := range []string{program, program + ".cdx.json", "weir-man.tar.gz"} {
		sum := sha256.Sum256(first[name])
		if line := hex.EncodeToString(sum[:]) + "  " + name + "\n"; !strings.Contains(string(first["SHA256SUMS"]), line) {
			t.Errorf("SHA256SUMS lacks %q:\n%s", line, first["SHA256SUMS"])
		}
	}
	if bytes.Contains(first[program], []byte(filepath.Dir(t.TempDir()))) {
		t.Error("the program names the folder in which it was built")
	}

	path := filepath.Join(t.TempDir(), "weir")
	if err := os.WriteFile(path, first[program], 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	commit := run(t, root, "git", "rev-parse", "HEAD")
	for _, arg := range []string{"version", "--version"} {
		if got := run(t, t.TempDir(), path, arg); !strings.Contains(got, "(commit "+commit+")") || !strings.HasPrefix(got, "weir v") {
			t.Errorf("weir %s prints %q, not commit %s", arg, got, commit)
		}
	}
}
