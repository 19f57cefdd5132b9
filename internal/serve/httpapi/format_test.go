package httpapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	format "github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// TestOpenAI checks that requests to acquire, and only these, fail in the format of OpenAI's API, unless the client
// accepts problems.
func TestOpenAI(t *testing.T) {
	t.Parallel()
	synctest.Test(t, openAI) // nothing is issued meanwhile
}

func openAI(t *testing.T) {
	t.Helper()
	f := setup(t, httpapi.Config{Errors: format.OpenAI})
	f.acquire(t, "1000")
	over := demand("alice", `"tokens":{"rpm":1,"tpm":1}`)
	for _, tt := range []struct {
		to, accept, body string
		status           int
		typ, code        string // "": a problem
	}{
		{"/v1/acquire", "", over, 429, "tokens", "rate_limit_exceeded"},
		{"/v1/acquire", "application/json", over, 429, "tokens", "rate_limit_exceeded"},
		{"/v1/acquire", "application/json, application/problem+json;q=0.9", over, 429, "", ""},
		{"/v1/acquire", "", demand("alice", `"tokens":{"tpm":1001}`), 422, "invalid_request_error", "exceeds_burst"},
		{"/v1/acquire", "", demand("alice", `"tokens":{"tpm":-1}`), 400, "invalid_request_error", "invalid"},
		{"/v1/acquire/batch", "", batchOf(`"atomic":true,`, over), 429, "tokens", "rate_limit_exceeded"},
		{"/v1/leases/AAAA/rollback", "", "", 404, "", ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", tt.to, strings.NewReader(tt.body))
		r.Header.Set("Content-Type", "application/json")
		if tt.accept != "" {
			r.Header.Set("Accept", tt.accept)
		}
		a := f.send(t, r)
		e, _ := a.JSON["error"].(map[string]any)
		media := "application/json"
		if tt.typ == "" {
			media = "application/problem+json"
		} else if e == nil || e["type"] != tt.typ || e["code"] != tt.code {
			t.Errorf("%s %s: got %s", tt.to, tt.body, a.Body)
		}
		if a.Code != tt.status || a.Header().Get("Content-Type") != media || (tt.typ == "") != (a.JSON["status"] != nil) {
			t.Errorf("%s %s, accepting %q: got %d %s", tt.to, tt.body, tt.accept, a.Code, a.Body)
		}
		limited := a.Code == 429 && tt.typ != ""
		if got := a.Header().Get("x-ratelimit-remaining-tokens"); (got == "0") != limited {
			t.Errorf("%s %s: x-ratelimit-remaining-tokens %q", tt.to, tt.body, got)
		}
		if got := a.Header().Get("retry-after-ms"); (got != "") != limited {
			t.Errorf("%s %s: retry-after-ms %q", tt.to, tt.body, got)
		}
	}
	a := f.must(t, 200, "POST", "/v1/acquire/batch", batchOf("", over))
	if r := results(a)[0]; r["status"] != 429.0 { // each result is a problem
		t.Errorf("got %v", r)
	}
}
