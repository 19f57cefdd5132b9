package httpapi_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// A HEAD probe is answered at once and holds no stream open.
func TestStreamsHead(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/v1/overview", "/v1/usage/stream?by=namespace", "/v1/watch?entity=alice&resource=gpt-4"} {
		synctest.Test(t, func(t *testing.T) {
			f := setup(t, httpapi.Config{Metrics: &fakeMetrics{}})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodHead, target, nil)
			r.Header.Set("Accept", "text/event-stream")
			began := time.Now()
			if a := f.send(t, r); a.Code != http.StatusOK || time.Since(began) > 5*time.Second {
				t.Errorf("HEAD %s: got %d after %s, want 200 at once", target, a.Code, time.Since(began))
			}
		})
	}
}

// A principal that is refused for lack of a role is named in the log.
func TestRefusedIsNamed(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	g.as(t, 403, "read", "POST /v1/acquire", `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":1}}`)
	if !strings.Contains(g.log.String(), "principal=token:read") {
		t.Errorf("the log does not say who was refused: %s", g.log)
	}
}

// NUL stands for the id / internally, but not in requests.
func TestNULIsNoSlash(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	g.as(t, 201, "admin", "POST /v1/entities", `{"id":"/"}`)
	g.as(t, 200, "read", "GET /v1/entities/%2F", "")
	g.as(t, 400, "read", "GET /v1/entities/%00", "")
	g.as(t, 400, "admin", "DELETE /v1/entities/%00", "")
	g.as(t, 200, "read", "GET /v1/entities/%2F", "")
}

// The total size of bodies under way is bounded; small bodies always pass.
func TestBodiesUnderWay(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	small := `{"entity":"alice","resource":"gpt-4","tokens":{"rpm":1}}`
	large := small + strings.Repeat(" ", 100<<10)
	g.as(t, 200, "acquire", "POST /v1/acquire", large)
	if n := g.srv.Keep(0); n != 0 {
		t.Fatalf("%d bytes are still counted", n)
	}
	g.srv.Keep(httpapi.MaxBodies)
	a := g.as(t, 503, "acquire", "POST /v1/acquire", large)
	if !strings.Contains(a.Body.String(), "#overloaded") {
		t.Errorf("got %s, want overloaded", a.Body)
	}
	g.as(t, 200, "acquire", "POST /v1/acquire", small)
	if n := g.srv.Keep(-httpapi.MaxBodies); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
	g.as(t, 200, "acquire", "POST /v1/acquire", large)
}

// Clients that speak something other than HTTP do not fill the log.
func TestStrangersAreLoggedSeldom(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	srv, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: newLimiter(t), Log: slog.New(slog.NewTextHandler(&log, nil))}})
	if err != nil {
		t.Fatal(err)
	}
	hs := srv.HTTPServer(t.Context(), nil)
	for range 100 {
		if _, err := io.WriteString(hs.ErrorLog.Writer(), "TLS handshake error\n"); err != nil { //nolint:forbidigo // as net/http does
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "TLS handshake error"); n < 1 || n > 2 {
		t.Errorf("logged %d times, want once a second", n)
	}
}

// Only a few manifests are processed at a time, and every request gives its place back, whatever its outcome.
func TestManifestsAtOnce(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	good := `{"namespace":"blue","resources":{"z":{"limits":{"rpm":{"capacity":1}}}}}`
	for range 10 {
		g.as(t, 200, "read", "POST /v1/manifests/validate", good)
		g.as(t, 400, "read", "POST /v1/manifests/plan", `[]`)
		g.as(t, 403, "read", "POST /v1/manifests/diff", strings.Replace(good, "blue", "green", 1))
	}
	for g.srv.Declare() {
	}
	for _, to := range []string{"validate", "plan", "diff", "apply", "x/rollback?revision=1"} {
		a := g.as(t, 503, "admin", "POST /v1/manifests/"+to, map[bool]string{true: good}[!strings.Contains(to, "rollback")])
		if !strings.Contains(a.Body.String(), "#overloaded") {
			t.Errorf("%s: got %s, want overloaded", to, a.Body)
		}
	}
	g.as(t, 200, "read", "GET /v1/manifests", "")
}
