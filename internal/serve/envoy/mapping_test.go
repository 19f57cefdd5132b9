package envoy_test

import (
	"context"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/httplimit"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/envoy"
)

func mapping(t *testing.T, text string) *envoy.Mapping {
	t.Helper()
	m, err := envoy.ReadMapping(strictyaml.Source{Name: "mapping.yaml", Text: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const mapped = `
domains:
  edge:
    descriptors:
      - match: [generic_key=slow, user]
        entity: "{user}"
        resource: "slow/{domain}"
        tokens: {rpm: 2, tpm: hits}
      - match: [path=/v1/*, user]
        entity: "{user}"
        resource: v1
      - match: [tokens, user]
        entity: "{user}"
        tokens: {tpm: hits}
        forced: true
      - match: [tenant, user]
        entity: "{tenant}/{user}"
      - match: [tenant, x-api-key]
        entity: "{tenant}/{hash(x-api-key)}"
      - match: [hash(x)]
        entity: "{hash(x)}"
  open: {namespace: prod, builtin: true}
  "*":
    descriptors: [{match: [any], entity: shared}]
`

func TestMapping(t *testing.T) {
	t.Parallel()
	keyID := httplimit.KeyID("sk-secret")
	long := strings.Repeat("x", 257)
	for _, tt := range []struct {
		mapping, domain, descriptor string
		want                        string // namespace, entity, resource, tokens; "" is unknown
	}{
		{"", "edge", "user=alice", "/alice/edge/*"},
		{"", "edge", "remote_address=192.0.2.1,user=alice", "/alice/edge/*"},
		{"", "edge", "user=,remote_address=192.0.2.1", "/192.0.2.1/edge/*"},
		{"", "edge", "tenant=acme,model=gpt-4,path=/v1", "/acme//v1/*"},
		{"", "edge", "api_key=k,entity=e,resource=r,route=x", "/e/r/*"},
		{"", "edge", "api_key=sk-secret,user=alice", "/" + keyID + "/edge/*"},
		{"", "edge", "api_key=,user=alice", "/alice/edge/*"},
		{"", "edge", "x-api-key=sk-secret,method=GET", "/x-api-key=" + keyID + ",method=GET/edge/*"},
		{"", "edge", "X-Goog-Api-Key=sk-secret", "/X-Goog-Api-Key=" + keyID + "/edge/*"},
		{"", "edge", "token=sk-secret", "/token=" + keyID + "/edge/*"},
		{"", "edge", "access_token=sk-secret", "/access_token=" + keyID + "/edge/*"},
		{"", "edge", "method=GET,Authorization=sk-secret", "/method=GET,Authorization=" + keyID + "/edge/*"},
		{mapped, "edge", "tenant=acme,x-api-key=sk-secret", "/acme/" + keyID + "/edge/*"},
		{mapped, "edge", "tenant=acme,x-api-key=", "/acme//edge/*"},
		{mapped, "edge", "hash(x)=v", "/v/edge/*"},
		{"", "edge", "generic_key=slow,method=GET", "/generic_key=slow,method=GET/edge/*"},
		{"", "edge", "user=", "/user=/edge/*"},
		{"", "edge", "user=" + long, "/sha256:*/edge/*"},
		{"", "edge", "user=_default_", "/sha256:*/edge/*"},
		{"", "edge", "user=a\x00b", "/sha256:*/edge/*"},
		{"", "edge", "", ""},
		{mapped, "edge", "generic_key=slow,user=alice", "/alice/slow/edge/rpm: 2, tpm: hits"},
		{mapped, "edge", "generic_key=fast,user=alice", ""},
		{mapped, "edge", "user=alice,generic_key=slow", ""},
		{mapped, "edge", "generic_key=slow", ""},
		{mapped, "edge", "path=/v1/chat,user=alice", "/alice/v1/*"},
		{mapped, "edge", "path=/v2/chat,user=alice", ""},
		{mapped, "edge", "tokens=,user=alice", "/alice/edge/tpm: hits, forced"},
		{mapped, "edge", "tenant=acme,user=alice", "/acme/alice/edge/*"},
		{mapped, "open", "user=alice", "prod/alice/open/*"},
		{mapped, "other", "any=1", "/shared/other/*"},
		{mapped, "other", "user=alice", ""},
		{`domains: {a: {}}`, "b", "user=alice", ""},
		{`domains: {a: {}}`, "a", "user=alice", ""},
	} {
		var m *envoy.Mapping
		if tt.mapping != "" {
			m = mapping(t, tt.mapping)
		}
		d := &ratelimitv3.RateLimitDescriptor{}
		if tt.descriptor != "" {
			d = entry(strings.Split(tt.descriptor, ",")...)
		}
		got := ""
		if target, ok := m.Target(tt.domain, d); ok {
			ns, _ := m.Namespace(tt.domain)
			tokens := target.Tokens()
			if strings.Contains(tokens, "each limit") {
				tokens = "*"
			}
			if target.Forced {
				tokens += ", forced"
			}
			if hash, ok := strings.CutPrefix(target.Entity, "sha256:"); ok && len(hash) == 64 {
				target.Entity = "sha256:*"
			}
			got = ns + "/" + target.Entity + "/" + target.Resource + "/" + tokens
		}
		if got != tt.want {
			t.Errorf("%s: %q: got %s, want %s", tt.domain, tt.descriptor, got, tt.want)
		}
	}
}

// Whatever a client sends, the mapping turns it into an id that weir accepts.
func TestMappedIDs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"_", "wcu", weir.DefaultResource, "", "\xff", strings.Repeat("é", 200)})).Draw(t, "value")
		key := rapid.SampledFrom([]string{"user", "path", "x"}).Draw(t, "key")
		target, ok := (*envoy.Mapping)(nil).Target("edge", &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}})
		if !ok || target.Entity == "" || target.Resource == "" {
			t.Fatalf("%+v", target)
		}
		if err := (admin.Scope{Entity: target.Entity, Resource: target.Resource}).Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

