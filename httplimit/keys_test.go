package httplimit_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weirlimits/weir/httplimit"
)

func TestByHeader(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	key := httplimit.ByHeader("x-api-key")
	if _, err := key(r); !errors.Is(err, httplimit.ErrNoKey) {
		t.Errorf("got %v without a key", err)
	}
	r.Header.Set("X-Api-Key", "sk-secret")
	id, err := key(r)
	if err != nil || id != httplimit.KeyID("sk-secret") || strings.Contains(id, "secret") {
		t.Errorf("got %q, %v", id, err)
	}
	// printf %s sk-secret | sha256sum | cut -c1-32
	if want := "key-746b4ad1ca9129e1caf080bf9406d435"; id != want {
		t.Errorf("got %q, want %q", id, want)
	}
	r.Header.Add("X-Api-Key", "sk-other")
	var status *httplimit.StatusError
	if _, err := key(r); !errors.As(err, &status) || errors.Is(err, httplimit.ErrNoKey) || status.Status != http.StatusBadRequest {
		t.Errorf("got %v with two keys", err)
	}
}

// However a token is sent, it identifies one entity. Otherwise a client would have as many limits as there are ways to
// send it.
func TestByBearer(t *testing.T) {
	t.Parallel()
	key := httplimit.ByBearer()
	for field, want := range map[string]string{
		"Bearer abc": "abc", "bearer abc": "abc", "BEARER   abc ": "abc", "Bearer \tabc": "abc",
		"": "", "Bearer": "", "Bearer ": "", "Basic abc": "", "abc": "", "Bearerabc": "",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Header.Set("Authorization", field)
		id, err := key(r)
		if want == "" {
			if !errors.Is(err, httplimit.ErrNoKey) {
				t.Errorf("%q: got %q, %v", field, id, err)
			}
		} else if err != nil || id != httplimit.KeyID(want) {
			t.Errorf("%q: got %q, %v", field, id, err)
		}
	}
}

func TestFirst(t *testing.T) {
	t.Parallel()
	key := httplimit.First(httplimit.ByHeader("X-Api-Key"), httplimit.ByRemoteAddr())
	r := request(t, "")
	r.RemoteAddr = "192.0.2.1:5000"
	if id, err := key(r); id != "ip-192.0.2.1" || err != nil {
		t.Errorf("got %q, %v", id, err)
	}
	r.Header["X-Api-Key"] = []string{"a", "b"}
	if _, err := key(r); err == nil || errors.Is(err, httplimit.ErrNoKey) {
		t.Errorf("got %v: what is wrong does not go on to the next", err)
	}
	r.Header["X-Api-Key"] = []string{"a"}
	if id, err := key(r); id != httplimit.KeyID("a") || err != nil {
		t.Errorf("got %q, %v", id, err)
	}
	if _, err := httplimit.First()(r); !errors.Is(err, httplimit.ErrNoKey) {
		t.Errorf("got %v from none", err)
	}
}

func TestByRemoteAddr(t *testing.T) {
	t.Parallel()
	r := request(t, "")
	key := httplimit.ByRemoteAddr(netip.MustParsePrefix("10.0.0.0/8"))
	r.RemoteAddr = "10.0.0.1:443"
	r.Header["X-Forwarded-For"] = []string{"198.51.100.1, 203.0.113.9", "10.1.2.3"}
	if id, err := key(r); id != "ip-203.0.113.9" || err != nil {
		t.Errorf("got %q, %v", id, err)
	}
	r.RemoteAddr = "192.0.2.7:443"
	if id, err := key(r); id != "ip-192.0.2.7" || err != nil {
		t.Errorf("got %q, %v", id, err)
	}
	r.RemoteAddr = "@"
	if _, err := key(r); !errors.Is(err, httplimit.ErrNoKey) {
		t.Errorf("got %v on a Unix socket", err)
	}
}

func TestByPattern(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	var got string
	mux.HandleFunc("GET /orders/{id}", func(_ http.ResponseWriter, r *http.Request) { got, _ = httplimit.ByPattern(r) })
	r := request(t, "")
	r.URL.Path = "/orders/7"
	mux.ServeHTTP(httptest.NewRecorder(), r)
	if got != "GET /orders/{id}" {
		t.Errorf("got %q", got)
	}
}

func TestPeekBody(t *testing.T) {
	t.Parallel()
	post := func(body io.Reader) *http.Request {
		return httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
	}
	wantErr := func(r *http.Request, limit int64, status int) {
		t.Helper()
		var chosen *httplimit.StatusError
		if _, err := httplimit.PeekBody(r, limit); !errors.As(err, &chosen) || chosen.Status != status {
			t.Errorf("got %v, want %d", err, status)
		}
	}
	r := post(strings.NewReader("12345"))
	for range 2 {
		if body, err := httplimit.PeekBody(r, 5); string(body) != "12345" || err != nil {
			t.Errorf("got %q, %v", body, err)
		}
	}
	if body, err := io.ReadAll(r.Body); string(body) != "12345" || err != nil {
		t.Errorf("the handler reads %q, %v", body, err)
	}
	wantErr(post(strings.NewReader("123456")), 5, http.StatusRequestEntityTooLarge)
	wantErr(post(iotest.ErrReader(errors.New("reset"))), 5, http.StatusBadRequest)
	r = post(strings.NewReader("123456"))
	r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 3)
	wantErr(r, 10, http.StatusRequestEntityTooLarge)
	r.Body = nil
	if body, err := httplimit.PeekBody(r, 10); body != nil || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
}
