package envoy_test

import (
	"bytes"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
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
