package httplimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/httplimit"
)

// serve runs a wrapped handler on a server, and returns its response and the outcome.
func serve(t *testing.T, h http.HandlerFunc) (answer, <-chan httplimit.Result) {
	t.Helper()
	_, cfg := llm(t)
	results := make(chan httplimit.Result, 1)
	cfg.After = func(_ *http.Request, res *httplimit.Result) weir.Tokens {
		results <- *res
		return nil
	}
	srv := httptest.NewServer(wrap(t, cfg, h))
	t.Cleanup(srv.Close)
	r := request(t, "alice")
	r.RequestURI = ""
	r.URL.Scheme, r.URL.Host = "http", srv.Listener.Addr().String()
	res, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return answer{res.StatusCode, res.Header, res.Body}, results
}

// A stream reaches the client event by event: each event is sent only after the client has read the previous one.
func TestStreams(t *testing.T) {
	t.Parallel()
	received := make(chan struct{})
	res, results := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		f, ok := w.(http.Flusher)
		if !ok {
			t.Error("not a Flusher")
			return
		}
		rc := http.NewResponseController(w)
		if err := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			if i == 0 {
				f.Flush()
			} else if err := rc.Flush(); err != nil {
				t.Error(err)
			}
			select {
			case <-received:
			case <-r.Context().Done():
				t.Error("the client got nothing")
				return
			}
		}
	})
	wantField(t, res, "RateLimit", `"rpm";r=99;t=60, "tpm";r=9500;t=57`)
	lines := bufio.NewScanner(res.body)
	for i := 0; lines.Scan(); {
		if lines.Text() == "" {
			continue
		}
		if want := fmt.Sprintf("data: %d", i); lines.Text() != want {
			t.Errorf("got %q, want %q", lines.Text(), want)
		}
		i++
		received <- struct{}{}
	}
	if got := <-results; got.Status != http.StatusOK || got.Bytes != 27 {
		t.Errorf("got %+v", got)
	}
}

func TestHijacks(t *testing.T) {
	t.Parallel()
	res, results := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		hj, ok := w.(http.Hijacker)
		if !ok {
			t.Error("not a Hijacker")
			return
		}
		conn, _, err := hj.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		_ = conn.Close()
	})
	wantStatus(t, res, http.StatusSwitchingProtocols)
	if got := <-results; got.Status != http.StatusSwitchingProtocols || got.Panicked {
		t.Errorf("got %+v", got)
	}
}

func TestCopies(t *testing.T) {
	t.Parallel()
	res, results := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if _, ok := w.(io.ReaderFrom); !ok {
			t.Error("not a ReaderFrom")
		}
		_, _ = io.Copy(w, strings.NewReader("12345")) // uses WriteTo, which uses WriteString
		_, _ = io.Copy(w, io.LimitReader(strings.NewReader("6789"), 3))
	})
	if body, err := io.ReadAll(res.body); string(body) != "12345678" || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
	if got := <-results; got.Status != http.StatusOK || got.Bytes != 8 {
		t.Errorf("got %+v", got)
	}
}

// If the underlying writer lacks a feature, using it returns an error and does not panic.
func TestPoorWriter(t *testing.T) {
	t.Parallel()
	_, cfg := llm(t)
	h := wrap(t, cfg, func(w http.ResponseWriter, _ *http.Request) {
		rc := http.NewResponseController(w)
		_, _, hijack := rc.Hijack()
		for what, err := range map[string]error{"flush": rc.Flush(), "hijack": hijack, "deadline": rc.SetReadDeadline(time.Time{})} {
			if !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("%s: got %v", what, err)
			}
		}
		w.(http.Flusher).Flush()
		ok(w, nil)
	})
	h.ServeHTTP(discard{}, request(t, "alice"))
}

// A flush that the writer does not support is not a response: a handler that then panics costs nothing.
func TestPoorWriterPanics(t *testing.T) {
	t.Parallel()
	l, cfg := llm(t)
	h := wrap(t, cfg, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		panic("no")
	})
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(discard{}, request(t, "alice"))
	}()
	wantSpent(t, l, "tpm", 0)
}
