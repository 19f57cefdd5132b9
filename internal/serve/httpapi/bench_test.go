package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store/memory"
)

// connections is the number of callers of the benchmarks, each on its own persistent connection.
const connections = 64

// BenchmarkAcquire measures POST /v1/acquire with two limits, alternating with [BenchmarkFloor]'s handler, and reports
// which share of that handler's rate is left. ns/op covers a request and a floor request. The raw client costs next to
// nothing, so nearly all that is measured is the server; net/http's client costs about as much as the server.
func BenchmarkAcquire(b *testing.B) {
	addr := startServer(b)
	raw := dialAll(b, addr)
	floor := startFloor(b, raw[0].call(b))
	b.Run("raw", func(b *testing.B) { inTurns(b, dialAll(b, floor), raw) })
	b.Run("http", func(b *testing.B) { inTurns(b, newClients(b, floor), newClients(b, addr)) })
}

func inTurns(b *testing.B, floor, acquire callers) {
	b.Helper()
	run(b, acquire, 5000)
	run(b, floor, 5000)
	var took, floorTook time.Duration
	b.ResetTimer()
	for n := b.N; n > 0; n -= 2000 {
		floorTook += run(b, floor, min(n, 2000))
		took += run(b, acquire, min(n, 2000))
	}
	b.ReportMetric(float64(b.N)/took.Seconds(), "acquire/s")
	b.ReportMetric(float64(b.N)/floorTook.Seconds(), "floor/s")
	b.ReportMetric(floorTook.Seconds()/took.Seconds(), "of-floor")
}

// BenchmarkFloor measures a handler that answers the JSON of an acquired lease at once.
func BenchmarkFloor(b *testing.B) {
	acquire := dialAll(b, startServer(b))
	floor := dialAll(b, startFloor(b, acquire[0].call(b)))
	b.ResetTimer()
	run(b, floor, b.N)
}

// BenchmarkHandler measures the handler of POST /v1/acquire without the network.
func BenchmarkHandler(b *testing.B) {
	acquire := handle(b)
	b.ReportAllocs()
	for b.Loop() {
		acquire()
	}
}

// TestAllocations bounds what the handler of POST /v1/acquire allocates: a server collects garbage as often.
//
//nolint:paralleltest // allocations are counted over the whole process
func TestAllocations(t *testing.T) {
	if raced.On { // its pools drop what they are given
		return
	}
	if n := testing.AllocsPerRun(1000, handle(t)); n > mostAllocations {
		t.Errorf("%v allocations, at most %d", n, mostAllocations)
	}
}

const mostAllocations = 20

// handle returns what makes the handler of POST /v1/acquire answer a request.
func handle(tb testing.TB) (acquire func()) {
	tb.Helper()
	h := newServer(tb).Handler()
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(acquireRequest)))
	if err != nil {
		tb.Fatal(err)
	}
	text, err := io.ReadAll(req.Body)
	if err != nil {
		tb.Fatal(err)
	}
	rd := bytes.NewReader(text)
	body := io.NopCloser(rd)
	w := &discard{h: make(http.Header)}
	return func() {
		rd.Reset(text)
		req.Body = body
		clear(w.h)
		if h.ServeHTTP(w, req); w.status != http.StatusOK {
			tb.Fatal(w.status)
		}
	}
}

type discard struct {
	h      http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

func newServer(tb testing.TB) *httpapi.Server {
	tb.Helper()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { lim.Close() })
	err = admin.New(lim).Limits.Set(tb.Context(), admin.Scope{Resource: "gpt-4"}, weir.PerSecond("rpm", 1_000_000), weir.PerSecond("tpm", 4_000_000))
	if err != nil {
		tb.Fatal(err)
	}
	s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: lim}})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func startServer(b *testing.B) string {
	b.Helper()
	s := newServer(b)
	return start(b, s, s.Handler())
}

// startFloor serves body at once, from a server with the same timeouts: only the handler differs.
func startFloor(b *testing.B, body []byte) string {
	b.Helper()
	return start(b, newServer(b), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(body)
	}))
}

func start(b *testing.B, s *httpapi.Server, h http.Handler) string {
	b.Helper()
	ln := listen(b)
	hs := s.HTTPServer(context.Background(), h)
	go func() { _ = hs.Serve(ln) }()
	b.Cleanup(func() { hs.Close() })
	return ln.Addr().String()
}

func listen(b *testing.B) net.Listener {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return ln
}

var acquireRequest = func() []byte {
	body := `{"entity":"key-alice","resource":"gpt-4","tokens":{"rpm":1,"tpm":2}}`
	return []byte("POST /v1/acquire HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}()

// conn is a client that costs as little as possible.
type conn struct {
	net.Conn
	r *bufio.Reader
}

type fleet []*conn

func dialAll(b *testing.B, addr string) fleet {
	b.Helper()
	cs := make(fleet, connections)
	for i := range cs {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		cs[i] = &conn{c, bufio.NewReaderSize(c, 8<<10)}
	}
	return cs
}

// call sends one request and returns the body of the answer, which must be 200.
func (c *conn) call(b *testing.B) []byte {
	if _, err := c.Write(acquireRequest); err != nil {
		b.Error(err)
		return nil
	}
	size := -1
	for line := 0; ; line++ {
		text, err := c.r.ReadSlice('\n')
		switch {
		case err != nil:
			b.Error(err)
			return nil
		case line == 0 && !bytes.HasPrefix(text, []byte("HTTP/1.1 200 ")):
			b.Errorf("got %s", text)
			return nil
		case len(text) == 2:
			body := make([]byte, size)
			if _, err := io.ReadFull(c.r, body); err != nil {
				b.Error(err)
			}
			return body
		}
		if rest, ok := bytes.CutPrefix(text, []byte("Content-Length: ")); ok {
			if size, err = strconv.Atoi(string(bytes.TrimSpace(rest))); err != nil {
				b.Error(err)
				return nil
			}
		}
	}
}

// callers send requests, each on its own connection.
type callers interface {
	each() []func(*testing.B) []byte
}

func (cs fleet) each() (calls []func(*testing.B) []byte) {
	for _, c := range cs {
		calls = append(calls, c.call)
	}
	return calls
}

// clients are callers that use one net/http client.
type clients struct {
	http.Client
	url string
}

func newClients(b *testing.B, addr string) *clients {
	b.Helper()
	t := &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections}
	b.Cleanup(t.CloseIdleConnections)
	return &clients{http.Client{Transport: t}, "http://" + addr + "/v1/acquire"}
}

func (cl *clients) each() []func(*testing.B) []byte {
	_, body, _ := bytes.Cut(acquireRequest, []byte("\r\n\r\n"))
	return slices.Repeat([]func(*testing.B) []byte{func(b *testing.B) []byte {
		resp, err := cl.Post(cl.url, "application/json", bytes.NewReader(body))
		if err != nil {
			b.Error(err)
			return nil
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Errorf("got %s, %v", resp.Status, err)
			return nil
		}
		return got
	}}, connections)
}

// run sends n requests over all connections and returns how long they took.
func run(b *testing.B, cs callers, n int) time.Duration {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	began := time.Now()
	for _, call := range cs.each() {
		wg.Go(func() {
			for left.Add(-1) >= 0 && call(b) != nil {
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}
