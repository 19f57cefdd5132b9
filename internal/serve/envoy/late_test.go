package envoy_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/envoy"
	"github.com/weirlimits/weir/store"
)

const within = 60 * time.Millisecond

func bounded(c *weir.Config, r *envoy.Config) {
	c.OnUnavailable, c.DecideWithin, c.StoreTimeout, r.Within = weir.OnUnavailableAllow, within, time.Second, within
}

func hang(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

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
		began := time.Now()
		b.want(code{ok, ok}, entry("user=a"), back(1, entry("user=b")))
		if took := time.Since(began); took > within {
			t.Errorf("took %s", took)
		}
	})
}

// Returns to many buckets are made concurrently, so a frozen store delays the shutdown no longer than for one.
func TestFrozenReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, bounded)
		b.set("", "", weir.PerHour("rph", 10))
		var ds []*ratelimitv3.RateLimitDescriptor
		for i := range 100 {
			ds = append(ds, back(1, entry(fmt.Sprint("user=u", i))))
		}
		b.ask(ds...)
		frozen := hang
		b.store.settle.Store(&frozen)
		began := time.Now()
		b.ask(ds...)
		b.svc.Close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %s", took)
		}
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
		var ds []*ratelimitv3.RateLimitDescriptor
		for i := range 100 {
			ds = append(ds, entry(fmt.Sprint("user=u", i)))
		}
		began := time.Now()
		b.ask(ds...)
		if took := time.Since(began); took > within {
			t.Errorf("took %s", took)
		}
	})
}
