package weir

import "testing"

func TestFits(t *testing.T) {
	if !Fits(1, 1) {
		t.Error("one does not fit into one")
	}
}

func TestBroken(t *testing.T) { t.Error("fails with and without a mutant") }
