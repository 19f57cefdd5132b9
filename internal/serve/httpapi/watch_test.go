package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// stream is an answer that is read line by line while it is written.
type stream struct {
	header http.Header
	status int
	w      *io.PipeWriter
	lines  chan string // closed when the answer ends
}

func (s *stream) Header() http.Header         { return s.header }
func (s *stream) WriteHeader(status int)      { s.status = status }
func (s *stream) Write(b []byte) (int, error) { return s.w.Write(b) }
func (s *stream) Flush()                      {}

// open starts a request whose answer is a stream.
func open(ctx context.Context, h http.Handler, target string) *stream {
	return openAs(ctx, h, target, "")
}

// openAs is open with a token.
func openAs(ctx context.Context, h http.Handler, target, token string) *stream {
	r, w := io.Pipe()
	s := &stream{header: make(http.Header), w: w, lines: make(chan string, 1000)}
	go func() {
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
		req.Header.Set("Accept", "text/event-stream")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		h.ServeHTTP(s, req)
		_ = w.Close()
	}()
	go func() {
		defer close(s.lines)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			s.lines <- lines.Text()
		}
	}()
	return s
}

// next returns the lines that have arrived.
func (s *stream) next() []string {
	synctest.Wait()
	var lines []string
	for {
		select {
		case l, ok := <-s.lines:
			if !ok {
				return append(lines, "EOF")
			}
			lines = append(lines, l)
		default:
			return lines
		}
	}
}

// peekFails is a store whose Peek fails once the test makes it.
type peekFails struct {
	store.Store
	fails atomic.Bool
}

func (p *peekFails) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	if p.fails.Load() {
		return store.Snapshot{}, &store.Error{Op: "peek", Err: errors.New("down")}
	}
	return p.Store.Peek(ctx, buckets...)
}

func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &peekFails{Store: memory.New(nil)}
		lim, err := weir.New(weir.Config{Store: st})
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerHour("rpm", 60)); err != nil {
			t.Fatal(err)
		}
		srv, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: lim, Signer: signer("0123456789abcdef")}})
		if err != nil {
			t.Fatal(err)
		}
		const target = "/v1/watch?entity=alice&resource=api"
		s := open(t.Context(), srv.Handler(), target)
		if got := s.next(); len(got) != 3 || got[0] != "event: state" || !strings.Contains(got[1], `"available":60,`) || got[2] != "" {
			t.Fatalf("at once %q", got)
		}
		if s.status != 200 || s.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%d %v", s.status, s.header)
		}
		if _, err := lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 3}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		if got := s.next(); len(got) != 3 || !strings.Contains(got[1], `"available":57,`) {
			t.Errorf("changed: %q", got)
		}
		time.Sleep(14 * time.Second)
		if got := s.next(); len(got) != 2 || got[0] != ": alive" {
			t.Errorf("heartbeat: %q", got)
		}
		time.Sleep(time.Minute)
		if got := s.next(); got[len(got)-1] != "EOF" {
			t.Errorf("after a minute: %q", got)
		}

		s = open(t.Context(), srv.Handler(), target)
		s.next()
		st.fails.Store(true)
		time.Sleep(1500 * time.Millisecond)
		if got := s.next(); len(got) != 1 || got[0] != "EOF" {
			t.Errorf("the store is down: %q", got)
		}
		s = open(t.Context(), srv.Handler(), target)
		if got := s.next(); s.status != http.StatusServiceUnavailable || !strings.Contains(got[0], "does not answer") {
			t.Errorf("%d %q", s.status, got)
		}
		st.fails.Store(false)

		ctx, cancel := context.WithCancel(t.Context())
		s = open(ctx, srv.Handler(), target)
		s.next()
		cancel()
		if got := s.next(); len(got) != 1 || got[0] != "EOF" {
			t.Errorf("the client left: %q", got)
		}
		s = open(t.Context(), srv.Handler(), target)
		s.next()
		srv.Drain()
		if got := s.next(); len(got) != 1 || got[0] != "EOF" {
			t.Errorf("draining: %q", got)
		}
		if s = open(t.Context(), srv.Handler(), target); len(s.next()) == 0 || s.status != http.StatusServiceUnavailable {
			t.Errorf("drained: %d", s.status)
		}
	})
}

func TestExplainMistakes(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	for target, field := range map[string]string{
		"/v1/explain?resource=gpt-4":                               "entity",
		"/v1/explain?entity=a&resource=gpt-4&tokens=rpm":           "tokens",
		"/v1/explain?entity=a&resource=gpt-4&tokens=rpm=-1":        "tokens.rpm",
		"/v1/explain?entity=a&resource=gpt-4&tokens=rpm=1,rpm=2":   "tokens.rpm",
		"/v1/explain?entity=a&resource=gpt-4&tokens=rpm=1,other=2": "tokens.other",
		"/v1/explain?entity=a&resource=gpt-4&limits=rpm=1":         `limit "rpm=1"`,
		"/v1/watch?entity=a":                                       "resource",
		"/v1/watch?entity=a&resource=b&max=0":                      "max",
	} {
		if a := f.must(t, http.StatusBadRequest, "GET", target, ""); a.JSON["field"] != field {
			t.Errorf("%s: field %v, want %s: %v", target, a.JSON["field"], field, a.JSON["detail"])
		}
	}
}
