package policy

import (
	"testing"
	"unsafe"
)

// TestSize checks that what is kept for each entity in use is small, and that Allow touches two cache lines of a policy.
func TestSize(t *testing.T) {
	t.Parallel()
	var p Policy
	if n, of := unsafe.Sizeof(p), unsafe.Sizeof(Target{}); (n > 240 || of > 64) && unsafe.Sizeof(uintptr(0)) == 8 {
		t.Errorf("a policy takes %d bytes and a target %d, at most 240 and 64 are allowed", n, of)
	}
	if end := unsafe.Offsetof(p.Refused) + unsafe.Sizeof(p.Refused); end > 128 {
		t.Errorf("what Allow touches ends at %d bytes, at most 128 are allowed", end)
	}
}
