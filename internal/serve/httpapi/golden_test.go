package httpapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

var update = flag.Bool("update", false, "write testdata/*.golden")

// TestGolden walks through the API, compares every answer with testdata/NAME.golden and with openapi.json, and covers
// every route.
func TestGolden(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	synctest.Test(t, func(t *testing.T) {
		s := newGolden(t)
		untried := s.routes
		lease := ""
		for _, step := range []struct{ name, to, body string }{
			{"limits-set", "PUT /v1/limits?resource=gpt-4", `{"limits":["rpm:10/min",{"name":"tpm","amount":1000,"period":"min","burst":2000}]}`},
			{"limits-set-entity", "PUT /v1/limits?entity=org&resource=gpt-4", `{"limits":["tpm:5K/min"]}`},
			{"limits-show", "GET /v1/limits?resource=gpt-4", ""},
			{"limits-list", "GET /v1/limits/list?resource=gpt-4", ""},
			{"limits-list-entity", "GET /v1/limits/list?entity=org", ""},
			{"limits-unavailable", "PUT /v1/limits?resource=login", `{"on_unavailable":"deny"}`},
			{"limits-unavailable-both", "PUT /v1/limits?resource=login", `{"limits":["rpm:10/min"],"on_unavailable":"local"}`},
			{"limits-unavailable-bad", "PUT /v1/limits?resource=login", `{"on_unavailable":"maybe"}`},
			{"limits-nothing", "PUT /v1/limits?resource=login", `{}`},
			{"limits-deleted", "DELETE /v1/limits?resource=login", ""},
			{"limits-unavailable-default", "PUT /v1/limits?resource=login", `{"on_unavailable":"default"}`},
			{"resources", "GET /v1/resources", ""},
			{"system-none", "GET /v1/system", ""},
			{"system-set", "PUT /v1/system", `{"on_unavailable":"deny"}`},
			{"system-near-limit", "PUT /v1/system", `{"near_limit":[80,95]}`},
			{"system-near-limit-bad", "PUT /v1/system", `{"on_unavailable":"allow","near_limit":[95,80]}`},
			{"system-near-limit-text", "PUT /v1/system", `{"near_limit":"80"}`},
			{"system-nothing", "PUT /v1/system", `{}`},
			{"system-near-limit-default", "PUT /v1/system", `{"near_limit":"default"}`},
			{"system", "GET /v1/system", ""},
			{"entity-create", "POST /v1/entities", `{"id":"org","name":"The organisation"}`},
			{"entity-create-child", "POST /v1/entities", `{"id":"key/alice","parent":"org","cascade":true,"metadata":{"plan":"pro"}}`},
			{"entity-exists", "POST /v1/entities", `{"id":"org"}`},
			{"plan-missing", "POST /v1/entities", `{"id":"bob","plan":"gold"}`},
			{"plan-set", "PUT /v1/limits?plan=gold", `{"limits":["tpm:7K/min"]}`},
			{"plan-set-resource", "PUT /v1/limits?plan=gold&resource=gpt-4", `{"limits":["tpm:9K/min"]}`},
			{"plan-of-entity", "PUT /v1/limits?plan=gold&entity=bob", `{"limits":["tpm:9K/min"]}`},
			{"plan-named", "POST /v1/entities", `{"id":"bob","plan":"gold"}`},
			{"plans", "GET /v1/plans", ""},
			{"plan", "GET /v1/limits/list?plan=gold", ""},
			{"plan-entities", "GET /v1/entities?plan=gold", ""},
			{"limits-bounded", "PUT /v1/limits?plan=gold&resource=gpt-4", `{"limits":["tpm:1K/min"],"from":"2050-12-04T18:00@Europe/Berlin"}`},
			{"plan-explain", "GET /v1/explain?entity=bob&resource=gpt-4", ""},
			{"plan-used", "DELETE /v1/plans/gold", ""},
			{"plan-left", "DELETE /v1/entities/bob", ""},
			{"plan-delete", "DELETE /v1/plans/gold", ""},
			{"entity", "GET /v1/entities/key%2Falice", ""},
			{"entity-children", "GET /v1/entities/org/children", ""},
			{"entity-update", "PATCH /v1/entities/org", `{"name":"Us","metadata":{"city":"Ulm"}}`},
			{"entities", "GET /v1/entities", ""},
			{"entities-page", "GET /v1/entities?max=1", ""},
			{"entities-prefix", "GET /v1/entities?prefix=key/", ""},
			{"entities-prefix-bad", "GET /v1/entities?prefix=%FF", ""},
			{"whoami", "GET /v1/whoami", ""},
			{"acquire", "POST /v1/acquire", `{"entity":"key/alice","resource":"gpt-4","tokens":{"rpm":1,"tpm":1500}}`},
			{"available", "GET /v1/available?entity=key/alice&resource=gpt-4", ""},
			{"explain", "GET /v1/explain?entity=key/alice&resource=gpt-4&tokens=rpm=1,tpm=600", ""},
			{"explain-no-limits", "GET /v1/explain?entity=nobody&resource=gpt-5", ""},
			{"explain-bad", "GET /v1/explain?entity=nobody&resource=gpt-5&tokens=rpm", ""},
			{"watch", "GET /v1/watch?entity=key/alice&resource=gpt-4&max=1", ""},
			{"watch-no-limits", "GET /v1/watch?entity=nobody&resource=gpt-5", ""},
			{"acquire-refused", "POST /v1/acquire", `{"entity":"key/alice","resource":"gpt-4","tokens":{"rpm":1,"tpm":600}}`},
			{"acquire-exceeds-burst", "POST /v1/acquire", `{"entity":"key/alice","resource":"gpt-4","tokens":{"tpm":2001}}`},
			{"acquire-no-limits", "POST /v1/acquire", `{"entity":"key/alice","resource":"gpt-5"}`},
			{"acquire-invalid", "POST /v1/acquire", `{"entity":"key/alice","resource":"gpt-4","tokens":{"tpm":0.5}}`},
			{"acquire-batch", "POST /v1/acquire/batch", `{"requests":[{"entity":"key/alice","resource":"gpt-4","tokens":{"rpm":1}},{"entity":"key/alice","resource":"gpt-4","tokens":{"tpm":600}},{"entity":"key/alice","resource":"gpt-5"}]}`},
			{"acquire-batch-brief", "POST /v1/acquire/batch", `{"brief":true,"requests":[{"entity":"bob","resource":"gpt-4","tokens":{"rpm":1}},{"entity":"key/alice","resource":"gpt-4","tokens":{"tpm":600}}]}`},
			{"acquire-batch-atomic", "POST /v1/acquire/batch", `{"atomic":true,"requests":[{"entity":"bob","resource":"gpt-4","tokens":{"rpm":1}},{"entity":"key/alice","resource":"gpt-4","tokens":{"tpm":600}}]}`},
			{"acquire-batch-invalid", "POST /v1/acquire/batch", `{"requests":[{"entity":"bob","resource":"gpt-4"},{"entity":"bob","resource":"gpt-4","limits":["rpm:1/min","rpm"]}]}`},
			{"adjust", "POST /v1/leases/LEASE/adjust", `{"tokens":{"tpm":-500}}`},
			{"adjust-max-debt", "POST /v1/leases/LEASE/adjust", `{"tokens":{"tpm":1000000000000000}}`},
			{"adjust-entity", "POST /v1/adjust", `{"entity":"dave","resource":"gpt-4","tokens":{"tpm":100,"rpm":-1},"id":"req-1"}`},
			{"adjust-entity-settled", "POST /v1/adjust", `{"entity":"dave","resource":"gpt-4","tokens":{"tpm":100},"id":"req-1"}`},
			{"adjust-entity-max-debt", "POST /v1/adjust", `{"entity":"carol","resource":"gpt-4","tokens":{"tpm":1000000000000000}}`},
			{"adjust-entity-invalid", "POST /v1/adjust", `{"entity":"key/alice","resource":"gpt-4","tokens":{"nope":1}}`},
			{"commit", "POST /v1/leases/LEASE/commit", ""},
			{"renew-nothing", "POST /v1/leases/LEASE/renew", ""},
			{"rollback", "POST /v1/leases/LEASE/rollback", ""},
			{"rollback-settled", "POST /v1/leases/LEASE/rollback", ""},
			{"rollback-forged", "POST /v1/leases/aGVsbG8/rollback", ""},
			{"buckets", "GET /v1/buckets", ""},
			{"bucket", "GET /v1/buckets/key%2Falice/gpt-4", ""},
			{"bucket-forgive", "POST /v1/buckets/key%2Falice/gpt-4/forgive", ""},
			{"bucket-reset", "POST /v1/buckets/key%2Falice/gpt-4/reset", ""},
			{"bucket-full", "GET /v1/buckets/nobody/gpt-4", ""},
			{"bucket-none", "GET /v1/buckets/nobody/gpt-5", ""},
			{"usage", "GET /v1/usage?window=hourly&entity=key/alice", ""},
			{"usage-bad", "GET /v1/usage?window=weekly", ""},
			{"usage-summary", "GET /v1/usage/summary?window=monthly", ""},
			{"usage-top", "GET /v1/usage/top?by=parent&limit=tpm", ""},
			{"usage-stream", "GET /v1/usage/stream?max=1", ""},
			{"audit", "GET /v1/audit?max=3", ""},
			{"entity-delete-parent", "DELETE /v1/entities/org", ""},
			{"entity-delete", "DELETE /v1/entities/org?children=true", ""},
			{"limits-delete", "DELETE /v1/limits?resource=gpt-4", ""},
			{"limits-none", "GET /v1/limits?resource=gpt-4", ""},
			{"limits-set-shadow", "PUT /v1/limits?resource=try", `{"limits":["rpm:10/min",{"name":"tpm","amount":100,"period":"min","enforce":"shadow"}]}`},
			{"acquire-shadow", "POST /v1/acquire", `{"entity":"key/alice","resource":"try","tokens":{"rpm":1,"tpm":150}}`},
			{"acquire-shadow-refused", "POST /v1/acquire", `{"entity":"key/alice","resource":"try","tokens":{"rpm":10,"tpm":150}}`},
			{"available-shadow", "GET /v1/available?entity=key/alice&resource=try", ""},
			{"acquire-enforce", "POST /v1/acquire", `{"entity":"key/alice","resource":"try","limits":[{"name":"rpm","amount":1,"period":"min","enforce":"25%"}]}`},
			{"limits-set-enforce", "PUT /v1/limits?resource=try", `{"limits":[{"name":"tpm","amount":100,"period":"min","enforce":"half"}]}`},
			{"manifest-validate", "POST /v1/manifests/validate", manifestBody},
			{"manifest-invalid", "POST /v1/manifests/validate", `{"namespace":"blue","resorces":{}}`},
			{"manifest-plan", "POST /v1/manifests/plan", manifestBody},
			{"manifest-stale", "POST /v1/manifests/apply?state=0123abcd", manifestBody},
			{"manifest-apply", "POST /v1/manifests/apply", manifestBody},
			{"manifest-explain", "GET /v1/explain?namespace=green&entity=alice&resource=gpt-4", ""},
			{"manifest-refused-spend", "POST /v1/acquire", `{"namespace":"green","entity":"alice","resource":"gpt-4","tokens":{"tpm":75000}}`},
			{"manifest-refused", "POST /v1/acquire", `{"namespace":"green","entity":"alice","resource":"gpt-4","tokens":{"tpm":5}}`},
			{"manifest-again", "POST /v1/manifests/apply", manifestBody},
			{"manifest-drifts", "PUT /v1/limits?namespace=green&resource=gpt-4", `{"limits":["rpm:99/min"]}`},
			{"manifest-diff", "POST /v1/manifests/diff?exact=true", manifestBody},
			{"manifest-smaller", "POST /v1/manifests/apply?delete=true", `{"namespace":"green"}`},
			{"manifest-rollback-none", "POST /v1/manifests/default/rollback?namespace=green", ""},
			{"manifest-rollback", "POST /v1/manifests/default/rollback?revision=1&namespace=green", ""},
			{"manifest-export", "GET /v1/manifests/export?namespace=green", ""},
			{"manifest-history", "GET /v1/manifests/default/history?namespace=green", ""},
			{"manifest-revision", "GET /v1/manifests/default/history/1?namespace=green", ""},
			{"manifest-revision-none", "GET /v1/manifests/default/history/9?namespace=green", ""},
			{"manifests", "GET /v1/manifests?namespace=green", ""},
			{"manifest-claimed", "POST /v1/manifests/plan", `{"namespace":"green","manifest":"other","resources":{"gpt-4":{"limits":{"rpm":{"capacity":1}}}}}`},
			{"manifest-by-hand", "PUT /v1/limits?namespace=green&resource=by-hand", `{"limits":["rpm:99/min"]}`},
			{"manifest-adopt", "POST /v1/manifests/apply", `{"namespace":"green","manifest":"other","resources":{"by-hand":{"limits":{"rpm":{"capacity":1}}}}}`},
			{"manifest-schema", "GET /v1/manifests/schema", ""},
			{"namespace-create", "POST /v1/namespaces", `{"name":"blue"}`},
			{"namespace-set", "PATCH /v1/namespaces/blue", `{"max_buckets":50000}`},
			{"namespace-set-nothing", "PATCH /v1/namespaces/blue", `{}`},
			{"namespace", "GET /v1/namespaces/blue", ""},
			{"namespace-delete", "DELETE /v1/namespaces/blue", ""},
			{"namespaces", "GET /v1/namespaces?deleted=true", ""},
			{"namespace-recover", "POST /v1/namespaces/blue/recover", ""},
			{"namespace-purge-live", "POST /v1/namespaces/blue/purge", ""},
			{"namespaces-orphaned", "GET /v1/namespaces?orphaned=true", ""},
			{"balance-set", "PUT /v1/limits?entity=alice&resource=_total_", `{"limits":["credits:balance"]}`},
			{"balance-add", "POST /v1/entities/alice/balances/credits", `{"amount":500,"id":"inv-1"}`},
			{"balance-repeated", "POST /v1/entities/alice/balances/credits?resource=_total_", `{"amount":500,"id":"inv-1"}`},
			{"balance-other-amount", "POST /v1/entities/alice/balances/credits", `{"amount":400,"id":"inv-1"}`},
			{"balance-no-id", "POST /v1/entities/alice/balances/credits", `{"amount":400}`},
			{"balance-none", "POST /v1/entities/alice/balances/credit", `{"amount":400,"id":"inv-1"}`},
			{"balances", "GET /v1/entities/alice/balances", ""},
			{"balance-history", "GET /v1/entities/alice/balances/credits/history", ""},
			{"refresh", "POST /v1/refresh", ""},
			{"overview-none", "GET /v1/overview", ""},
			{"metrics-none", "GET /metrics", ""},
			{"health", "GET /healthz", ""},
			{"ready", "GET /readyz", ""},
			{"openapi", "GET /v1/openapi.json", ""},
			{"method", "PUT /v1/acquire", ""},
			{"path", "GET /v2", ""},
		} {
			method, target, _ := strings.Cut(step.to, " ")
			a := s.do(t, method, strings.ReplaceAll(target, "LEASE", lease), step.body)
			if l, ok := a.JSON["lease"].(string); ok {
				lease = l
			}
			route := s.route(method, target)
			untried = slices.DeleteFunc(untried, func(r string) bool { return r == route })
			if route != "" {
				for _, bad := range doc.check(route, a) {
					t.Errorf("%s: %s: %s", step.name, step.to, bad)
				}
			}
			if step.name != "openapi" && step.name != "manifest-schema" {
				compare(t, step.name, step.to, step.body, a)
			}
		}
		if len(untried) > 0 {
			t.Errorf("untried: %q", untried)
		}
	})
}

