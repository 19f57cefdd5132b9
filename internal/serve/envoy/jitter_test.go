package envoy_test

import (
	"strconv"
	"testing"

	"github.com/weirlimits/weir"
)

// No refused client gets too early a time to come back, and not all clients get the same time.
func TestRetryAfterIsSpread(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 1))
	b.want(code{ok}, entry("user=alice"))
	told := make(map[int]bool)
	for range 200 {
		after, err := strconv.Atoi(header(b.want(code{over}, entry("user=alice")), "Retry-After"))
		if err != nil || after < 60 || after > 78 {
			t.Fatalf("Retry-After %d (%v), want 60 to 78", after, err)
		}
		told[after] = true
	}
	if len(told) < 10 {
		t.Errorf("%d different values of Retry-After", len(told))
	}
}
