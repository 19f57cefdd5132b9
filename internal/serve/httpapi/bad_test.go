package httpapi_test

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// TestBadInput sends requests that are each wrong in one way. None of them may spend anything.
func TestBadInput(t *testing.T) {
	t.Parallel()
	const acquire, available, entities = "POST /v1/acquire", "GET /v1/available", "POST /v1/entities"
	long := strings.Repeat("x", 257)
	for _, tt := range []struct {
		name, to, body string
		status         int
		kind, field    string
	}{
		{"negative amount", acquire, `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":-1}}`, 400, "invalid", "tokens.tpm"},
		{"fraction", acquire, `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":1.5}}`, 400, "invalid", "tokens.tpm"},
		{"fraction of nothing", acquire, `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":1.0}}`, 400, "invalid", "tokens.tpm"},
		{"exponent", acquire, `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":1e2}}`, 400, "invalid", "tokens.tpm"},
		{"overflow", acquire, `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":9223372036854775808}}`, 400, "invalid", "tokens.tpm"},
		{"overflow of millitokens", acquire, `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":9223372036854775807}}`, 400, "invalid", "tokens.tpm"},
		{"amount as text", acquire, `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":"1"}}`, 400, "invalid", "tokens.tpm"},
		{"null amount", acquire, `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":null}}`, 400, "invalid", "tokens.tpm"},
		{"unknown limit", acquire, `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":1,"rpd":1}}`, 400, "invalid", "tokens.rpd"},
		{"limit twice", acquire, `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":1,"tpm":2}}`, 400, "invalid", "tokens.tpm"},
		{"limit twice, escaped", acquire, `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":1,"\u0074pm":2}}`, 400, "invalid", "tokens.tpm"},
		{"tokens as list", acquire, `{"entity":"alice","resource":"gpt-4","tokens":[1]}`, 400, "invalid", "tokens"},
		{"above the burst", acquire, `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":1001}}`, 422, "exceeds-burst", ""},
		{"no limits", acquire, `{"entity":"alice","resource":"gpt-5"}`, 422, "no-limits", ""},
		{"no entity", acquire, `{"resource":"gpt-4"}`, 400, "invalid", "entity"},
		{"no resource", acquire, `{"entity":"alice"}`, 400, "invalid", "resource"},
		{"long entity", acquire, `{"entity":"` + long + `","resource":"gpt-4"}`, 400, "invalid", "entity"},
		{"control character", acquire, `{"entity":"a\u0000","resource":"gpt-4"}`, 400, "invalid", "entity"},
		{"raw control character", acquire, "{\"entity\":\"a\x00\",\"resource\":\"gpt-4\"}", 400, "invalid", "entity"},
		{"not UTF-8", acquire, "{\"entity\":\"a\xff\",\"resource\":\"gpt-4\"}", 400, "invalid", "entity"},
		{"half a surrogate", acquire, `{"entity":"a\ud800","resource":"gpt-4"}`, 400, "invalid", "entity"},
		{"reserved", acquire, `{"entity":"alice","resource":"_default_"}`, 400, "invalid", "resource"},
		{"entity as number", acquire, `{"entity":1,"resource":"gpt-4"}`, 400, "invalid", "entity"},
		{"null entity", acquire, `{"entity":null,"resource":"gpt-4"}`, 400, "invalid", "entity"},
		{"entity twice", acquire, `{"entity":"alice","entity":"alice","resource":"gpt-4"}`, 400, "invalid", "entity"},
		{"unknown field", acquire, `{"entity":"alice","resource":"gpt-4","token":{"tpm":1}}`, 400, "invalid", "token"},
		{"field in capitals", acquire, `{"Entity":"alice","resource":"gpt-4"}`, 400, "invalid", "Entity"},
		{"unknown namespace", acquire, `{"entity":"alice","resource":"gpt-4","namespace":"nope"}`, 404, "not-found", ""},
		{"empty namespace", acquire, `{"entity":"alice","resource":"gpt-4","namespace":""}`, 400, "invalid", "namespace"},
		{"no policy", acquire, `{"entity":"alice","resource":"gpt-4","on_unavailable":"maybe"}`, 400, "invalid", "on_unavailable"},
		{"bad wait", acquire, `{"entity":"alice","resource":"gpt-4","wait":"2"}`, 400, "invalid", "wait"},
		{"long wait", acquire, `{"entity":"alice","resource":"gpt-4","wait":"1h"}`, 400, "invalid", "wait"},
		{"empty limits", acquire, `{"entity":"alice","resource":"gpt-4","limits":[]}`, 400, "invalid", "limits"},
		{"limit of nothing", acquire, `{"entity":"alice","resource":"gpt-4","limits":[{"name":"x","amount":0,"period":"s"}]}`, 400, "invalid", "limits[0].amount"},
		{"limit too large", acquire, `{"entity":"alice","resource":"gpt-4","limits":[{"name":"x","amount":1,"period":"s","burst":99999999999999999}]}`, 400, "invalid", "limits[0].burst"},
		{"debt too large", acquire, `{"entity":"alice","resource":"gpt-4","limits":[{"name":"x","amount":1,"period":"s","max_debt":99999999999999999}]}`, 400, "invalid", "limits[0].max_debt"},
		{"limit without period", acquire, `{"entity":"alice","resource":"gpt-4","limits":[{"name":"x","amount":1}]}`, 400, "invalid", "limits[0]"},
		{"limit of a strange period", acquire, `{"entity":"alice","resource":"gpt-4","limits":["a:1/s","x:1/fortnight"]}`, 400, "invalid", "limits[1]"},
		{"absurd limit", acquire, `{"entity":"alice","resource":"gpt-4","limits":[{"name":"x","amount":9223372036854775807,"period":"s"}]}`, 400, "invalid", "limits[0].amount"},
		{"limit with unknown field", acquire, `{"entity":"alice","resource":"gpt-4","limits":[{"name":"x","amount":1,"period":"s","rate":1}]}`, 400, "invalid", "limits[0].rate"},
		{"no JSON", acquire, `entity=alice`, 400, "invalid", "body"},
		{"cut JSON", acquire, `{"entity":"alice","resource":"gpt-4"`, 400, "invalid", "body"},
		{"two values", acquire, `{"entity":"alice","resource":"gpt-4"}{}`, 400, "invalid", "body"},
		{"a list", acquire, `[]`, 400, "invalid", "body"},
		{"too large", acquire, `{"entity":"alice","resource":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "too-large", ""},
		{"parameter of acquire", acquire + "?namespace=x", `{"entity":"alice","resource":"gpt-4"}`, 400, "invalid", "query"},
		{"wrong method", "GET /v1/acquire", "", 405, "method", ""},
		{"no such path", "POST /v1/aquire", "", 404, "not-found", ""},
		{"available without entity", available + "?resource=gpt-4", "", 400, "invalid", "entity"},
		{"available with a typo", available + "?entity=alice&resurce=gpt-4", "", 400, "invalid", "resurce"},
		{"available twice", available + "?entity=alice&entity=bob&resource=gpt-4", "", 400, "invalid", "entity"},
		{"available, bad escape", available + "?entity=%zz", "", 400, "invalid", "query"},
		{"no lease", "POST /v1/leases/abc/rollback", "", 404, "not-found", ""},
		{"max of 0", "GET /v1/entities?max=0", "", 400, "invalid", "max"},
		{"bad cursor", "GET /v1/entities?after=zzz", "", 400, "invalid", "after"},
		{"entity without id", entities, `{}`, 400, "invalid", "id"},
		{"missing parent", entities, `{"id":"a","parent":"b"}`, 400, "invalid", "parent"},
		{"own parent", entities, `{"id":"a","parent":"a"}`, 400, "invalid", "parent"},
		{"cascade as text", entities, `{"id":"a","cascade":"yes"}`, 400, "invalid", "cascade"},
		{"metadata as number", entities, `{"id":"a","metadata":{"n":1}}`, 400, "invalid", "metadata.n"},
		{"patch of nobody", "PATCH /v1/entities/nobody", `{"name":"x"}`, 404, "not-found", ""},
		{"no limits to set", "PUT /v1/limits?resource=gpt-4", `{"limits":[]}`, 400, "invalid", "limits"},
		{"no limits given", "PUT /v1/limits?resource=gpt-4", `{}`, 400, "invalid", "limits"},
		{"limit name twice", "PUT /v1/limits?resource=gpt-4", `{"limits":["a:1/s","a:2/s"]}`, 400, "invalid", "limits"},
		{"system of nothing", "PUT /v1/system", `{}`, 400, "invalid", "body"},
		{"namespace of a namespace", "GET /v1/namespaces?namespace=x", "", 400, "invalid", "namespace"},
		{"reserved namespace", "POST /v1/namespaces", `{"name":"_"}`, 400, "invalid", "namespace"},
		{"deletion of default", "DELETE /v1/namespaces/default", "", 400, "invalid", "namespace"},
		{"no bucket", "GET /v1/buckets/nobody/gpt-5", "", 404, "not-found", ""},
		{"body of refresh", "POST /v1/refresh", `{"all":true}`, 400, "invalid", "body"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := setup(t, httpapi.Config{})
				method, target, _ := strings.Cut(tt.to, " ")
				a := f.do(t, method, target, tt.body)
				if a.Code != tt.status || a.Header().Get("Content-Type") != "application/problem+json" || a.JSON["status"] != float64(tt.status) {
					t.Errorf("got %d %v %s", a.Code, a.Header(), a.Body)
				}
				if kind := a.JSON["type"].(string); !strings.HasSuffix(kind, "#"+tt.kind) {
					t.Errorf("got type %s", kind)
				}
				if field, _ := a.JSON["field"].(string); field != tt.field {
					t.Errorf("got field %q in %s", field, a.Body)
				}
				if a.JSON["detail"] == "" || a.JSON["title"] == "" {
					t.Errorf("got %s", a.Body)
				}
				if got := f.available(t); got != 1000 {
					t.Errorf("%d of 1000 are available", got)
				}
			})
		})
	}
}

func TestMediaType(t *testing.T) {
	t.Parallel()
	for media, want := range map[string]int{
		"application/json": 200, "application/json; charset=utf-8": 200, "Application/JSON;charset=UTF-8": 200,
		"": 415, "text/plain": 415, "application/x-www-form-urlencoded": 415, "multipart/form-data": 415, "application/jsonx": 415, ";": 415,
	} {
		f := setup(t, httpapi.Config{})
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/acquire", strings.NewReader(`{"entity":"alice","resource":"gpt-4"}`))
		if media != "" {
			r.Header.Set("Content-Type", media)
		}
		if a := f.send(t, r); a.Code != want {
			t.Errorf("%q: got %d, want %d", media, a.Code, want)
		}
	}
}

// TestCrossOrigin sends what a page of another site could make a browser send.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/refresh", nil)
		r.Header.Set(header, value)
		if a := f.send(t, r); a.Code != 403 || !strings.HasSuffix(a.JSON["type"].(string), "#cross-origin") {
			t.Errorf("%s: got %d %s", header, a.Code, a.Body)
		}
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	for target, want := range map[string]string{
		"/v1/acquire": "POST", "/v1/limits": "DELETE, GET, HEAD, PUT", "/v1/entities/a%2Fb": "DELETE, GET, HEAD, PATCH",
	} {
		if a := f.must(t, 405, "OPTIONS", target, ""); a.Header().Get("Allow") != want {
			t.Errorf("%s: got Allow %q", target, a.Header().Get("Allow"))
		}
	}
}

// TestOddIDs sends legal but inconvenient ids through every place in which an id travels.
func TestOddIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"openai/gpt-4o", "a#b", "a?b=c&d", "100%", "a b", `q"uo\te`, "ключ", "/", "//", "a/../b", "%2F", "a;b", "a+b", "<&>", "{id}", "é✓", strings.Repeat("ü", 128),
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			f := setup(t, httpapi.Config{})
			path, query, text := url.PathEscape(id), url.QueryEscape(id), string(quote(id))
			f.must(t, 201, "POST", "/v1/entities", `{"id":`+text+`,"metadata":{`+text+`:`+text+`}}`)
			f.must(t, 201, "POST", "/v1/entities", `{"id":"child","parent":`+text+`,"cascade":true}`)
			if a := f.must(t, 200, "GET", "/v1/entities/"+path, ""); a.JSON["id"] != id {
				t.Errorf("got %s", a.Body)
			}
			if a := f.must(t, 200, "GET", "/v1/entities/"+path+"/children", ""); len(a.JSON["items"].([]any)) != 1 {
				t.Errorf("got %s", a.Body)
			}
			f.must(t, 200, "PUT", "/v1/limits?resource="+query, `{"limits":[{"name":`+text+`,"amount":5,"period":"min"}]}`)
			a := f.must(t, 200, "POST", "/v1/acquire", `{"entity":"child","resource":`+text+`,"tokens":{`+text+`:5}}`)
			for name, values := range a.Header() {
				if strings.ContainsAny(strings.Join(values, ""), "\r\n") || strings.ContainsFunc(strings.Join(values, ""), func(r rune) bool { return r > '~' }) {
					t.Errorf("%s: got %q", name, values)
				}
			}
			f.must(t, 429, "POST", "/v1/acquire", `{"entity":"child","resource":`+text+`,"tokens":{`+text+`:5}}`)
			f.must(t, 200, "GET", "/v1/buckets/"+path+"/"+path, "")
			f.must(t, 204, "POST", "/v1/leases/"+a.JSON["lease"].(string)+"/rollback", "")
			a = f.must(t, 200, "GET", "/v1/available?entity="+query+"&resource="+query, "")
			if st := a.JSON["limits"].([]any)[0].(map[string]any); st["available"] != 5.0 || st["limit"] != id || st["entity"] != id {
				t.Errorf("got %s", a.Body)
			}
			f.must(t, 204, "POST", "/v1/buckets/"+path+"/"+path+"/reset", "")
			f.must(t, 204, "DELETE", "/v1/limits?resource="+query, "")
			f.must(t, 400, "DELETE", "/v1/entities/"+path, "")
			f.must(t, 204, "DELETE", "/v1/entities/"+path+"?children=true", "")
			f.must(t, 201, "POST", "/v1/namespaces", `{"name":`+text+`}`)
			f.must(t, 200, "GET", "/v1/namespaces/"+path, "")
			f.must(t, 200, "GET", "/v1/entities?namespace="+query, "")
		})
	}
}
