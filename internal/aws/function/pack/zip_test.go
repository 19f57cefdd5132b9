package pack_test

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/aws/function/pack"
)

// maxProgram is the maximum size of the program in bytes, 11 MiB, because a cold start loads it.
const maxProgram = 11 << 20

// The package is one that Lambda accepts, small, and the same wherever it is built. A cold build takes more than a minute
// of CPU time, so only make test-lambda runs this test.
func TestZip(t *testing.T) {
	if os.Getenv("WEIR_TEST_LAMBDA") == "" {
		t.Skip("make test-lambda builds the package")
	}
	content, sum, err := pack.Zip(t.Context())
	must(t, err)
	root, err := filepath.Abs("../../../..")
	must(t, err)
	t.Chdir(root)
	if _, again, err := pack.Zip(t.Context()); err != nil || again != sum || len(sum) != 64 {
		t.Errorf("built again it is %s, not %s; error %v", again, sum, err)
	}
	zr, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	must(t, err)
	if len(zr.File) != 1 || zr.File[0].Name != "bootstrap" || zr.File[0].Mode() != 0o755 {
		t.Fatalf("holds %+v", zr.File[0].FileHeader)
	}
	f, err := zr.File[0].Open()
	must(t, err)
	program, err := io.ReadAll(f)
	must(t, err)
	t.Logf("%d bytes, %d zipped", len(program), len(content))
	if len(program) > maxProgram {
		t.Errorf("%d bytes: at most %d", len(program), maxProgram)
	}
	e, err := elf.NewFile(bytes.NewReader(program))
	must(t, err)
	if e.Machine != elf.EM_AARCH64 || e.Section(".interp") != nil || e.Section(".symtab") != nil {
		t.Errorf("for %s, linked dynamically: %v, with symbols: %v", e.Machine, e.Section(".interp") != nil, e.Section(".symtab") != nil)
	}
	if bytes.Contains(program, []byte(root)) {
		t.Error("names the folder in which it was built")
	}
}

// If there is no package, the error describes what to do.
func TestNone(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOPROXY", "off")
	if _, err := pack.Build(t.Context()); err == nil || !strings.Contains(err.Error(), "no source") || !strings.Contains(err.Error(), "use a released weir, which holds it, run in a clone of weir's repository") || !strings.Contains(err.Error(), "--code-bucket") {
		t.Errorf("without source: %v", err)
	}
	t.Setenv("PATH", "")
	if _, err := pack.Build(t.Context()); err == nil || !strings.Contains(err.Error(), "no go command") || !strings.Contains(err.Error(), "use a released weir") {
		t.Errorf("without Go: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
