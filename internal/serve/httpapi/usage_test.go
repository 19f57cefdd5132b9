package httpapi_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// TestUsageStream checks that a stream sends the current window at once, and again when it has changed.
func TestUsageStream(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	hs := httptest.NewServer(f.h)
	defer hs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, hs.URL+"/v1/usage/stream?window=monthly&entity=alice", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	heard := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return ""
	}
	if data := heard(); !strings.Contains(data, `"requests":0`) {
		t.Errorf("at first %s, want no requests", data)
	}
	f.must(t, http.StatusOK, "POST", "/v1/acquire", `{"entity":"alice","resource":"gpt-4","tokens":{"rpm":1}}`)
	// Real time: the server looks every two seconds.
	if data := heard(); !strings.Contains(data, `"requests":1`) || !strings.Contains(data, `"entity":"alice"`) {
		t.Errorf("then %s, want one request", data)
	}
}

func TestUsageMistakes(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	for target, field := range map[string]string{
		"/v1/usage?from=yesterday":              "from",
		"/v1/usage?to=1":                        "to",
		"/v1/usage?by=limit":                    "by",
		"/v1/usage/top?by=store":                "by",
		"/v1/usage/summary?resource=a&by=store": "resource",
		"/v1/usage/stream?window=yearly":        "window",
	} {
		if a := f.must(t, http.StatusBadRequest, "GET", target, ""); a.JSON["field"] != field {
			t.Errorf("%s: field %v, want %s", target, a.JSON["field"], field)
		}
	}
	f.must(t, http.StatusBadRequest, "GET", "/v1/usage?after=x", "")
}
