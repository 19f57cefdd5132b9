package load_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/load"
	"github.com/weirlimits/weir/internal/lab/traffic"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func limiter(t testing.TB, m *load.Meter) (*weir.Limiter, store.Store) {
	t.Helper()
	st := memory.New(nil)
	lim, err := weir.New(weir.Config{Store: st, Observer: m.Observer()})
	must(t, err)
	t.Cleanup(func() { must(t, lim.Close()) })
	return lim, st
}

// pass lets virtual time pass, as a target that answers late does.
func pass(d time.Duration) { <-time.NewTimer(d).C }

// takes is a target that answers after a while: otherwise virtual time would stand still if users do not wait.
type takes struct {
	load.Target
	d time.Duration
}

func (s takes) Acquire(ctx context.Context, c *traffic.Call) (load.Held, error) {
	pass(s.d)
	return s.Target.Acquire(ctx, c)
}

// fake is a target made of functions.
type fake struct {
	mu      sync.Mutex
	acquire func(c *traffic.Call) (load.Held, error)
}

func (f *fake) Acquire(_ context.Context, c *traffic.Call) (load.Held, error) { return f.acquire(c) }

func (*fake) Available(context.Context, *traffic.Call) error { return nil }

// direct sends requests to a handler without a socket.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	in := r.Clone(r.Context())
	in.RequestURI = in.URL.RequestURI()
	in.Host = in.URL.Host
	if in.Body == nil {
		in.Body = http.NoBody
	}
	d.ServeHTTP(w, in)
	return w.Result(), nil
}
