// Package redirecttest starts servers that redirect, for tests of clients that must not follow.
package redirecttest

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// Start returns the URL of a server that redirects each request, with its method and body, to another port of its host.
// The test fails if a request arrives there, or if none is redirected.
func Start(t *testing.T) string {
	t.Helper()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s followed a redirect, with the headers %v", r.Method, r.URL.Path, r.Header)
	}))
	t.Cleanup(other.Close)
	var redirected atomic.Bool
	t.Cleanup(func() {
		if !redirected.Load() {
			t.Error("no request was redirected")
		}
	})
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		redirected.Store(true)
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(first.Close)
	return first.URL
}
