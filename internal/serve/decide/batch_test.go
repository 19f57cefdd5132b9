package decide_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/store/memory"
)

// TestBatchInProcess checks that a batch is decided by one goroutine, however long its decisions take, if the store
// never waits.
func TestBatchInProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		lim, err := weir.New(weir.Config{Store: memory.New(nil)})
		must(err)
		defer lim.Close()
		must(admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerSecond("rps", 100)))
		d, err := decide.New(decide.Config{Limiter: lim})
		must(err)
		const size = 20
		b, err := decide.NewBatch(d, &decide.Caller{Principal: auth.Anybody()}, size, false)
		must(err)
		for range size {
			must(b.Add("", &weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": 1}}))
		}
		began := time.Now()
		b.Each(t.Context(), slog.Attr{}, func(_ int, _ *weir.Limiter, _ *weir.Lease, err error) {
			must(err)
			time.Sleep(10 * time.Millisecond)
		})
		if took := time.Since(began); took != size*10*time.Millisecond {
			t.Errorf("took %s", took)
		}
	})
}
