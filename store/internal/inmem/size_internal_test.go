package inmem

import (
	"testing"
	"unsafe"
)

// TestSize checks that a bucket is small enough for millions of them, and that a decision touches one cache line of it.
func TestSize(t *testing.T) {
	t.Parallel()
	var b Bucket
	if n := unsafe.Sizeof(b); n > 96 && unsafe.Sizeof(uintptr(0)) == 8 {
		t.Errorf("a bucket takes %d bytes, at most 96 are allowed", n)
	}
	if end := unsafe.Offsetof(b.first) + unsafe.Offsetof(b.first.returned); end > 64 {
		t.Errorf("what a decision touches ends at %d bytes, at most 64 are allowed", end)
	}
}
