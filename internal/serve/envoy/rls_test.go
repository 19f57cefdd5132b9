package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	format "github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/envoy"
	"github.com/weirlimits/weir/store"
)

// Requests of a noisy user that are refused do not charge the tenant, so that its other users get their full share.
func TestNoisyNeighbour(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerHour("rph", 10))
	b.set("acme", "", weir.PerHour("rph", 20))
	as := func(user string) *rlsv3.RateLimitResponse { return b.ask(entry("tenant=acme"), entry("user="+user)) }
	for i := range 1010 {
		if resp := as("noisy"); (resp.OverallCode == ok) != (i < 10) {
			t.Fatalf("call %d of the noisy user: %s", i, resp.OverallCode)
		} else if i >= 10 && (resp.Statuses[0].Code != ok || resp.Statuses[1].Code != over || resp.Statuses[0].LimitRemaining != 10) {
			t.Fatalf("call %d of the noisy user: %s", i, resp)
		}
	}
	admitted := 0
	for range 10 {
		if as("quiet").OverallCode == ok {
			admitted++
		}
	}
	if admitted != 10 {
		t.Errorf("the quiet user got %d of 10", admitted)
	}
	if resp := as("third"); resp.OverallCode != over || resp.Statuses[0].Code != over || resp.Statuses[1].Code != ok {
		t.Errorf("the tenant has spent its 20: %s", resp)
	}
}

// If the user's parent is the tenant, one descriptor is enough.
func TestParentIsCharged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerHour("rph", 10))
	b.set("acme", "", weir.PerHour("rph", 3))
	for _, e := range []admin.Entity{{ID: "acme"}, {ID: "alice", Parent: "acme", Cascade: true}, {ID: "bob", Parent: "acme", Cascade: true}} {
		if err := admin.New(b.lim).Entities.Create(b.ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	b.want(code{ok}, entry("user=alice"))
	b.want(code{ok, ok}, entry("user=alice"), entry("user=bob")) // which charges acme twice
	resp := b.want(code{over, over}, entry("user=alice"), entry("user=bob"))
	if l := resp.Statuses[1]; l.LimitRemaining != 0 || l.CurrentLimit.RequestsPerUnit != 3 || l.DurationUntilReset.AsDuration() != 40*time.Minute {
		t.Errorf("%s", l)
	}
	if got := header(resp, "RateLimit"); !strings.HasPrefix(got, `"rph@acme";r=0;t=2400, `) {
		t.Errorf("RateLimit: %s", got)
	}
	b.wantLeft("alice", 8)
	b.wantLeft("bob", 9)
}

// Two descriptors of one bucket are both debited.
func TestDescriptorsOfOneBucket(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerHour("rph", 3))
	b.want(code{ok, ok}, entry("user=alice"), entry("user=alice"))
	b.wantLeft("alice", 1)
	b.want(code{over, over}, entry("user=alice"), entry("user=alice"))
	b.want(code{over, over, ok}, entry("user=alice"), hits(3, entry("user=alice")), entry("user=bob")) // 4 never fit
	b.wantLeft("alice", 1)
	b.wantLeft("bob", 3)
}

func TestHits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerHour("rph", 10))
	ask := func(n uint32, ds ...*ratelimitv3.RateLimitDescriptor) {
		t.Helper()
		if _, err := b.svc.ShouldRateLimit(b.ctx, &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: ds, HitsAddend: n}); err != nil {
			t.Fatal(err)
		}
	}
	ask(0, entry("user=alice"))
	b.wantLeft("alice", 9)
	ask(3, entry("user=alice"), hits(2, entry("user=bob")))
	b.wantLeft("alice", 6)
	b.wantLeft("bob", 8)
	b.want(code{over}, hits(11, entry("user=alice"))) // more than the burst
	b.want(code{over}, hits(1<<63, entry("user=alice")))
	b.want(code{ok}, hits(6, entry("user=alice")))
}

