package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// TestDashboard checks that the dashboard is served beside the API and hides nothing of it.
func TestDashboard(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	ask := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		return w
	}
	for _, tt := range []struct {
		method, path string
		status       int
		mime         string
	}{
		{"GET", "/", http.StatusOK, "text/html; charset=utf-8"},
		{"HEAD", "/", http.StatusOK, "text/html; charset=utf-8"},
		{"GET", "/assets/js/main.js", http.StatusOK, "text/javascript; charset=utf-8"},
		{"GET", "/assets/gone.js", http.StatusNotFound, "application/problem+json"},
		{"GET", "/assets/", http.StatusNotFound, "application/problem+json"},
		{"GET", "/entities", http.StatusNotFound, "application/problem+json"},
		{"POST", "/", http.StatusNotFound, "application/problem+json"},
		{"GET", "/v1/nowhere", http.StatusNotFound, "application/problem+json"},
	} {
		w := ask(tt.method, tt.path)
		if mime := w.Header().Get("Content-Type"); w.Code != tt.status || mime != tt.mime {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, w.Code, mime, tt.status, tt.mime)
		}
	}
	if csp := ask("GET", "/").Header().Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("Content-Security-Policy: %q", csp)
	}
}
