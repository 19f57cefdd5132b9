package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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

const acquireOne = `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":1}}`

// stuck is a store whose takes wait until it is released.
type stuck struct {
	store.Store
	release chan struct{}
}

func (s stuck) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	select {
	case <-s.release:
		return s.Store.Take(ctx, t)
	case <-ctx.Done():
		return store.Outcome{}, ctx.Err()
	}
}

// start sends a request and returns a channel for its answer.
func (f *fixture) start(t *testing.T, method, target string, body io.Reader) <-chan *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, body)
	r.Header.Set("Content-Type", "application/json")
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, r)
		answered <- w
	}()
	return answered
}

func overloaded(w *httptest.ResponseRecorder) bool {
	return w.Code == 503 && w.Header().Get("Retry-After") != "" && strings.Contains(w.Body.String(), "#overloaded")
}

// TestShed checks that two requests are processed, two wait briefly for their turn, and the rest are refused at once,
// except for probes.
func TestShed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := stuck{memory.New(nil), make(chan struct{})}
		f := over(t, st, httpapi.Config{Config: decide.Config{MaxInflight: 2}})
		post := func() <-chan *httptest.ResponseRecorder {
			return f.start(t, "POST", "/v1/acquire", strings.NewReader(acquireOne))
		}
		working := []<-chan *httptest.ResponseRecorder{post(), post()}
		synctest.Wait()
		queued := []<-chan *httptest.ResponseRecorder{post(), post()}
		synctest.Wait()

		began := time.Now()
		if w := <-post(); !overloaded(w) || time.Since(began) != 0 {
			t.Errorf("beyond the queue: got %d %s after %s", w.Code, w.Body, time.Since(began))
		}
		if w := <-f.start(t, "GET", "/v1/entities", nil); !overloaded(w) {
			t.Errorf("without a body: got %d %s", w.Code, w.Body)
		}
		f.must(t, 200, "GET", "/healthz", "")
		f.must(t, 200, "GET", "/readyz", "")
		f.must(t, 404, "GET", "/metrics", "") // it keeps no metrics, and answers 404
		for _, c := range queued {
			if w := <-c; !overloaded(w) {
				t.Errorf("in the queue: got %d %s", w.Code, w.Body)
			}
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("those in the queue were answered after %s", took)
		}
		next := post() // takes the place of a request that ends in time
		synctest.Wait()
		close(st.release)
		for _, c := range append(working, next) {
			if w := <-c; w.Code != 200 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		}
		if got := f.available(t); got != 997 {
			t.Errorf("%d are left, want 997: what is refused spends nothing", got)
		}
		for range 10 {
			f.must(t, 200, "POST", "/v1/acquire", acquireOne)
		}
	})
}

// TestOwnBounds checks that waits for tokens and streams keep no other request out, but are bounded themselves.
func TestOwnBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{Config: decide.Config{MaxInflight: 1}})
		f.acquire(t, "1000")
		waitFor := func() <-chan *httptest.ResponseRecorder {
			return f.start(t, "POST", "/v1/acquire", strings.NewReader(`{"entity":"alice","resource":"gpt-4","tokens":{"tpm":100},"wait":"30s"}`))
		}
		waiting := waitFor()
		stream := f.start(t, "GET", "/v1/usage/stream", nil)
		synctest.Wait()
		f.must(t, 200, "POST", "/v1/acquire", `{"entity":"bob","resource":"gpt-4"}`)
		if w := <-waitFor(); !overloaded(w) {
			t.Errorf("a second wait: got %d %s", w.Code, w.Body)
		}
		if w := <-f.start(t, "GET", "/v1/usage/stream", nil); !overloaded(w) {
			t.Errorf("a second stream: got %d %s", w.Code, w.Body)
		}
		if w := <-waiting; w.Code != 200 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		<-stream
		f.must(t, 200, "GET", "/v1/usage/stream?max=1", "")
		if w := <-waitFor(); w.Code != 200 {
			t.Errorf("afterwards: got %d %s", w.Code, w.Body)
		}
	})
}

// TestSlowBody checks that a slow body does not take a turn before it is complete, and that a refusal then spends nothing.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{Config: decide.Config{MaxInflight: 1}})
		for _, target := range []string{"/v1/acquire", "/v1/manifests/apply"} {
			body, send := io.Pipe()
			slow := f.start(t, "POST", target, body)
			_, _ = io.WriteString(send, "{")
			f.must(t, 200, "POST", "/v1/acquire", acquireOne)
			send.CloseWithError(io.ErrUnexpectedEOF)
			if w := <-slow; w.Code != 400 && w.Code != 415 {
				t.Errorf("%s: cut off: got %d %s", target, w.Code, w.Body)
			}
		}
		body, send := io.Pipe()
		slow := f.start(t, "POST", "/v1/acquire", body)
		_, _ = io.WriteString(send, acquireOne)
		send.Close()
		if w := <-slow; w.Code != 200 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	})
}

// TestStopUnderLoad stops a server under load: tokens reported as spent are spent, tokens rolled back are back, and
// nothing else happened.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{Resource: "r"}, weir.PerDay("n", 1_000_000)); err != nil {
		t.Fatal(err)
	}
	s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: lim}})
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

	const clients = 8
	var mu sync.Mutex
	spent, returned, late := 0, 0, 0
	enough := make(chan struct{})
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			h := &http.Client{Transport: &http.Transport{}}
			defer h.CloseIdleConnections()
			base := "http://" + ln.Addr().String()
			for n := 0; ; n++ {
				lease, status, err := call(t, h, base+"/v1/acquire", `{"entity":"e","resource":"r","tokens":{"n":1}}`)
				if err != nil || status != 200 {
					mu.Lock()
					late++
					mu.Unlock()
					return // refused at the door
				}
				mu.Lock()
				if spent++; spent == 200 {
					close(enough)
				}
				mu.Unlock()
				if n%3 > 0 {
					continue
				}
				if _, status, err = call(t, h, base+"/v1/leases/"+lease+"/rollback", ""); err == nil && status == 204 {
					mu.Lock()
					returned++
					mu.Unlock()
				}
			}
		})
	}
	<-enough
	stop()
	wg.Wait()
	if err := <-served; err != nil {
		t.Error(err)
	}
	b, err := admin.New(lim).Buckets.Get(t.Context(), "e", "r")
	if err != nil {
		t.Fatal(err)
	}
	if l := b.Limits[0]; l.Debited != int64(spent) || l.Returned != int64(returned) || late != clients {
		t.Errorf("clients saw %d spent and %d returned; the store has %d and %d", spent, returned, l.Debited, l.Returned)
	}
}

// call posts a body and returns the lease in the answer.
func call(t *testing.T, h *http.Client, target, body string) (lease string, status int, err error) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		return "", 0, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := h.Do(req)
	if err != nil {
		return "", 0, err
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return "", 0, fmt.Errorf("an answer broke off: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), `"lease":"`)
	lease, _, _ = strings.Cut(rest, `"`)
	return lease, resp.StatusCode, nil
}