// Hits of 0 debit nothing, and are refused if nothing is left. Then the other descriptors are not debited either.
func TestPeek(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerHour("rph", 2))
	for range 3 {
		b.want(code{ok}, hits(0, entry("user=alice")))
	}
	b.want(code{ok}, hits(2, entry("user=alice")))
	resp := b.want(code{over}, hits(0, entry("user=alice")))
	if d := resp.Statuses[0].DurationUntilReset.AsDuration(); d != 30*time.Minute {
		t.Errorf("a token comes in %s", d)
	}
	if got := header(resp, "RateLimit"); got != `"rph";r=0;t=1800` || header(resp, "Retry-After") == "" {
		t.Errorf("RateLimit: %s", got)
	}
	b.want(code{ok, over}, entry("user=bob"), hits(0, entry("user=alice")))
	b.wantLeft("bob", 2)
	b.want(code{ok, ok}, entry("user=bob"), hits(0, entry("user=carol")))
	b.wantLeft("bob", 1)
	b.wantLeft("carol", 2)
}

// Negative hits refill a bucket, but not beyond its burst.
func TestNegativeHits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerHour("rph", 10))
	b.want(code{ok}, hits(8, entry("user=alice")))
	b.want(code{ok}, back(3, entry("user=alice")))
	b.wantLeft("alice", 5)
	for _, n := range []uint64{1, 100, weir.MaxTokens, 1 << 63} {
		b.want(code{ok}, back(n, entry("user=alice")))
	}
	b.wantLeft("alice", 10)
	b.want(code{over}, hits(11, entry("user=alice")))
	b.want(code{ok}, hits(10, entry("user=alice")))
	b.want(code{over}, entry("user=alice"))
	b.want(code{ok}, back(5, entry("user=nobody"))) // has no bucket yet
	b.wantLeft("nobody", 10)
	// A refused request returns nothing.
	b.want(code{over, ok}, entry("user=alice"), back(5, entry("user=alice")))
	b.wantLeft("alice", 0)
	b.want(code{ok, ok}, entry("user=bob"), back(5, entry("user=alice")))
	b.wantLeft("alice", 5)
}

func TestOverride(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerHour("rph", 10))
	two := func() *ratelimitv3.RateLimitDescriptor {
		return limited(2, typev3.RateLimitUnit_MINUTE, entry("user=alice"))
	}
	for i := range 2 {
		if l := b.want(code{ok}, two()).Statuses[0]; l.CurrentLimit.RequestsPerUnit != 2 || l.CurrentLimit.Unit != rlsv3.RateLimitResponse_RateLimit_MINUTE || l.LimitRemaining != uint32(1-i) {
			t.Errorf("%s", l)
		}
	}
	b.want(code{over, ok}, two(), entry("user=alice"))
	b.wantLeft("alice", 10) // its own limits were not used
	b.want(code{ok}, back(1, two()))
	b.want(code{ok}, two())
	b.want(code{over}, two())

	b.want(code{over, ok}, limited(0, typev3.RateLimitUnit_MINUTE, entry("user=alice")), entry("user=alice"))
	b.wantLeft("alice", 10)
	b.want(code{ok}, back(1, limited(0, typev3.RateLimitUnit_MINUTE, entry("user=alice"))))
	b.want(code{ok}, limited(7, typev3.RateLimitUnit_UNKNOWN, entry("user=alice"))) // not an override
	b.wantLeft("alice", 9)
}

