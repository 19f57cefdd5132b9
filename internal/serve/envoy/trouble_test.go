package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/internal/serve/envoy"
)

// An entity that its namespace does not know is over its limit, alone or among others: it is neither left out nor an error,
// both of which admit.
func TestUnknownEntity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerHour("rph", 10))
	if err := admin.New(b.lim).Limits.SetEntities(t.Context(), admin.KnownEntities); err != nil {
		t.Fatal(err)
	}
	for _, ds := range [][]*ratelimitv3.RateLimitDescriptor{{entry("user=a")}, {entry("user=a"), entry("user=b")}} {
		resp := b.ask(ds...)
		if resp.GetOverallCode() != over || fact(resp, "reason") != "unknown entity" {
			t.Errorf("%d: %s", len(ds), resp)
		}
	}
}

// In a namespace at its quota of live buckets, the descriptors of a request that needs one more are over their limits.
func TestBucketQuota(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *weir.Config, _ *envoy.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
	b.set("", "", weir.PerHour("rph", 10))
	parts.Of(b.lim).Quota.Use(parts.QuotaRules{Most: 1})
	if resp := b.ask(entry("user=a")); resp.GetOverallCode() != ok {
		t.Errorf("the first: %s", resp)
	}
	for _, ds := range [][]*ratelimitv3.RateLimitDescriptor{{entry("user=b")}, {entry("user=a"), entry("user=b")}} {
		resp := b.ask(ds...)
		if resp.GetOverallCode() != over || fact(resp, "reason") != "the namespace has too many buckets" {
			t.Errorf("%d: %s", len(ds), resp)
		}
	}
}

// While Envoy waits, a failing store leads to an answer in time, never to an error.
func TestStoreInTrouble(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	down := func(context.Context) error { return errors.New("connection refused") }
	for name, trouble := range map[string]func(context.Context) error{"frozen": hang, "down": down} {
		for _, policy := range []weir.OnUnavailable{weir.OnUnavailableAllow, weir.OnUnavailableDeny, weir.OnUnavailableLocal} {
			for _, n := range []int{1, 3} {
				t.Run(fmt.Sprint(name, policy, n), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						b := setup(t, func(c *weir.Config, _ *envoy.Config) {
							c.OnUnavailable, c.DecideWithin = policy, 12*time.Millisecond
						})
						b.set("", "", weir.PerHour("rph", 10))
						ds := []*ratelimitv3.RateLimitDescriptor{entry("user=a"), entry("user=b"), entry("user=c")}[:n]
						b.ask(ds...)
						b.store.take.Store(&trouble)
						began := time.Now()
						want := code{ok, ok, ok}
						if policy == weir.OnUnavailableDeny {
							want = code{over, over, over}
						}
						resp := b.want(want, ds...)
						if took := time.Since(began); took > 12*time.Millisecond {
							t.Errorf("took %s", took)
						}
						if fact(resp, "degraded") != "true" || fact(resp, "reason") != "the store did not answer in time" {
							t.Errorf("%s", resp.DynamicMetadata)
						}
						if bound, want := fact(resp, "over"), map[weir.OnUnavailable]string{weir.OnUnavailableAllow: "-1", weir.OnUnavailableLocal: "10"}[policy]; bound != want {
							t.Errorf("over %s, want %s", bound, want)
						}
						if policy == weir.OnUnavailableLocal && resp.GetStatuses()[0].GetLimitRemaining() != 8 {
							t.Errorf("%v: 1 was spent before, 1 now", resp.GetStatuses()[0])
						}
						if strings.Contains(resp.String(), "refused\"") {
							t.Errorf("what the store says is nobody else's business: %s", resp)
						}
						b.store.take.Store(nil)
						if resp := b.want(code{ok, ok, ok}, ds...); fact(resp, "degraded") != "false" {
							t.Errorf("%s", resp.DynamicMetadata)
						}
					})
				})
			}
		}
	}
}

// Without a share of its cell's limits, a server refuses, and the reason is not that the store was late.
func TestNoShare(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *weir.Config, _ *envoy.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
	b.set("", "", weir.PerHour("rph", 10))
	for _, err := range []error{policy.NoShare(), &record.CellError{Cell: "eu-1"}} {
		trouble := func(context.Context) error { return err }
		b.store.take.Store(&trouble)
		resp := b.want(code{over}, entry("user=a"))
		if fact(resp, "reason") != "the server has no share of the limits" {
			t.Errorf("%v: %s", err, resp.DynamicMetadata)
		}
	}
}

// A slow return is still made, without Envoy waiting for it.
func TestSlowReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(_ *weir.Config, c *envoy.Config) { c.Within = 0 }) // the default
		b.set("", "", weir.PerHour("rph", 10))
		b.ask(hits(8, entry("user=alice")))
		slow := func(context.Context) error { time.Sleep(time.Second / 2); return nil }
		b.store.settle.Store(&slow)
		began := time.Now()
		resp := b.want(code{ok}, back(8, entry("user=alice")))
		if took := time.Since(began); took != 12*time.Millisecond || fact(resp, "degraded") != "true" {
			t.Errorf("took %s: %s", took, resp.DynamicMetadata)
		}
		b.wantLeft("alice", 2)
		b.svc.Close()
		b.wantLeft("alice", 10)
	})
}

// A caller that has left gets the error of its context, and nothing else happens.
func TestGone(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *weir.Config, _ *envoy.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
	b.set("", "", weir.PerHour("rph", 10))
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	for _, ds := range [][]*ratelimitv3.RateLimitDescriptor{{entry("user=a")}, {entry("user=a"), entry("user=b")}} {
		if _, err := b.svc.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: ds}); status.Code(err) != codes.Canceled {
			t.Errorf("got %v", err)
		}
	}
}
