// Package pagetest keeps generated pages of docs/reference equal to what they are generated from.
package pagetest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update-pages", false, "rewrite the pages of docs/reference")

// Equal fails unless the page docs/reference/NAME has the text, or writes it with -update-pages.
func Equal(t *testing.T, name, text string) {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	file := filepath.Join(dir, "docs", "reference", name)
	if *update {
		err = os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // everybody may read a page
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, want := strings.Split(string(page), "\n"), strings.Split(text, "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("docs/reference/%s differs from line %d on: run this test with -update-pages", name, i+1)
		}
	}
}