func TestOverrideUnits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, tt := range []struct {
		unit       typev3.RateLimitUnit
		n, times   uint32
		want       string
		burst      uint64
		wantAmount uint32
	}{
		{typev3.RateLimitUnit_SECOND, 5, 0, "SECOND", 5, 5},
		{typev3.RateLimitUnit_SECOND, 5, 30, "SECOND*30", 5, 5},
		{typev3.RateLimitUnit_MINUTE, 5, 60, "HOUR", 5, 5},
		{typev3.RateLimitUnit_HOUR, 5, 1, "HOUR", 5, 5},
		{typev3.RateLimitUnit_DAY, 5, 7, "WEEK", 5, 5},
		{typev3.RateLimitUnit_MONTH, 5, 1, "MONTH", 5, 5},
		{typev3.RateLimitUnit_YEAR, 5, 1, "YEAR", 5, 5},
		{typev3.RateLimitUnit_YEAR, 730, 2, "DAY*366", 730, 366},                // the same rate
		{typev3.RateLimitUnit_YEAR, 5, 1 << 31, "DAY*366", 5, 1},                // at least 1
		{typev3.RateLimitUnit_SECOND, 1 << 31, 1, "SECOND", 1 << 31, 4_000_000}, // the largest amount that can be counted
	} {
		d := limited(tt.n, tt.unit, entry(fmt.Sprintf("user=%d", i)))
		if tt.times > 0 {
			d.Limit.UnitMultiplier = wrapperspb.UInt32(tt.times)
		}
		l := b.want(code{ok}, hits(tt.burst, d)).Statuses[0].CurrentLimit
		got := l.GetUnit().String()
		if m := l.GetUnitMultiplier(); m != nil {
			got += fmt.Sprintf("*%d", m.GetValue())
		}
		if got != tt.want || l.GetRequestsPerUnit() != tt.wantAmount {
			t.Errorf("%d a %s times %d became %d a %s", tt.n, tt.unit, tt.times, l.GetRequestsPerUnit(), got)
		}
	}
}

// A client that makes up overrides does not escape all limits.
func TestTooManyOverrides(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerHour("rph", 100))
	for i := range store.MaxOverrides {
		b.want(code{ok}, limited(uint32(i)+1, typev3.RateLimitUnit_DAY, entry("user=alice")))
	}
	for range 2 {
		resp := b.want(code{over}, limited(1000, typev3.RateLimitUnit_DAY, entry("user=alice")))
		if fact(resp, "reason") != "too many different limits of descriptors" || fact(resp, "degraded") != "false" {
			t.Errorf("%s", resp.DynamicMetadata)
		}
	}
	b.want(code{ok, over}, entry("user=alice"), limited(1000, typev3.RateLimitUnit_DAY, entry("user=alice")))
	b.wantLeft("alice", 100)
	b.want(code{ok}, entry("user=alice"))
}

// Descriptors without limits are admitted and reported as unknown; the others are decided as usual.
func TestUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("alice", "", weir.PerHour("rph", 2))
	b.set("tokens", "", weir.PerHour("tph", 2))
	resp := b.want(code{unknown, ok, unknown, unknown}, entry("user=nobody"), entry("user=alice"), entry("user=tokens"), entry())
	if resp.Statuses[1].LimitRemaining != 1 || resp.Statuses[0].CurrentLimit != nil {
		t.Errorf("%s", resp)
	}
	b.want(code{ok, unknown}, entry("user=alice"), entry("user=nobody"))
	b.want(code{unknown, over}, entry("user=nobody"), entry("user=alice"))
	resp = b.want(code{unknown}, entry("user=nobody"))
	if fact(resp, "reason") != "no limits apply" || fact(resp, "decision") != "allow" {
		t.Errorf("%s", resp.DynamicMetadata)
	}
	b.want(code{unknown}, hits(0, entry("user=nobody")))
	b.want(code{ok}, back(1, entry("user=nobody")))
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	refused := 0
	b := setup(t, func(_ *weir.Config, c *envoy.Config) {
		c.May = func(_ context.Context, a auth.Access) bool { return a.Namespace == "other" }
		c.Refused = func(context.Context, auth.Access) { refused++ }
	})
	one := []*ratelimitv3.RateLimitDescriptor{entry("user=alice")}
	for want, reqs := range map[codes.Code][]*rlsv3.RateLimitRequest{
		codes.InvalidArgument: {
			nil,
			{Descriptors: one},
			{Domain: "edge"},
			{Domain: "edge", Descriptors: make([]*ratelimitv3.RateLimitDescriptor, 101)},
			{Domain: strings.Repeat("d", 257), Descriptors: one},
		},
		codes.PermissionDenied: {{Domain: strings.Repeat("d", 256), Descriptors: one}},
	} {
		for _, req := range reqs {
			if _, err := b.svc.ShouldRateLimit(b.ctx, req); status.Code(err) != want {
				t.Errorf("%v: got %v", req, err)
			}
		}
	}
	if refused != 1 {
		t.Errorf("%d refusals were reported, want 1", refused)
	}
	for _, cfg := range []envoy.Config{{}, {Limiter: b.lim, Within: -1}} {
		if _, err := envoy.New(cfg); !errors.As(err, new(*weir.ConfigError)) {
			t.Errorf("got %v", err)
		}
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	b := setup(t, func(_ *weir.Config, c *envoy.Config) { c.Body = []byte("slow down") })
	b.set("", "", weir.PerHour("rph", 1))
	if resp := b.want(code{ok}, entry("user=a")); len(resp.RawBody) > 0 {
		t.Errorf("%s", resp)
	}
	if resp := b.want(code{over}, entry("user=a")); string(resp.RawBody) != "slow down" {
		t.Errorf("%s", resp)
	}
}