const manifestBody = `{"namespace":"green","system":{"on_unavailable":"allow"},"resources":{"gpt-4":{"limits":{"tpm":{"capacity":"50K","burst":"75K"}}}},"entities":{"org":{},"alice":{"parent":"org"}}}`

type goldenServer struct {
	*fixture
	routes []string
}

func newGolden(t *testing.T) *goldenServer {
	t.Helper()
	f := &fixture{lim: newLimiter(t)}
	s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: f.lim, Signer: signer("0123456789abcdef")}})
	if err != nil {
		t.Fatal(err)
	}
	f.h = s.Handler()
	return &goldenServer{f, s.Routes()}
}

// route returns the route of a request, such as "GET /v1/entities/{id}".
func (s *goldenServer) route(method, target string) string {
	path, _, _ := strings.Cut(target, "?")
	for _, r := range s.routes {
		m, pattern, _ := strings.Cut(r, " ")
		want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
		same := m == method && len(want) == len(got)
		for i := range want {
			same = same && (want[i] == got[i] || strings.HasPrefix(want[i], "{") && !slices.Contains(s.routes, method+" "+path))
		}
		if same {
			return r
		}
	}
	return ""
}

// compare compares an answer with its golden file, ignoring what is random.
func compare(t *testing.T, name, to, body string, a answer) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n", to)
	if body != "" {
		fmt.Fprintf(&b, "%s\n", body)
	}
	fmt.Fprintf(&b, "\n%d\n", a.Code)
	var names []string
	for name := range a.Header() {
		names = append(names, name)
	}
	const sniff = "X-Content-Type-Options" // in every answer
	if a.Header().Get(sniff) != "nosniff" {
		t.Errorf("%s: %s is %q", name, sniff, a.Header().Get(sniff))
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == sniff })
	slices.Sort(names)
	for _, name := range names {
		value := a.Header().Get(name)
		if name == "Retry-After" {
			value = "(random)"
		}
		if name != "Content-Length" {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	if a.JSON != nil {
		text, err := json.MarshalIndent(masked(a.JSON, ""), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n%s\n", text)
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, b.Bytes()) {
		t.Errorf("%s:\ngot\n%s\nwant\n%s", file, b.Bytes(), want)
	}
}

// masked replaces random values: leases, cursors, jittered times, and the ids of events, buckets and namespaces.
func masked(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any)
		_, entity := v["cascade"]
		for k, x := range v {
			random := k == "lease" || k == "next" || k == "previous" || k == "retry_after" && v["status"] != nil || k == "id" && !entity && v["name"] != "default"
			if out[k] = masked(x, k); random {
				out[k] = "(random)"
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = masked(v[i], key)
		}
		return out
	}
	return v
}

// TestHead requests headers only.
func TestHead(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	w := httptest.NewRecorder()
	f.h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "HEAD", "/healthz", nil))
	if w.Code != 200 {
		t.Errorf("got %d", w.Code)
	}
}