// Costs known only afterwards are charged even if they do not fit, and hold up the next request.
func TestForced(t *testing.T) {
	t.Parallel()
	m := mapping(t, `
domains:
  llm:
    descriptors:
      - {match: [model, user], entity: "{user}", resource: "{model}", tokens: {tpm: hits, rpm: 1}}
      - {match: [tokens, model, user], entity: "{user}", resource: "{model}", tokens: {tpm: hits}, forced: true}
`)
	b := setup(t, func(_ *weir.Config, c *envoy.Config) { c.Mapping = func() *envoy.Mapping { return m } })
	b.set("", "gpt-4", weir.PerMinute("tpm", 1000), weir.PerMinute("rpm", 3))
	ask := func(want rlsv3.RateLimitResponse_Code, ds ...*ratelimitv3.RateLimitDescriptor) {
		t.Helper()
		resp, err := b.svc.ShouldRateLimit(b.ctx, &rlsv3.RateLimitRequest{Domain: "llm", Descriptors: ds})
		if err != nil || resp.OverallCode != want {
			t.Errorf("got %v %v, want %s", resp, err, want)
		}
	}
	left := func(tpm, rpm int64) {
		t.Helper()
		if a, z := b.left("alice", "gpt-4", "tpm"), b.left("alice", "gpt-4", "rpm"); a != tpm || z != rpm {
			t.Errorf("%d tpm and %d rpm left, want %d and %d", a, z, tpm, rpm)
		}
	}
	check, cost := entry("model=gpt-4", "user=alice"), entry("tokens=", "model=gpt-4", "user=alice")
	ask(ok, hits(0, check)) // a peek
	left(1000, 3)
	ask(ok, hits(100, check))
	left(900, 2)
	ask(ok, hits(5000, cost))
	left(-4100, 2)
	ask(over, hits(0, check))
	ask(over, hits(1, check))
	ask(ok, back(4600, cost))
	left(500, 2)
	ask(ok, hits(0, cost)) // nothing
	left(500, 2)
	// An override replaces the limit that the hits count towards.
	ask(ok, hits(50, limited(60, typev3.RateLimitUnit_HOUR, check)))
	ask(over, hits(11, limited(60, typev3.RateLimitUnit_HOUR, check)))
	left(500, 2)
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	m := mapping(t, `domains: {a: {namespace: blue, builtin: true}, b: {namespace: ghost, builtin: true}, c: {builtin: true}}`)
	b := setup(t, func(_ *weir.Config, c *envoy.Config) {
		c.Mapping = func() *envoy.Mapping { return m }
		c.May = func(_ context.Context, a auth.Access) bool { return a.Namespace != weir.DefaultNamespace }
	})
	if _, err := admin.New(b.lim).Namespaces.Create(b.ctx, "blue"); err != nil {
		t.Fatal(err)
	}
	if err := admin.New(b.lim.In("blue")).Limits.Set(b.ctx, admin.Scope{}, weir.PerHour("rph", 1)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		domain string
		want   rlsv3.RateLimitResponse_Code
		err    codes.Code
	}{
		{"a", ok, codes.OK},
		{"a", over, codes.OK},
		{"b", unknown, codes.OK},
		{"c", unknown, codes.PermissionDenied},
	} {
		resp, err := b.svc.ShouldRateLimit(b.ctx, &rlsv3.RateLimitRequest{Domain: tt.domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{entry("user=alice"), entry("user=bob")}})
		if status.Code(err) != tt.err || err == nil && resp.Statuses[0].Code != tt.want {
			t.Errorf("%s: got %v, %v", tt.domain, resp, err)
		}
	}
}
