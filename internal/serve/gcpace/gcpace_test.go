package gcpace_test

import (
	"runtime"
	"testing"

	"github.com/weirlimits/weir/internal/serve/gcpace"
)

var sink []byte

// collections returns how many collections the allocation of n bytes in small pieces causes.
func collections(n int) uint32 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n >> 10 {
		sink = make([]byte, 1<<10)
	}
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

// TestLeast checks that the heap grows by at least as much as was set between two collections, and that a heap that is
// larger grows as before.
func TestLeast(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	gcpace.Least(64 * mb)
	runtime.GC()
	if n := collections(256 * mb); n > 4 {
		t.Errorf("256 MB were collected %d times", n)
	}
	large := make([][]byte, 128) // in use
	for i := range large {
		large[i] = make([]byte, mb)
	}
	for range 2 { // the finalizer runs after the first
		runtime.GC()
		runtime.Gosched()
	}
	if n := collections(512 * mb); n < 2 {
		t.Errorf("512 MB were collected %d times while 128 MB were in use", n)
	}
	runtime.KeepAlive(large)
}
