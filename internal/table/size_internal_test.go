package table

import (
	"testing"
	"unsafe"
)

// TestSize holds a bucket to the room that millions of them may take, and what a decision touches to one cache line.
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
