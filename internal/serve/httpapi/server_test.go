package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
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

// fixture is a server over a limiter in memory: gpt-4 has rpm:10/min and tpm:1000/min for every entity.
type fixture struct {
	store store.Store
	lim   *weir.Limiter
	h     http.Handler
}

func setup(t *testing.T, cfg httpapi.Config) *fixture {
	t.Helper()
	return over(t, memory.New(nil), cfg)
}

// over creates a fixture over a store, which other fixtures may share.
func over(t *testing.T, st store.Store, cfg httpapi.Config) *fixture {
	t.Helper()
	lim, err := weir.New(weir.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	err = admin.New(lim).Limits.Set(t.Context(), admin.Scope{Resource: "gpt-4"}, weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Limiter = lim
	s, err := httpapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{st, lim, s.Handler()}
}

// answer is a response with its body decoded.
type answer struct {
	*httptest.ResponseRecorder
	JSON map[string]any
}

// do sends a request. A body is sent as JSON.
func (f *fixture) do(t *testing.T, method, target, body string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return f.send(t, r)
}

func (f *fixture) send(t *testing.T, r *http.Request) answer {
	t.Helper()
	w := httptest.NewRecorder()
	f.h.ServeHTTP(w, r)
	a := answer{ResponseRecorder: w}
	if w.Body.Len() > 0 && w.Code != http.StatusTemporaryRedirect && w.Header().Get("Content-Type") != "text/event-stream" {
		if err := json.Unmarshal(w.Body.Bytes(), &a.JSON); err != nil {
			t.Fatalf("%s %s: %v in %s", r.Method, r.URL, err, w.Body)
		}
	}
	return a
}

// must is do for a request whose answer must have the given status.
func (f *fixture) must(t *testing.T, status int, method, target, body string) answer {
	t.Helper()
	a := f.do(t, method, target, body)
	if a.Code != status {
		t.Fatalf("%s %s: got %d, want %d: %s", method, target, a.Code, status, a.Body)
	}
	return a
}

// acquire spends 1 rpm and n tpm for alice and returns the lease's id.
func (f *fixture) acquire(t *testing.T, n string) string {
	t.Helper()
	a := f.must(t, 200, "POST", "/v1/acquire", `{"entity":"alice","resource":"gpt-4","tokens":{"rpm":1,"tpm":`+n+`}}`)
	return a.JSON["lease"].(string)
}

// available returns how much tpm alice has left.
func (f *fixture) available(t *testing.T) int64 {
	t.Helper()
	av, err := f.lim.Available(t.Context(), "alice", "gpt-4")
	if err != nil {
		t.Fatal(err)
	}
	return av.Statuses[1].Available
}

func TestAcquire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{LegacyHeaders: true})
		a := f.must(t, 200, "POST", "/v1/acquire", `{"entity":"alice","resource":"gpt-4","tokens":{"rpm":1,"tpm":700}}`)
		if a.JSON["allowed"] != true || a.JSON["degraded"] != false || len(a.JSON["limits"].([]any)) != 2 {
			t.Errorf("got %s", a.Body)
		}
		for name, want := range map[string]string{
			"Content-Type":          "application/json",
			"RateLimit-Policy":      `"rpm";q=10;w=60, "tpm";q=1000;w=60`,
			"RateLimit":             `"rpm";r=9;t=54, "tpm";r=300;t=18`,
			"X-RateLimit-Limit":     "1000",
			"X-RateLimit-Remaining": "300",
			"X-RateLimit-Reset":     "42",
		} {
			if got := a.Header().Get(name); got != want {
				t.Errorf("%s: got %s, want %s", name, got, want)
			}
		}

		a = f.must(t, 429, "POST", "/v1/acquire", `{"entity":"alice","resource":"gpt-4","tokens":{"rpm":1,"tpm":400}}`)
		limits := a.JSON["limits"].([]any)
		if refused := limits[1].(map[string]any); len(limits) != 2 || refused["refused"] != true || refused["retry_after"] != 6.0 {
			t.Errorf("got %s", a.Body)
		}
		if v := a.JSON["violated-policies"].([]any); len(v) != 1 || v[0] != "tpm" {
			t.Errorf("got %s", a.Body)
		}
		if got, want := a.Header().Get("RateLimit"), `"tpm";r=300;t=6, "rpm";r=9;t=6`; got != want {
			t.Errorf("RateLimit: got %s, want %s", got, want)
		}
		if got := a.Header().Get("Retry-After"); got != "6" && got != "7" && got != "8" {
			t.Errorf("Retry-After: got %s, want 6 to 8", got)
		}
		if f.available(t) != 300 {
			t.Error("a refused request spent tokens")
		}
	})
}

func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{})
		f.acquire(t, "1000")
		began := time.Now()
		f.must(t, 200, "POST", "/v1/acquire", `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":100},"wait":"7s"}`)
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("waited %s, want 6s", took)
		}
		began = time.Now()
		f.must(t, 429, "POST", "/v1/acquire", `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":100},"wait":"5s"}`)
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %s for what cannot be had in time", took)
		}
	})
}

// TestWaitDrained stops the server while a request waits for its tokens.
func TestWaitDrained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{})
		s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: f.lim}})
		if err != nil {
			t.Fatal(err)
		}
		f.h = s.Handler()
		f.acquire(t, "1000")
		time.AfterFunc(2*time.Second, s.Drain)
		began := time.Now()
		a := f.must(t, 503, "POST", "/v1/acquire", `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":500},"wait":"1m"}`)
		if took := time.Since(began); took != 2*time.Second || a.Header().Get("Retry-After") == "" {
			t.Errorf("waited %s: %s", took, a.Body)
		}
	})
}

