package httplimit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/httplimit"
	"github.com/weirlimits/weir/weirtest"
)

// TestSlots checks that a request holds its slot until the handler has returned or panicked, whatever it cost.
func TestSlots(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 100), weir.Limit{Name: "parallel", Slots: 1})
	cfg := config(l, new(strings.Builder))
	var h http.Handler
	h = wrap(t, cfg, func(w http.ResponseWriter, r *http.Request) {
		wantStatus(t, do(t, h, "alice"), http.StatusTooManyRequests)
		if r.URL.Path == "/cost" {
			_ = httplimit.SetCost(r.Context(), weir.Tokens{"rpm": 2})
		}
		if httplimit.Lease(r.Context()).Context().Err() != nil || r.Context().Err() != nil {
			t.Error("the slot is lost")
		}
		if r.URL.Path == "/panic" {
			panic("no")
		}
	})
	for _, path := range []string{"/", "/cost", "/panic", "/", "/panic", "/cost", "/"} {
		r := request(t, "alice")
		r.URL.Path = path
		func() {
			defer func() {
				if panics := recover() != nil; panics != (path == "/panic") {
					t.Errorf("%s: panics %t", path, panics)
				}
			}()
			wantStatus(t, send(h, r), http.StatusOK)
		}()
	}
}
