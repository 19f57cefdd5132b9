package envoy_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/envoy"
)

// without refuses accesses that need a permission.
func without(p auth.Permission) func(*weir.Config, *envoy.Config) {
	return func(_ *weir.Config, c *envoy.Config) {
		c.May = func(_ context.Context, a auth.Access) bool { return !slices.Contains(a.Permissions, p) }
		c.Refused = func(_ context.Context, a auth.Access) {
			if p == auth.Return {
				panic("without the permission return, returns are bounded, not refused")
			}
		}
	}
}

// TestReturnsAreBounded checks that a caller without the permission return gives back what its descriptor took lately,
// and no more.
func TestReturnsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, without(auth.Return))
		b.set("", "", weir.PerHour("rph", 100))
		spend := func(entity string, n int64) { // by somebody else
			if _, err := b.lim.Acquire(b.ctx, weir.Request{Entity: entity, Resource: "edge", Requests: n}); err != nil {
				t.Fatal(err)
			}
		}
		const unproven = "more is returned than was taken lately"
		spend("alice", 50)
		if resp := b.want(code{ok}, back(5, entry("user=alice"))); fact(resp, "reason") != unproven {
			t.Errorf("got %v", resp)
		}
		b.wantLeft("alice", 50)
		b.want(code{ok}, hits(8, entry("user=alice")))
		if resp := b.want(code{ok}, back(3, entry("user=alice"))); fact(resp, "reason") != "" {
			t.Errorf("got %v", resp)
		}
		b.wantLeft("alice", 45)
		if resp := b.want(code{ok}, back(1000, entry("user=alice"))); fact(resp, "reason") != unproven {
			t.Errorf("got %v", resp)
		}
		b.want(code{ok}, back(1, entry("user=alice")))
		b.wantLeft("alice", 50)

		// Of another entity, resource or limit.
		spend("bob", 50)
		b.want(code{ok}, hits(8, entry("user=alice")))
		b.want(code{ok, ok}, back(8, entry("user=bob")), back(8, entry("user=alice", "path=/other")))
		b.want(code{ok}, back(8, limited(5, typev3.RateLimitUnit_HOUR, entry("user=alice"))))
		b.wantLeft("bob", 50)
		b.wantLeft("alice", 42)

		// What is refused, or only checked, took nothing.
		b.want(code{over}, hits(43, entry("user=alice")))
		b.want(code{ok}, hits(0, entry("user=alice")))
		b.want(code{ok}, back(43, entry("user=alice")))
		b.wantLeft("alice", 50)

		// What was taken long ago is not returned, but what was taken five minutes ago is.
		b.want(code{ok}, hits(10, entry("user=alice")))
		time.Sleep(5*time.Minute - time.Second)
		b.want(code{ok}, back(4, entry("user=alice")))
		b.wantLeft("alice", 44)
		time.Sleep(10 * time.Minute)
		b.want(code{ok}, back(4, entry("user=alice")))
		b.wantLeft("alice", 44)
	})
}

// TestReturnsOfAnOutage checks that what was admitted without the store, which debited nothing, is not returned.
func TestReturnsOfAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t, without(auth.Return))
	b.set("", "", weir.PerHour("rph", 10))
	if err := admin.New(b.lim).Limits.SetOnUnavailable(b.ctx, admin.Scope{}, weir.OnUnavailableAllow); err != nil {
		t.Fatal(err)
	}
	if _, err := b.lim.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "edge", Requests: 5}); err != nil {
		t.Fatal(err)
	}
	fail := func(context.Context) error { return errors.New("broken") }
	b.store.take.Store(&fail)
	b.want(code{ok}, hits(5, entry("user=alice")))
	b.store.take.Store(nil)
	b.want(code{ok}, back(10, entry("user=alice")))
	b.wantLeft("alice", 5)
}

// TestForbidden checks that what a caller may not do has one answer, whatever the domain, and no effect.
func TestForbidden(t *testing.T) {
	t.Parallel()
	m := mapping(t, `domains: {own: {builtin: true}, hidden: {namespace: blue, builtin: true}, gone: {namespace: ghost, builtin: true}}`)
	b := setup(t, func(_ *weir.Config, c *envoy.Config) {
		c.Mapping = func() *envoy.Mapping { return m }
		c.May = func(_ context.Context, a auth.Access) bool {
			return a.Namespace == weir.DefaultNamespace && a.Entity == "alice" && !slices.Contains(a.Permissions, auth.Override)
		}
	})
	if _, err := admin.New(b.lim).Namespaces.Create(b.ctx, "blue"); err != nil {
		t.Fatal(err)
	}
	b.set("", "", weir.PerHour("rph", 10))
	answers := make(map[string]bool)
	for _, tt := range []struct {
		domain      string
		descriptors []*ratelimitv3.RateLimitDescriptor
	}{
		{"hidden", []*ratelimitv3.RateLimitDescriptor{entry("user=alice")}},
		{"gone", []*ratelimitv3.RateLimitDescriptor{entry("user=alice")}},
		{"unknown", []*ratelimitv3.RateLimitDescriptor{entry("user=alice")}},
		{"own", []*ratelimitv3.RateLimitDescriptor{entry("user=alice"), entry("user=bob")}},
		{"own", []*ratelimitv3.RateLimitDescriptor{limited(9, typev3.RateLimitUnit_HOUR, entry("user=alice"))}},
		{"own", []*ratelimitv3.RateLimitDescriptor{entry("user=alice"), entry()}},
	} {
		resp, err := b.svc.ShouldRateLimit(b.ctx, &rlsv3.RateLimitRequest{Domain: tt.domain, Descriptors: tt.descriptors})
		if err == nil {
			t.Errorf("%s %v: got %v", tt.domain, tt.descriptors, resp)
			continue
		}
		answers[err.Error()] = true
	}
	if len(answers) != 1 {
		t.Errorf("got %v", answers)
	}
	if got := b.left("alice", "own", "rph"); got != 10 {
		t.Errorf("%d are left", got)
	}
}