func TestOverride(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	for _, limits := range []string{`["jobs:2/min"]`, `[{"name":"jobs","amount":2,"period":"min"}]`} {
		f.must(t, 200, "POST", "/v1/acquire", `{"entity":"bob","resource":"builds","tokens":{"jobs":1},"limits":`+limits+`}`)
	}
	f.must(t, 429, "POST", "/v1/acquire", `{"entity":"bob","resource":"builds","tokens":{"jobs":1},"limits":["jobs:2/min"]}`)
}

// down is a store that fails every decision.
type down struct{ store.Store }

func (down) Take(context.Context, store.Take) (store.Outcome, error) {
	return store.Outcome{}, &store.Error{Op: "take", Key: "secret-host:6379", Err: errors.New("connection refused")}
}

func TestStoreDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := over(t, down{memory.New(nil)}, httpapi.Config{})
		a := f.must(t, 503, "POST", "/v1/acquire", `{"entity":"alice","resource":"gpt-4"}`)
		if a.Header().Get("Retry-After") == "" || strings.Contains(a.Body.String(), "secret-host") {
			t.Errorf("got %v %s", a.Header(), a.Body)
		}
		f.must(t, 503, "POST", "/v1/acquire", `{"entity":"alice","resource":"gpt-4","on_unavailable":"allow"}`) // it can only be stricter
		f.must(t, 200, "PUT", "/v1/system", `{"on_unavailable":"allow"}`)
		a = f.must(t, 200, "POST", "/v1/acquire", `{"entity":"alice","resource":"gpt-4"}`)
		if a.JSON["degraded"] != true || a.Header().Get("Weir-Degraded") != "store-unavailable" || strings.Contains(a.Body.String(), "secret-host") {
			t.Errorf("got %v %s", a.Header(), a.Body)
		}
		lease := "/v1/leases/" + a.JSON["lease"].(string)
		f.must(t, 204, "POST", lease+"/commit", "")
		f.must(t, 204, "POST", lease+"/rollback", "")

		if a.JSON["over"] != -1.0 {
			t.Errorf("over %v: there is no bound", a.JSON["over"])
		}
		// Nothing is known about earlier spending, so a share begins with one token.
		const local = `{"entity":"bob","resource":"gpt-4","on_unavailable":"local","tokens":{"rpm":%d}}`
		a = f.must(t, 200, "POST", "/v1/acquire", fmt.Sprintf(local, 1))
		of := a.JSON["limits"].([]any)[0].(map[string]any)
		burst, _ := of["burst"].(float64)
		if a.JSON["degraded"] != true || a.JSON["over"].(float64) < burst || of["available"] != 0.0 {
			t.Errorf("got %s", a.Body)
		}
		f.must(t, 204, "POST", "/v1/leases/"+a.JSON["lease"].(string)+"/rollback", "") // returns nothing to the share
		a = f.must(t, 429, "POST", "/v1/acquire", fmt.Sprintf(local, 1))
		if a.JSON["degraded"] != true || a.JSON["over"].(float64) < burst || a.Header().Get("Weir-Degraded") != "store-unavailable" {
			t.Errorf("got %v %s", a.Header(), a.Body)
		}
	})
}

func TestReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{Version: "v1.2.3"})
		f.must(t, 200, "GET", "/readyz", "")
		f.store.Close()
		f.must(t, 200, "GET", "/readyz", "") // anyone may ask, but the store is checked only once a second
		time.Sleep(time.Second)
		f.must(t, 503, "GET", "/readyz", "")
		if a := f.must(t, 200, "GET", "/healthz", ""); a.JSON["version"] != "v1.2.3" {
			t.Errorf("got %s", a.Body)
		}
	})
}

// TestServe stops a server while it reads a request's body.
func TestServe(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: f.lim}})
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

	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":400}}`
	fmt.Fprintf(c, "POST /v1/acquire HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
	r := bufio.NewReader(c)
	for range 2 { // the handler waits for the body
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	for {
		idle, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			break // the server no longer listens
		}
		idle.Close()
	}
	ready := &fixture{h: s.Handler()}
	ready.must(t, 503, "GET", "/readyz", "")
	if _, err := io.WriteString(c, body); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("the request under way got %d", resp.StatusCode)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if got := f.available(t); got < 600 || got > 610 {
		t.Errorf("%d are available: the limiter is the caller's to close, and the tokens are spent", got)
	}
}

func TestCheckListen(t *testing.T) {
	t.Parallel()
	for addr, ok := range map[string]bool{
		"127.0.0.1:8080": true, "localhost:0": true, "[::1]:80": true, "127.9.9.9:1": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:80": false, "10.0.0.1:80": false, "example.com:80": false,
	} {
		err := httpapi.CheckListen(addr, false)
		var bad *weir.ConfigError
		if (err == nil) != ok || err != nil && !errors.As(err, &bad) {
			t.Errorf("%s: got %v", addr, err)
		}
		if err := httpapi.CheckListen(addr, true); err != nil {
			t.Errorf("%s, insecure: got %v", addr, err)
		}
	}
	for _, addr := range []string{"", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", "::1:80"} {
		if httpapi.CheckListen(addr, true) == nil {
			t.Errorf("%q is accepted", addr)
		}
	}
}
