package httpapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// conditional sends a request with one additional header field.
func (f *fixture) conditional(t *testing.T, to, body, name, value string) answer {
	t.Helper()
	method, target, _ := strings.Cut(to, " ")
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if name != "" {
		r.Header.Set(name, value)
	}
	return f.send(t, r)
}

// TestIfMatch checks that if two clients change what both have read, the second fails and overwrites nothing.
func TestIfMatch(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	for _, scope := range []string{"?resource=gpt-4", "?entity=alice&resource=gpt-4", "?entity=alice", ""} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			f := setup(t, httpapi.Config{})
			of := "/v1/limits" + scope
			send := func(status int, to, body, name, value string) string {
				t.Helper()
				a := f.conditional(t, to+" "+of, body, name, value)
				if a.Code != status {
					t.Fatalf("%s %s %s %q: got %d, want %d: %s", to, of, name, value, a.Code, status, a.Body)
				}
				if status == 412 && !strings.Contains(a.Body.String(), "#stale") {
					t.Errorf("got %s, want stale", a.Body)
				}
				for _, bad := range doc.check(to+" /v1/limits", a) {
					t.Error(bad)
				}
				return a.Header().Get("ETag")
			}
			const one, two, three = `{"limits":["rpm:1/min"]}`, `{"limits":["rpm:2/min"]}`, `{"limits":["rpm:3/min"]}`
			send(200, "PUT", one, "", "")
			read := send(200, "GET", "", "", "")
			if again := send(200, "GET", "", "", ""); again != read || len(read) < 3 {
				t.Errorf("the tag of the same limits is %s, then %s", read, again)
			}
			written := send(200, "PUT", two, "If-Match", read)
			send(412, "PUT", three, "If-Match", read)
			send(412, "DELETE", "", "If-Match", read)
			send(412, "PUT", three, "If-Match", "W/"+written) // a weak tag never matches
			send(412, "PUT", three, "If-None-Match", "*")
			if now := send(200, "GET", "", "", ""); now != written {
				t.Errorf("the tag is %s, was %s when it was written: somebody was overwritten", now, written)
			}
			send(200, "PUT", three, "If-Match", read+`, `+written)
			send(200, "PUT", three, "If-Match", "*")
			send(400, "PUT", `{"limits":[]}`, "If-Match", "*") // an empty list does not delete the limits
			send(400, "PUT", one, "If-None-Match", `"a"`)
			const boost = `{"scale":10,"until":"2126-12-04T18:00@Europe/Berlin"}`
			read = send(200, "GET", "", "", "")
			send(412, "PUT", boost, "If-Match", written)
			boosted := send(200, "PUT", boost, "If-Match", read)
			send(412, "PUT", boost, "If-Match", read)
			of += map[bool]string{true: "&bounded=true", false: "?bounded=true"}[scope != ""]
			send(412, "DELETE", "", "If-Match", read)
			send(204, "DELETE", "", "If-Match", boosted)
			if of = "/v1/limits" + scope; send(200, "GET", "", "", "") != read {
				t.Error("without the boost, the limits have another tag")
			}
			boosted = send(200, "PUT", boost, "If-Match", read)
			send(412, "DELETE", "", "If-Match", read)
			send(204, "DELETE", "", "If-Match", boosted)
			send(412, "PUT", one, "If-Match", written)
			send(412, "PUT", one, "If-Match", "*")
			send(412, "DELETE", "", "If-Match", "*")
			if born := send(200, "PUT", two, "If-None-Match", "*"); born != written {
				t.Errorf("the same limits have the tag %s, and had %s", born, written)
			}
			if scope == "" {
				f.must(t, 200, "PUT", "/v1/system", `{"on_unavailable":"deny"}`)
				send(412, "PUT", three, "If-Match", written) // the setting has changed since this tag was read
			}
		})
	}
}

