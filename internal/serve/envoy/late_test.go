package envoy_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/envoy"
	"github.com/weirlimits/weir/store"
)

const within = 60 * time.Millisecond

func bounded(c *weir.Config, r *envoy.Config) {
	c.OnUnavailable, c.DecideWithin, c.StoreTimeout, r.Within = weir.OnUnavailableAllow, within, time.Second, within
}

func hang(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// crowd returns descriptors of 100 users.
func crowd() (ds []*ratelimitv3.RateLimitDescriptor) {
	for i := range 100 {
		ds = append(ds, entry(fmt.Sprint("user=u", i)))
	}
	return ds
}

// inTime checks that a function takes at most so long.
func inTime(t *testing.T, most time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > most {
		t.Errorf("took %s", took)
	}
}

// The decision and the returns after it share the time that Envoy waits.
func TestFrozenTakeAndReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, bounded)
		b.set("", "", weir.PerHour("rph", 10))
		b.ask(entry("user=a"), entry("user=b"))
		frozen := hang
		b.store.take.Store(&frozen)
		b.store.settle.Store(&frozen)
		inTime(t, within, func() { b.want(code{ok, ok}, entry("user=a"), back(1, entry("user=b"))) })
	})
}

// Returns to many buckets are made concurrently, so a frozen store delays the shutdown no longer than for one.
func TestFrozenReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, bounded)
		b.set("", "", weir.PerHour("rph", 10))
		ds := crowd()
		for i, d := range ds {
			ds[i] = back(1, d)
		}
		b.ask(ds...)
		frozen := hang
		b.store.settle.Store(&frozen)
		inTime(t, time.Second, func() {
			b.ask(ds...)
			b.svc.Close()
		})
	})
}

// If the store panics during a return, when Envoy may already have its answer, the process does not end.
func TestReturnPanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerHour("rph", 10))
	boom := func(context.Context) error { panic("boom") }
	b.store.settle.Store(&boom)
	if resp := b.want(code{ok}, back(1, entry("user=a"))); fact(resp, "degraded") != "true" {
		t.Errorf("%s", resp.DynamicMetadata)
	}
}

// slowCatalog takes a while to answer that it has nothing.
type slowCatalog struct{ store.Store }

func (s slowCatalog) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	time.Sleep(10 * time.Millisecond) // real time: none, all callers are in a bubble
	return s.Store.Get(ctx, keys...)
}

// However many descriptors turn out to have no limits, Envoy waits only as long as for one decision.
func TestManyUnknownInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, bounded, func(c *weir.Config, _ *envoy.Config) { c.Store = slowCatalog{c.Store} })
		inTime(t, within, func() { b.ask(crowd()...) })
	})
}

// Envoy may send 100 descriptors, and waits no longer for them than for one if the store is frozen.
func TestManyInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, bounded)
		b.set("", "", weir.PerHour("rph", 10))
		b.ask(crowd()...)
		frozen := hang
		b.store.take.Store(&frozen)
		inTime(t, within, func() { b.ask(crowd()...) })
	})
}

// TestNoTurn checks that a request whose turn to call the store does not come gets no answer about its limits, like one
// that the server refuses at once.
func TestNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, bounded)
		b.set("", "", weir.PerHour("rph", 10))
		parts.Of(b.lim).Gate.Use(func(context.Context, string, int) (func(), error) { return nil, decide.ErrOverloaded })
		for _, ds := range [][]*ratelimitv3.RateLimitDescriptor{
			{entry("user=a")}, {entry("user=a"), entry("user=b")}, {back(1, entry("user=a"))},
		} {
			_, err := b.svc.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: ds})
			if status.Code(err) != codes.Unavailable {
				t.Errorf("got %v", err)
			}
		}
	})
}

// TestReturnsTakeTurns checks that returns call the store in their turn, and that it then is somebody else's.
func TestReturnsTakeTurns(t *testing.T) {
	t.Parallel()
	b := setup(t, bounded)
	b.set("", "", weir.PerHour("rph", 10))
	var turns, settled atomic.Int64
	parts.Of(b.lim).Gate.Use(func(_ context.Context, _ string, n int) (func(), error) {
		turns.Add(int64(n))
		return func() { turns.Add(-int64(n)) }, nil
	})
	settle := func(context.Context) error {
		if settled.Add(1); turns.Load() != 3 {
			t.Errorf("%d may call", turns.Load())
		}
		return nil
	}
	b.store.settle.Store(&settle)
	b.ask(back(1, entry("user=a")), back(1, entry("user=b")), back(1, entry("user=c")))
	b.svc.Close()
	if turns.Load() != 0 || settled.Load() != 3 {
		t.Errorf("%d were settled, %d turns are left", settled.Load(), turns.Load())
	}
}
