package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/memory"
)

// bookOf returns a book with tokens, by name, that have every role in the default namespace.
func bookOf(t *testing.T, names ...string) (*auth.Book, map[string]string) {
	t.Helper()
	path, tokens := filepath.Join(t.TempDir(), "tokens.yaml"), make(map[string]string)
	for _, name := range names {
		token, e, err := auth.NewEntry(auth.Entry{Name: name, Roles: []auth.Role{auth.Admin}, Namespaces: []string{weir.DefaultNamespace}})
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

// TestConnectionsOfOneToken checks that a token whose connections are busy, each with a stream or with a body that does not
// end, has three quarters of them, and that those of another are accepted and kept.
func TestConnectionsOfOneToken(t *testing.T) {
	t.Parallel()
	book, tokens := bookOf(t, "hog", "other")
	body := fmt.Sprintf("POST /v1/acquire HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", len(acquireOne))
	const list, stream = "GET /v1/entities HTTP/1.1\r\n", "GET /v1/watch?entity=alice&resource=gpt-4 HTTP/1.1\r\n"
	for _, busy := range []string{body, stream} {
		t.Run(busy[:4], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := serving(t, setup(t, httpapi.Config{}), httpapi.Config{Config: decide.Config{MaxConnections: 8, Book: book}})
				defer p.hangUp()
				begin := func(who, head string) net.Conn {
					c := p.dial()
					_, _ = io.WriteString(c, head+"Host: x\r\nAuthorization: Bearer "+tokens[who]+"\r\n\r\n")
					synctest.Wait()
					return c
				}
				answer := func(c net.Conn) int {
					_ = c.SetReadDeadline(time.Now().Add(time.Second))
					resp, err := http.ReadResponse(bufio.NewReader(c), nil)
					switch {
					case errors.Is(err, os.ErrDeadlineExceeded):
						return http.StatusContinue
					case err != nil:
						return 0
					}
					resp.Body.Close()
					return resp.StatusCode
				}
				mine := begin("other", body)
				var hog []net.Conn
				for range 20 {
					hog = append(hog, begin("hog", busy))
				}
				for _, who := range []string{"other", "other", "hog"} {
					want := 200
					if busy == stream && who == "hog" {
						want = 503
					}
					if got := answer(begin(who, list)); got != want {
						t.Errorf("%s: got %d, want %d", who, got, want)
					}
				}
				_, _ = io.WriteString(mine, acquireOne)
				if got := answer(mine); got != 200 {
					t.Errorf("a body of another that had begun before: got %d", got)
				}
				kept := 0
				for _, c := range hog {
					if got := answer(c); got == 200 || got == http.StatusContinue {
						kept++
					}
				}
				if kept < 4 || kept > 6 {
					t.Errorf("%d connections of one token are busy, want at most 6 of 8", kept)
				}
			})
		})
	}
}

// turns counts those that requests have taken to call the store, and those that they have now.
type turns struct{ all, now int }

// counted returns a fixture over a store for which requests take turns, one at a time.
func counted(t *testing.T, st store.Store, limits ...weir.Limit) (*fixture, *turns) {
	t.Helper()
	lim, err := weir.New(weir.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	n := new(turns)
	parts.Of(lim).Gate.Use(func(context.Context, string, int) (func(), error) {
		n.all++
		n.now++
		return func() { n.now-- }, nil
	})
	if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{Resource: "gpt-4"}, limits...); err != nil {
		t.Fatal(err)
	}
	s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: lim}})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{st, lim, s.Handler()}, n
}

// TestSlowBodiesTakeNoTurn checks that requests about leases do not keep others from the store before their bodies have arrived.
func TestSlowBodiesTakeNoTurn(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"adjust", "renew", "commit", "rollback"} {
		synctest.Test(t, func(t *testing.T) {
			free := stuck{memory.New(nil), make(chan struct{})}
			close(free.release)
			f, turns := counted(t, free, weir.PerMinute("tpm", 10), weir.Limit{Name: "parallel", Slots: 1})
			target := "/v1/leases/" + f.must(t, 200, "POST", "/v1/acquire", acquireOne).JSON["lease"].(string) + "/" + to
			body, send := io.Pipe()
			answered := f.start(t, "POST", target, body)
			synctest.Wait()
			if turns.now != 0 {
				t.Errorf("%s: has a turn", to)
			}
			_, _ = io.WriteString(send, map[bool]string{true: `{"tokens":{"tpm":1}}`, false: `{}`}[to == "adjust"])
			send.Close()
			if w := <-answered; w.Code >= 300 || turns.now != 0 {
				t.Errorf("%s: got %d %s, and %d turns are left", to, w.Code, w.Body, turns.now)
			}
		})
	}
}

// TestUsageStreamTakesTurns checks that streams of usage read the store in turn, and keep nobody from it meanwhile.
func TestUsageStreamTakesTurns(t *testing.T) {
	t.Parallel()
	st, err := disk.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	f, turns := counted(t, st, weir.PerMinute("tpm", 10))
	if a := f.do(t, "GET", "/v1/usage/stream?by=namespace&max=1", ""); a.Code != 200 || turns.all != 1 || turns.now != 0 {
		t.Errorf("got %d %s, with %+v", a.Code, a.Body, *turns)
	}
}
