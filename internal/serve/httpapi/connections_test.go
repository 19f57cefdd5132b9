package httpapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// pipes is a listener for in-memory connections, whose deadlines work like those of others.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
	here  []net.Conn // those that were dialed
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	p.here = append(p.here, here)
	return here
}

// hangUp closes all connections that were dialed.
func (p *pipes) hangUp() {
	for _, c := range p.here {
		c.Close()
	}
}

// serving runs a server on pipes until the test ends.
func serving(t *testing.T, f *fixture, cfg httpapi.Config) *pipes {
	t.Helper()
	cfg.Limiter = f.lim
	s, err := httpapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := newPipes()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, p) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestSlowClients checks that clients that trickle a header or a body, or do not read the answer, are cut off.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first string
		most  time.Duration
	}{
		"header":   {"GET /healthz HTTP/1.1\r\nHost: x\r\n", 21 * time.Second},
		"body":     {"POST /v1/acquire HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", 21 * time.Second},
		"nothing":  {"", 21 * time.Second},
		"no ear":   {"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 91 * time.Second},
		"no token": {"POST /v1/acquire HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{", 21 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := setup(t, httpapi.Config{})
				c := serving(t, f, httpapi.Config{}).dial()
				began := time.Now()
				var sender sync.WaitGroup
				defer sender.Wait()
				sender.Go(func() {
					_, _ = io.WriteString(c, tt.first)
					for name != "nothing" && name != "no ear" {
						if _, err := io.WriteString(c, "x"); err != nil {
							return
						}
						time.Sleep(time.Second)
					}
				})
				if name == "no ear" {
					time.Sleep(tt.most)
				}
				_, _ = io.Copy(io.Discard, c)
				if took := time.Since(began); took > tt.most || took < 19*time.Second {
					t.Errorf("cut off after %s", took)
				}
				c.Close()
			})
		})
	}
}

// TestConnections checks that a connection beyond the bound takes the place of the one that is idle longest, that busy ones
// keep theirs, and that probes are answered all the same.
func TestConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{})
		p := serving(t, f, httpapi.Config{Config: decide.Config{MaxConnections: 2}})
		send := func(c net.Conn, path string) (*http.Response, error) {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				return nil, err
			}
			return http.ReadResponse(bufio.NewReader(c), nil)
		}
		wants := func(what string, c net.Conn, path string, want int) {
			t.Helper()
			got := 0
			resp, err := send(c, path)
			if err == nil {
				got = resp.StatusCode
				_, err = io.Copy(io.Discard, resp.Body)
				err = errors.Join(err, resp.Body.Close())
			}
			if got != want || (err != nil) != (want == 0) {
				t.Errorf("%s: %s: got %d, %v, want %d", what, path, got, err, want)
			}
			synctest.Wait()
		}
		const watch = "/v1/watch?entity=alice&resource=gpt-4"
		stream := func(c net.Conn) {
			t.Helper()
			resp, err := send(c, watch)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("a stream: %v, %v", resp, err)
			}
			t.Cleanup(func() { resp.Body.Close() })
			synctest.Wait()
		}
		a, b := p.dial(), p.dial()
		wants("the first", a, "/v1/entities", 200)
		wants("the second", b, "/v1/entities", 200)
		probe := p.dial()
		wants("a probe", probe, "/readyz", 200)
		c := p.dial()
		wants("the third", c, "/v1/entities", 200)
		wants("the first gave way", a, "/v1/entities", 0)
		wants("the second still", b, "/v1/entities", 200)
		stream(c)
		d := p.dial()
		wants("the fourth", d, "/v1/entities", 200)
		wants("the second gave way", b, "/v1/entities", 0)
		stream(d)
		e := p.dial()
		wants("while all are busy", e, "/v1/entities", 503)
		wants("a probe", probe, "/healthz", 200)
		wants("a probe of a server that another address can use", probe, "/readyz", 200)
		c.Close()
		synctest.Wait()
		wants("after one was closed", p.dial(), "/v1/entities", 200)
		wants("a probe", probe, "/readyz", 200)
		p.hangUp()
	})
}

// TestAge checks that a connection that is always used ends after about 15 minutes, between two requests.
func TestAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := serving(t, setup(t, httpapi.Config{}), httpapi.Config{})
		for range 5 {
			began := time.Now()
			c := p.dial()
			in := bufio.NewReader(c)
			for last := false; !last; time.Sleep(time.Second) {
				_, _ = io.WriteString(c, "GET /v1/entities HTTP/1.1\r\nHost: x\r\n\r\n")
				resp, err := http.ReadResponse(in, nil)
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("after %s: %v, %v", time.Since(began), resp, err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				last = resp.Close
			}
			if age := time.Since(began).Round(time.Minute); age < 13*time.Minute || age > 17*time.Minute {
				t.Errorf("the last answer came after %s", age)
			}
			if _, err := in.ReadByte(); err != io.EOF {
				t.Errorf("after the last answer: %v", err)
			}
		}
		p.hangUp()
	})
}

// TestNotReadyWithoutConnections checks that a server is not ready while each of its connections is busy for somebody else.
func TestNotReadyWithoutConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := serving(t, setup(t, httpapi.Config{}), httpapi.Config{Config: decide.Config{MaxConnections: 1}})
		get := func(path string) int {
			c := p.dial()
			_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { resp.Body.Close() })
			synctest.Wait()
			return resp.StatusCode
		}
		for _, want := range []struct {
			path   string
			status int
		}{{"/readyz", 200}, {"/v1/watch?entity=alice&resource=gpt-4", 200}, {"/readyz", 503}} {
			if got := get(want.path); got != want.status {
				t.Errorf("%s: got %d, want %d", want.path, got, want.status)
			}
		}
		p.hangUp()
	})
}

// TestManyLines checks that headers of many short lines, without an end, hold no more over TLS than without: some of them are
// cut off, and another address's request is answered.
func TestManyLines(t *testing.T) {
	t.Parallel()
	lent := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	secure := lent.TLS.Clone()
	lent.Close()
	for _, cfg := range []*tls.Config{nil, secure} {
		synctest.Test(t, func(t *testing.T) {
			f := setup(t, httpapi.Config{})
			p := serving(t, f, httpapi.Config{Config: decide.Config{TLS: cfg}})
			var open atomic.Int32
			for range 5 {
				c := p.dial()
				if cfg != nil {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
				}
				open.Add(1)
				go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\n"+strings.Repeat("a:\n", 30_000)) }()
				go func() {
					_, _ = io.Copy(io.Discard, c)
					open.Add(-1)
				}()
				synctest.Wait()
			}
			if n := open.Load(); n != 3 { // three quarters of 16 MiB, by 4 MB
				t.Errorf("TLS %t: %d of 5 are received", cfg != nil, n)
			}
			p.hangUp()
		})
	}
}

// TestTLS checks that connections are encrypted, bounded as well, and use HTTP/1.1 even with clients that support more.
func TestTLS(t *testing.T) {
	t.Parallel()
	lent := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate, and for a client that trusts it
	secure, h := lent.TLS.Clone(), lent.Client()
	lent.Close()
	h.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	f := setup(t, httpapi.Config{})
	s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: f.lim, TLS: secure}})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+ln.Addr().String()+"/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.ProtoMajor != 1 || resp.TLS == nil {
		t.Errorf("got %s %s", resp.Proto, resp.Status)
	}
	req.URL.Scheme = "http"
	if resp, err = h.Do(req); err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != 400 {
		t.Errorf("without TLS: %s", resp.Status)
	}
	h.CloseIdleConnections()
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
