package httpapi_test

import (
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/store/memory"
)

// bookOf returns a book with tokens, by name, that have every role in the default namespace.
func bookOf(t *testing.T, names ...string) (*auth.Book, map[string]string) {
	t.Helper()
	path, tokens := filepath.Join(t.TempDir(), "tokens.yaml"), make(map[string]string)
	for _, name := range names {
		token, e, err := auth.NewEntry(name, []auth.Role{auth.Admin}, []string{weir.DefaultNamespace}, time.Time{})
		if err == nil {
			err = auth.Add(path, e)
		}
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = token
	}
	book, err := auth.Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return book, tokens
}

// TestOneTokenTakesNotAll checks that however much one token requests at once, another's requests, waits and streams
// are accepted and answered.
func TestOneTokenTakesNotAll(t *testing.T) {
	t.Parallel()
	book, tokens := bookOf(t, "hog", "other")
	synctest.Test(t, func(t *testing.T) {
		st := stuck{memory.New(nil), make(chan struct{})}
		f := over(t, st, httpapi.Config{Config: decide.Config{MaxInflight: 4, Book: book}})
		start := func(who, to, body string) <-chan *httptest.ResponseRecorder {
			method, target, _ := strings.Cut(to, " ")
			r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+tokens[who])
			answered := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				w := httptest.NewRecorder()
				f.h.ServeHTTP(w, r)
				answered <- w
			}()
			synctest.Wait()
			return answered
		}
		const spend, stream = "POST /v1/acquire", "GET /v1/watch?entity=alice&resource=gpt-4"
		var open []<-chan *httptest.ResponseRecorder
		for _, to := range []string{stream, spend} {
			for range 3 {
				open = append(open, start("hog", to, map[string]string{spend: acquireOne}[to]))
			}
			look := map[string]string{stream: stream + "&max=1", spend: "GET /v1/entities"}[to]
			if w := <-start("hog", look, ""); !overloaded(w) {
				t.Errorf("%s beside three %s of one token: got %d %s", look, to, w.Code, w.Body)
			}
			if w := <-start("other", look, ""); w.Code != 200 {
				t.Errorf("%s of another: got %d %s", look, w.Code, w.Body)
			}
		}
		next := start("hog", spend, acquireOne) // waits for one of its own to end
		close(st.release)
		for _, c := range append(open, next) {
			if w := <-c; w.Code != 200 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		}
	})
}
