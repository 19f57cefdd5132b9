package httpapi_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// The same id, 1,000 times at once, adds once; so it does after answers that were never read, and requests that their
// clients gave up. The history has it once.
func TestBalanceAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	f.must(t, 200, "PUT", "/v1/limits?entity=alice&resource=_total_", `{"limits":["credits:balance"]}`)
	const path, body = "/v1/entities/alice/balances/credits", `{"amount":5,"id":"inv-1"}`
	var first atomic.Int64
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for k := range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+k)%7 == 0 {
					cancel()
				}
				r := httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				a := f.send(t, r)
				if cancel(); a.Code == 200 && a.JSON["repeated"] == nil {
					first.Add(1)
				} else if a.Code == 200 && a.JSON["available"] != 5.0 {
					t.Errorf("%s", a.Body)
				}
			}
		})
	}
	all.Wait()
	a := f.must(t, 200, "POST", path, body)
	if n := first.Load(); n > 1 || a.JSON["repeated"] != true || a.JSON["available"] != 5.0 {
		t.Errorf("first %d times; then %s", n, a.Body)
	}
	if a := f.must(t, 200, "GET", path+"/history", ""); strings.Count(a.Body.String(), "inv-1") != 1 {
		t.Errorf("%s", a.Body)
	}
}
