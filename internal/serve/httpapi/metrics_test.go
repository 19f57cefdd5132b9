package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// fakeMetrics returns the requested namespace as its overview, and accepts followers unless it is full.
type fakeMetrics struct {
	full     bool
	patterns []string
	shed     int
}

var _ httpapi.Metrics = (*fakeMetrics)(nil)

func (f *fakeMetrics) Requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		f.patterns = append(f.patterns, r.Pattern)
	})
}

func (f *fakeMetrics) Shed() { f.shed++ }

func (f *fakeMetrics) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "weir_build_info 1\n") })
}

func (f *fakeMetrics) OverviewJSON(namespace string) []byte {
	return []byte(`{"namespace":"` + namespace + `"}`)
}

func (f *fakeMetrics) Follow(ctx context.Context, namespace string, send func([]byte) error) bool {
	if f.full {
		return false
	}
	for send(f.OverviewJSON(namespace)) == nil {
		select {
		case <-ctx.Done():
			return true
		case <-time.After(time.Second): //nolint:forbidigo // of a bubble
		}
	}
	return true
}

func following(t *testing.T, target string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "GET", target, nil)
	r.Header.Set("Accept", "text/event-stream")
	return r
}

func TestOverview(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &fakeMetrics{}
		srv, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: newLimiter(t)}, Metrics: m})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{h: srv.Handler()}
		get := func(target string) *http.Request {
			return httptest.NewRequestWithContext(t.Context(), "GET", target, nil)
		}
		for target, want := range map[string]string{
			"/v1/overview": "default", "/v1/overview?namespace=blue": "blue", "/v1/overview?namespace=*": "*",
		} {
			if a := f.send(t, get(target)); a.Code != 200 || a.JSON["namespace"] != want || a.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d %s", target, a.Code, a.Body)
			}
		}
		if a := f.send(t, get("/v1/overview?entity=alice")); a.Code != 400 {
			t.Errorf("unknown parameter: %d", a.Code)
		}

		began := time.Now()
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, following(t, "/v1/overview?max=3"))
		if want := strings.Repeat("event: overview\ndata: {\"namespace\":\"default\"}\n\n", 3); w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "text/event-stream" {
			t.Errorf("%d %q", w.Code, w.Body)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("three events took %s", took)
		}
		began = time.Now()
		f.h.ServeHTTP(httptest.NewRecorder(), following(t, "/v1/overview"))
		if took := time.Since(began); took != time.Minute {
			t.Errorf("a stream went on for %s", took)
		}
		time.AfterFunc(10*time.Second, srv.Drain)
		began = time.Now()
		f.h.ServeHTTP(httptest.NewRecorder(), following(t, "/v1/overview"))
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("a stream of a server that ends went on for %s", took)
		}
		m.full = true
		if a := f.send(t, following(t, "/v1/overview")); a.Code != 503 || a.Header().Get("Retry-After") == "" || m.shed != 1 {
			t.Errorf("too many: %d %s, %d shed", a.Code, a.Body, m.shed)
		}
	})
}

// TestOverviewAccess checks that a principal sees its own namespaces, and that only one that may read everywhere sees all
// together.
func TestOverviewAccess(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for _, tt := range []struct {
		name, target string
		want         int
	}{
		{"read", "/v1/overview", 404}, // its own namespace: it may learn that this server has no overview
		{"read", "/v1/overview?namespace=blue", 404},
		{"read", "/v1/overview?namespace=green", 403},
		{"read", "/v1/overview?namespace=*", 403},
		{"acquire", "/v1/overview", 403},
		{"two", "/v1/overview?namespace=*", 403},
		{"root", "/v1/overview?namespace=*", 404},
		{"", "/v1/overview", 401},
		{"", "/metrics", 401},
		{"admin", "/metrics", 403},
		{"root", "/metrics", 404},
	} {
		if a := g.ask(t, tt.name, "GET "+tt.target, ""); a.Code != tt.want {
			t.Errorf("%q: %s: got %d, want %d", tt.name, tt.target, a.Code, tt.want)
		}
	}
}

// TestMetrics checks that metrics learn the route of each request, even if an id is a slash.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := &fakeMetrics{}
	srv, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: newLimiter(t)}, Metrics: m})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	srv.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 200 || w.Body.String() != "weir_build_info 1\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	srv.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/entities/%2F", nil))
	if got := strings.Join(m.patterns, ","); got != "GET /metrics,GET /v1/entities/{id}" {
		t.Errorf("routed %s", got)
	}
}
