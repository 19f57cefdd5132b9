package httpapi_test

import (
	"cmp"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	problems "github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/api/client"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

func dial(t *testing.T, h http.Handler, token string) *client.Client {
	t.Helper()
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	c, err := client.New(hs.URL+"/", token, "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A kind of problem becomes an error of the code that it was made from.
func TestClientCodes(t *testing.T) {
	t.Parallel()
	codes := map[string]weir.Code{
		"invalid": weir.CodeInvalid, "not-found": weir.CodeNotFound, "no-usage": weir.CodeNoUsage, "exists": weir.CodeExists, "conflict": weir.CodeConflict,
		"settled": weir.CodeSettled, "expired": weir.CodeExpired, "exceeds-burst": weir.CodeExceedsBurst,
		"no-limits": weir.CodeNoLimits, "quota-exceeded": weir.CodeExceeded, "overloaded": weir.CodeUnavailable,
		"temporary-reduced-capacity": weir.CodeUnavailable,
	}
	for _, uri := range httpapi.Kinds() {
		_, kind, _ := strings.Cut(uri, "#")
		c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			p := problems.Problem{Kind: &problems.Kind{URI: uri, Status: http.StatusTeapot}, Detail: "why"}
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write(p.Append(nil))
		}), "")
		_, _, err := api.ShowSystem.Call(t.Context(), c, &api.None{})
		if got, want := weir.CodeOf(err), cmp.Or(codes[kind], weir.CodeInternal); got != want || err == nil {
			t.Errorf("%s: code %d, want %d: %v", kind, got, want, err)
		}
	}
}

// What is no answer of a server is an error, too.
func TestClientOtherServers(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]weir.Code{200: weir.CodeInternal, 302: weir.CodeInternal, 404: weir.CodeInternal, 502: weir.CodeUnavailable} {
		c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			_, _ = w.Write([]byte("<html>"))
		}), "")
		_, _, err := api.ShowSystem.Call(t.Context(), c, &api.None{})
		if weir.CodeOf(err) != want || err == nil || !strings.Contains(err.Error(), "is it a weir server?") {
			t.Errorf("%d: %v", status, err)
		}
	}
	for _, url := range []string{"", "localhost:8080", "ftp://a", "http://a?b=c", "http://a?", "http://a#b", "http://a/#b", "http://b:c@a", "http://b@a"} {
		if _, err := client.New(url, "", "default", nil); weir.CodeOf(err) != weir.CodeInvalid {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// An answer without content is one only to requests that may have nothing to return.
func TestClientEmptyAnswers(t *testing.T) {
	t.Parallel()
	for status, body := range map[int]string{200: " null\n", 204: ""} {
		c, ctx := dial(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}), ""), t.Context()
		_, _, explained := api.Explain.Call(ctx, c, &api.Question{Entity: "a", Resource: "b"})
		_, _, acquired := api.Acquire.Call(ctx, c, &api.Demand{Entity: "a", Resource: "b"})
		_, _, listed := api.ListEntities.Call(ctx, c, &api.EntityQuery{})
		for what, err := range map[string]error{"explain": explained, "acquire": acquired, "list": listed} {
			if err == nil || !strings.Contains(err.Error(), "is it a weir server?") {
				t.Errorf("%s, %d: %v", what, status, err)
			}
		}
		_, _, err := api.DeleteEntity.Call(ctx, c, &api.EntityDeletion{ID: "a"})
		_, found, err2 := api.SetSystem.Call(ctx, c, &api.SystemChange{})
		if empty := status == 204; (err == nil) != empty || (err2 == nil) != empty || found {
			t.Errorf("%d: %v, %v, %t", status, err, err2, found)
		}
	}
}

// A header that cannot be sent is the caller's mistake, not an outage.
func TestClientHeaders(t *testing.T) {
	t.Parallel()
	if _, err := client.New("http://127.0.0.1:1", "a\nb", "default", nil); weir.CodeOf(err) != weir.CodeInvalid {
		t.Errorf("token: %v", err)
	}
	c, err := client.New("http://127.0.0.1:1", "", "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = api.SetLimits.Call(t.Context(), c, &api.LimitsChange{Preconditions: api.Preconditions{Match: []string{"a\nb"}}})
	if weir.CodeOf(err) != weir.CodeInvalid {
		t.Errorf("If-Match: %v", err)
	}
}

// Requests arrive as they were meant: in the path, the query, the header and the body.
func TestClientRequests(t *testing.T) {
	t.Parallel()
	s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: newLimiter(t)}})
	if err != nil {
		t.Fatal(err)
	}
	c, ctx := dial(t, s.Handler(), ""), t.Context()
	for _, id := range []string{"/", "a/b c", "日本?#%"} {
		made, _, err := api.CreateEntity.Call(ctx, c, &api.NewEntity{ID: id, Name: "N", Metadata: map[string]string{"a": "b"}})
		if err != nil {
			t.Fatal(err)
		}
		shown, _, err := api.ShowEntity.Call(ctx, c, &api.EntityKey{ID: id})
		if diff := gocmp.Diff(made, shown); diff != "" || err != nil || shown.ID != id {
			t.Errorf("%v: %s", err, diff)
		}
		// What an update leaves out stays; what it empties does not.
		updated, _, err := api.UpdateEntity.Call(ctx, c, &api.EntityUpdate{ID: id, Name: new("")})
		if err != nil || updated.Name != "" || updated.Metadata["a"] != "b" {
			t.Errorf("updated to %+v, %v", updated, err)
		}
	}
	for _, id := range []string{"", ".", ".."} {
		if _, _, err := api.ShowEntity.Call(ctx, c, &api.EntityKey{ID: id}); weir.CodeOf(err) != weir.CodeInvalid {
			t.Errorf("entity %q: %v", id, err)
		}
	}
	limits := []weir.Limit{weir.PerMinute("rpm", 5)}
	set, _, err := api.SetLimits.Call(ctx, c, &api.LimitsChange{Limits: limits, OnUnavailable: new(weir.OnUnavailableAllow)})
	if err != nil || set.OnUnavailable != weir.OnUnavailableAllow || len(set.Limits) != 1 {
		t.Fatalf("set %+v, %v", set, err)
	}
	stale := &api.LimitsChange{Limits: limits, Preconditions: api.Preconditions{Match: []string{`"0"`}}}
	var changed *api.ChangedError
	if _, _, err := api.SetLimits.Call(ctx, c, stale); !errors.As(err, &changed) {
		t.Errorf("a stale tag: %v", err)
	}
	stale.Match = []string{set.ETag()}
	if _, _, err := api.SetLimits.Call(ctx, c, stale); err != nil {
		t.Error(err)
	}
	now, _, err := api.SetSystem.Call(ctx, c, &api.SystemChange{
		OnUnavailable: new(weir.OnUnavailableDefault), NearLimit: new(admin.Thresholds{}),
	})
	if err != nil || now.OnUnavailable != "" || now.NearLimit == nil {
		t.Errorf("set %+v, %v", now, err)
	}
	demand := &api.Demand{Entity: "a", Resource: "b", Tokens: weir.Tokens{"rpm": 4}}
	if d, _, err := api.Acquire.Call(ctx, c, demand); err != nil || !d.Allowed || d.Limits[0].Available != 1 {
		t.Errorf("acquired %+v, %v", d, err)
	}
	var over *weir.ExceededError
	_, _, err = api.Acquire.Call(ctx, c, demand)
	if !errors.As(err, &over) || over.RetryAfter <= 0 || len(over.Statuses) != 1 || over.Statuses[0].Available != 1 {
		t.Errorf("refused with %v", err)
	}
}
