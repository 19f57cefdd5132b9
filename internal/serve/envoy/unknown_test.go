package envoy_test

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/envoy"
)

// TestUnknownAnswer checks that what cannot be limited is counted, logged once, and admitted or refused as configured. Where
// it is refused, nothing is debited for the other descriptors.
func TestUnknownAnswer(t *testing.T) {
	t.Parallel()
	for _, deny := range []bool{false, true} {
		var log bytes.Buffer
		m := mapping(t, "domains: {edge: {descriptors: [{match: [user], entity: '{user}'}]}}")
		b := setup(t, func(_ *weir.Config, c *envoy.Config) {
			c.Mapping, c.DenyUnknown = func() *envoy.Mapping { return m }, deny
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		b.set("alice", "", weir.PerHour("rph", 10))
		answered, other := unknown, ok
		if deny {
			answered = over
		}
		for range 2 {
			b.want(code{other, answered}, entry("user=alice"), entry("user=bob"))
			b.want(code{answered, other}, entry("user=bob"), entry("user=alice"))
			resp := b.want(code{other, answered}, entry("user=alice"), entry("route=slow"))
			if fact(resp, "reason") != "unknown descriptor" {
				t.Errorf("reason %s", fact(resp, "reason"))
			}
		}
		b.want(code{other}, entry("user=alice"))
		left := int64(3)
		if deny {
			left = 9
		}
		b.wantLeft("alice", left)
		if got, want := b.svc.Unknown(), map[string]uint64{"domain": 0, "descriptor": 2, "limits": 4}; !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
		if got := strings.Count(log.String(), "cannot be limited"); got != 2 {
			t.Errorf("%d lines: %s", got, log.String())
		}
	}
}

// TestUnknownForbidden checks that what a caller without permission sends is neither counted nor logged.
func TestUnknownForbidden(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*envoy.Mapping{
		"no such domain":     mapping(t, "domains: {other: {builtin: true}}"),
		"no such descriptor": mapping(t, "domains: {edge: {descriptors: [{match: [user], entity: '{user}'}]}}"),
		"no entries":         nil,
	} {
		var log bytes.Buffer
		b := setup(t, func(_ *weir.Config, c *envoy.Config) {
			c.Mapping, c.May = func() *envoy.Mapping { return m }, func(context.Context, auth.Access) bool { return false }
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		_, err := b.svc.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
			Domain: "edge", Descriptors: []*ratelimitv3.RateLimitDescriptor{entry()},
		})
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
		if got, want := b.svc.Unknown(), map[string]uint64{"domain": 0, "descriptor": 0, "limits": 0}; !maps.Equal(got, want) {
			t.Errorf("%s: counted %v", name, got)
		}
		if log.Len() > 0 {
			t.Errorf("%s: %s", name, log.String())
		}
	}
}
