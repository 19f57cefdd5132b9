package httpapi_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/conns"
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

// What unfinished bodies hold is bounded, for each token less than for all; small bodies always pass.
func TestBodiesUnderWay(t *testing.T) {
	t.Parallel()
	const budget = 1 << 20
	held := conns.NewBudget(budget)
	g := newGateOf(t, decide.Config{Held: held})
	small := `{"entity":"alice","resource":"gpt-4","tokens":{"rpm":1}}`
	large := small + strings.Repeat(" ", 200<<10)
	for range 2 * budget / len(large) {
		g.as(t, 200, "acquire", "POST /v1/acquire", large)
	}
	other := conns.Hold{Budget: held}
	if !other.Add(t.Context(), "acquire", budget*3/4-64<<10, 0) {
		t.Fatal("three quarters are not free")
	}
	a := g.as(t, 503, "acquire", "POST /v1/acquire", large)
	if !strings.Contains(a.Body.String(), "#overloaded") {
		t.Errorf("got %s, want overloaded", a.Body)
	}
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/acquire", iotest.ErrReader(errors.New("was read")))
	r.ContentLength = 200 << 10
	r.Header.Set("Authorization", "Bearer "+g.tokens["acquire"])
	r.Header.Set("Content-Type", "application/json")
	if a := g.send(t, r); a.Code != 503 {
		t.Errorf("a body that is withheld: got %d", a.Code)
	}
	g.as(t, 200, "acquire", "POST /v1/acquire", small)
	g.as(t, 200, "two", "POST /v1/acquire?", strings.Replace(large, "{", `{"namespace":"blue",`, 1))
	other.Close()
	g.as(t, 200, "acquire", "POST /v1/acquire", large)
}

// What bodies under way are read into is counted, except for 4 KiB each: one token's hold three quarters of the budget, however
// little has arrived.
func TestSlowBodiesAreCounted(t *testing.T) {
	t.Parallel()
	const budget, each = 1 << 20, 60 << 10
	g := newGateOf(t, decide.Config{Held: conns.NewBudget(budget)})
	synctest.Test(t, func(t *testing.T) {
		slow := func(size int) (send *io.PipeWriter, done func() bool) {
			body, send := io.Pipe()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/acquire", body)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+g.tokens["acquire"])
			answered := make(chan int, 1)
			go func() {
				w := httptest.NewRecorder()
				g.h.ServeHTTP(w, r)
				body.Close()
				answered <- w.Code
			}()
			_, _ = io.WriteString(send, strings.Repeat(" ", size))
			synctest.Wait()
			return send, func() bool { return len(answered) > 0 }
		}
		held := 0
		var open []io.Closer
		defer func() {
			for _, send := range open {
				send.Close()
			}
		}()
		for _, size := range []int{each, 1} {
			for range 40 {
				send, done := slow(size)
				open = append(open, send)
				if !done() {
					held += size
				} else if size == 1 {
					t.Fatal("a small body was refused")
				}
			}
		}
		if most := budget*3/4 + 80*4<<10; held > most || held < budget/2 {
			t.Errorf("bodies under way hold %d bytes, want at most %d", held, most)
		}
	})
}

// Clients that speak something other than HTTP do not fill the log.
func TestNotHTTPIsLoggedSeldom(t *testing.T) {
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

// While large manifests of one token are decoded, small ones are decoded at once, and another's large one comes before the
// next of that token.
func TestManifestsTakeTurns(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	synctest.Test(t, func(t *testing.T) {
		small := `{"namespace":"blue","resources":{"z":{"limits":{"rpm":{"capacity":1}}}}}`
		large := small + " # " + strings.Repeat("a ", 25_000)
		end := g.srv.Decode()
		g.as(t, 200, "read", "POST /v1/manifests/validate", small)
		done := make(chan string, 4)
		for _, who := range []string{"read", "read", "read", "admin"} {
			go func() {
				text := large
				if who == "read" { // takes far longer than an answer, so that answers come in the order of turns
					text += strings.Repeat("a ", 350_000)
				}
				g.as(t, 200, who, "POST /v1/manifests/validate", text)
				done <- who
			}()
			synctest.Wait()
		}
		end()
		if order := []string{<-done, <-done, <-done, <-done}; order[3] == "admin" || order[2] == "admin" {
			t.Errorf("decoded in the order %s", order)
		}
	})
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

// An address for probes answers nothing else.
func TestProbesAlone(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	g.h = g.srv.Probes()
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/v1/whoami": 404, "/metrics": 404, "/": 404} {
		w := httptest.NewRecorder()
		g.h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
}

// With TLS, browsers are told to use nothing else; an address without it does not speak HTTP/2, which could carry any number
// of requests on a connection.
func TestTransport(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		cfg := decide.Config{Limiter: newLimiter(t)}
		if secure {
			cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		srv, err := httpapi.New(httpapi.Config{Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		srv.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", http.NoBody))
		if got := w.Header().Get("Strict-Transport-Security"); (got == "max-age=31536000") != secure || !secure && got != "" {
			t.Errorf("TLS %t: Strict-Transport-Security is %q", secure, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := serving(t, setup(t, httpapi.Config{}), httpapi.Config{}).dial()
		defer c.Close()
		go func() {
			_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		}()
		answer, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 ") || strings.HasPrefix(string(answer), "HTTP/1.1 2") {
			t.Errorf("HTTP/2 in clear text: got %q", answer)
		}
	})
}