// TestBalance checks that no time to retry is sent where a balance refuses.
func TestBalance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("a", "edge", weir.PerMinute("rpm", 1), weir.Limit{Name: "requests", Balance: true})
	resp := b.want(code{over}, entry("user=a"))
	if got := header(resp, "Retry-After"); got != "" || resp.Statuses[0].DurationUntilReset.AsDuration() != 0 {
		t.Errorf("Retry-After %q, %s", got, resp)
	}
}

// TestSlots checks that a limit of slots refuses what Envoy asks, since Envoy gives no slots back, and that none is held.
func TestSlots(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("a", "edge", weir.PerMinute("rpm", 100), weir.Limit{Name: "parallel", Slots: 2})
	for range 3 {
		b.want(code{over}, entry("user=a"))
		b.want(code{over, over}, entry("user=a"), entry("user=a"))
	}
	av, err := b.lim.Available(t.Context(), "a", "edge")
	if err != nil || av.Statuses[0].Available != 2 && av.Statuses[1].Available != 2 {
		t.Errorf("%+v, %v", av.Statuses, err)
	}
}

// TestOpenAI checks what Envoy sends with a refusal in the format of OpenAI's API.
func TestOpenAI(t *testing.T) {
	t.Parallel()
	b := setup(t, func(_ *weir.Config, c *envoy.Config) { c.Errors = format.OpenAI })
	b.set("", "", weir.PerHour("rph", 1), weir.PerMinute("tpm", 1000))
	if resp := b.want(code{ok}, entry("user=a")); len(resp.RawBody) > 0 || header(resp, "x-ratelimit-limit-requests") != "" {
		t.Errorf("%s", resp)
	}
	resp := b.want(code{over}, entry("user=a"))
	for name, want := range map[string]string{
		"Content-Type": "application/json", "x-ratelimit-limit-requests": "1", "x-ratelimit-remaining-requests": "0",
		"x-ratelimit-reset-requests": "1h0m0s", "x-ratelimit-remaining-tokens": "1000",
	} {
		if got := header(resp, name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	ms, err := strconv.Atoi(header(resp, "retry-after-ms"))
	if after, _ := strconv.Atoi(header(resp, "Retry-After")); err != nil || ms < 3_600_000 || ms > after*1000 {
		t.Errorf("retry-after-ms %d, Retry-After %d", ms, after)
	}
	const want = `{"error":{"message":"limit exceeded: rph of a on edge has 0 of 1 available, 1 requested; retry in 1h0m0s",` +
		`"type":"requests","param":null,"code":"rate_limit_exceeded"}}` + "\n"
	if string(resp.RawBody) != want {
		t.Errorf("got %s", resp.RawBody)
	}
}