// TestListsHaveTags checks that an edit based on a list is compared with what the list showed.
func TestListsHaveTags(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	a := f.must(t, 200, "GET", "/v1/resources", "")
	tag, _ := a.JSON["items"].([]any)[0].(map[string]any)["etag"].(string)
	if shown := f.must(t, 200, "GET", "/v1/limits?resource=gpt-4", "").Header().Get("ETag"); shown != `"`+tag+`"` {
		t.Errorf("the list has %q, the scope %s", tag, shown)
	}
	if a := f.conditional(t, "PUT /v1/system", `{"on_unavailable":"deny"}`, "If-Match", "*"); a.Code != 400 {
		t.Errorf("a condition that is not looked at: got %d", a.Code)
	}
}

// TestIfMatchManaged checks that a takeover of limits by a manifest counts as a change.
func TestIfMatchManaged(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	f.must(t, 200, "PUT", "/v1/limits?resource=x", `{"limits":["rpm:1/min"]}`)
	read := f.must(t, 200, "GET", "/v1/limits?resource=x", "").Header().Get("ETag")
	all, err := admin.New(f.lim).Manifests.Lookup(t.Context(), admin.RecordID{Scope: admin.Scope{Resource: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	was := all[0]
	now := *was.Limits
	now.Managed = &admin.Managed{Manifest: "m", Hash: "h"}
	for _, err := range admin.New(f.lim).Manifests.Declare(t.Context(), []admin.DeclaredChange{{Before: was, After: admin.Declared{Limits: &now}}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if a := f.conditional(t, "PUT /v1/limits?resource=x", `{"limits":["rpm:2/min"]}`, "If-Match", read); a.Code != 412 {
		t.Errorf("got %d %s", a.Code, a.Body)
	}
}

// TestIfMatchEntity checks that if two clients change an entity that both have read, the second fails and overwrites
// nothing.
func TestIfMatchEntity(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	f := setup(t, httpapi.Config{})
	send := func(status int, to, body, name, value string) string {
		t.Helper()
		method, route := to+" /v1/entities/dave", to+" /v1/entities/{id}"
		if to == "POST" {
			method, route = "POST /v1/entities", "POST /v1/entities"
		}
		a := f.conditional(t, method, body, name, value)
		if a.Code != status {
			t.Fatalf("%s %s %q: got %d, want %d: %s", method, name, value, a.Code, status, a.Body)
		}
		if status == 412 && !strings.Contains(a.Body.String(), "#stale") {
			t.Errorf("got %s, want stale", a.Body)
		}
		for _, bad := range doc.check(route, a) {
			t.Error(bad)
		}
		return a.Header().Get("ETag")
	}
	const dave = `{"id":"dave"}`
	send(412, "PATCH", `{"name":"A"}`, "If-Match", "*") // it does not exist
	send(412, "DELETE", "", "If-Match", "*")
	born := send(201, "POST", dave, "", "")
	read := send(200, "GET", "", "", "")
	if born != read || len(read) < 3 {
		t.Errorf("the tag is %s when it is created, then %s", born, read)
	}
	send(304, "GET", "", "If-None-Match", `"other", W/`+read)
	send(200, "GET", "", "If-None-Match", `"other"`)
	written := send(200, "PATCH", `{"name":"A"}`, "If-Match", read)
	if written == read {
		t.Errorf("the tag of another name is the same: %s", read)
	}
	send(412, "PATCH", `{"name":"B"}`, "If-Match", read)
	send(412, "PATCH", `{}`, "If-Match", read) // although it would change nothing
	send(412, "PATCH", `{"name":"B"}`, "If-Match", "W/"+written)
	send(412, "PATCH", `{"name":"B"}`, "If-None-Match", "*")
	send(412, "DELETE", "", "If-Match", read)
	if now := send(200, "GET", "", "", ""); now != written {
		t.Errorf("the tag is %s, was %s when it was written: somebody was overwritten", now, written)
	}
	if a := f.must(t, 200, "GET", "/v1/entities?prefix=dave", ""); !strings.Contains(a.Body.String(), `"etag":`+written) {
		t.Errorf("a list has another tag than %s: %s", written, a.Body)
	}
	send(204, "DELETE", "", "If-Match", read+", "+written)
	send(412, "DELETE", "", "If-Match", written)
	send(201, "POST", dave, "", "")
	send(400, "POST", dave, "If-None-Match", "*") // nothing would look at it
	send(200, "PATCH", `{"name":"B"}`, "If-Match", "*")
}
