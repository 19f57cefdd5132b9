package httpapi

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/store/memory"
)

// TestUnforeseen covers unexpected errors and panics: the client learns nothing about them, and the log does.
func TestUnforeseen(t *testing.T) {
	t.Parallel()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	for name, serve := range map[string]handler{
		"error": func(http.ResponseWriter, *http.Request) error { return errors.New("the password is 1234") },
		"panic": func(http.ResponseWriter, *http.Request) error { panic("the password is 1234") },
	} {
		var log strings.Builder
		s, err := New(Config{Config: decide.Config{Limiter: lim, Log: slog.New(slog.NewTextHandler(&log, nil))}})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		s.handle(serve).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		if w.Code != 500 || strings.Contains(w.Body.String(), "1234") || !strings.Contains(log.String(), "1234") {
			t.Errorf("%s: got %d %s, logged %s", name, w.Code, w.Body, &log)
		}
	}
}
