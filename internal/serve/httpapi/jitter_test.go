package httpapi_test

import (
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// No refused client gets too early a time to come back, and not all clients get the same time.
func TestRetryAfterIsSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{})
		f.acquire(t, "1000")
		told := make(map[int]bool)
		for range 200 {
			a := f.must(t, 429, "POST", "/v1/acquire", `{"entity":"alice","resource":"gpt-4","tokens":{"rpm":1,"tpm":1000}}`)
			after, err := strconv.Atoi(a.Header().Get("Retry-After"))
			if err != nil || after < 60 || after > 78 {
				t.Fatalf("Retry-After %d (%v), want 60 to 78", after, err)
			}
			told[after] = true
		}
		if len(told) < 10 {
			t.Errorf("%d different values of Retry-After", len(told))
		}
	})
}
