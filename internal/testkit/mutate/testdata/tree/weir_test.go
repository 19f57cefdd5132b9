package weir

import (
	"os"
	"testing"
)

func TestFits(t *testing.T) {
	if _, err := os.Stat("../e2e/node_modules/engine"); err != nil {
		t.Fatal(err) // files that git ignores are available beside the copy
	}
	if !Fits(1, 1) {
		t.Error("one does not fit into one")
	}
}

func TestBroken(t *testing.T) { t.Error("fails with and without a mutant") }
