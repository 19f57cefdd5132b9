package httplimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/httplimit"
	"github.com/weirlimits/weir/weirtest"
)

// llm returns a limiter, and a configuration that estimates each request at 500 tpm.
func llm(t *testing.T) (*weirtest.Limiter, httplimit.Config) {
	t.Helper()
	l := weirtest.New(t, weir.PerMinute("rpm", 100), weir.PerMinute("tpm", 10_000))
	cfg := config(l, new(strings.Builder))
	cfg.Tokens = func(*http.Request) (weir.Tokens, error) { return weir.Tokens{"rpm": 1, "tpm": 500}, nil }
	return l, cfg
}

func TestSetCost(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		costs []weir.Tokens
		rpm   int64
		tpm   int64
	}{
		"more":         {[]weir.Tokens{{"tpm": 730}}, 1, 730},
		"less":         {[]weir.Tokens{{"tpm": 20}}, 1, 20},
		"nothing":      {[]weir.Tokens{{"tpm": 0, "rpm": 0}}, 0, 0},
		"as estimated": {[]weir.Tokens{{"tpm": 500}, {}, nil}, 1, 500},
		"growing":      {[]weir.Tokens{{"tpm": 100}, {"tpm": 200}, {"tpm": 900}}, 1, 900},
		"into debt":    {[]weir.Tokens{{"tpm": 30_000}}, 1, 30_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, cfg := llm(t)
			h := wrap(t, cfg, func(w http.ResponseWriter, r *http.Request) {
				for _, c := range tt.costs {
					if err := httplimit.SetCost(r.Context(), c); err != nil {
						t.Error(err)
					}
				}
			})
			wantStatus(t, do(t, h, "alice"), http.StatusOK)
			wantSpent(t, l, "rpm", tt.rpm)
			wantSpent(t, l, "tpm", tt.tpm)
		})
	}
}

func TestSetCostWrong(t *testing.T) {
	t.Parallel()
	l, cfg := llm(t)
	h := wrap(t, cfg, func(_ http.ResponseWriter, r *http.Request) {
		for _, c := range []weir.Tokens{{"tpm": -1}, {"xpm": 1}, {"tpm": weir.MaxTokens + 1000}} {
			var config *weir.ConfigError
			if err := httplimit.SetCost(r.Context(), c); !errors.As(err, &config) {
				t.Errorf("%v: got %v", c, err)
			}
		}
		l.Fail(errors.New("cable cut"))
		if err := httplimit.SetCost(r.Context(), weir.Tokens{"tpm": 900}); err == nil {
			t.Error("no error although the store was away")
		}
		l.Fail(nil)
		if err := httplimit.SetCost(r.Context(), weir.Tokens{"tpm": 600}); err != nil { // still relative to 500
			t.Error(err)
		}
	})
	do(t, h, "alice")
	wantSpent(t, l, "tpm", 600)
}

func TestLease(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		use  func(*http.Request, *weir.Lease) error
		want int64
	}{
		"adjust": {func(r *http.Request, le *weir.Lease) error {
			_, err := le.Adjust(r.Context(), weir.Tokens{"tpm": 30})
			return err
		}, 530},
		"rollback": {func(r *http.Request, le *weir.Lease) error { return le.Rollback(r.Context()) }, 0},
		"commit":   {func(r *http.Request, le *weir.Lease) error { return le.Commit(r.Context()) }, 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, cfg := llm(t)
			var log strings.Builder
			cfg.Log = config(l, &log).Log
			if name != "adjust" { // otherwise the lease has ended, and After comes too late
				cfg.After = func(*http.Request, *httplimit.Result) weir.Tokens { return weir.Tokens{"tpm": 7} }
			}
			var lease *weir.Lease
			h := wrap(t, cfg, func(_ http.ResponseWriter, r *http.Request) {
				lease = httplimit.Lease(r.Context())
				if err := tt.use(r, lease); err != nil {
					t.Error(err)
				}
			})
			do(t, h, "alice")
			wantSpent(t, l, "tpm", tt.want)
			if err := lease.Rollback(t.Context()); err == nil {
				t.Error("the lease is open")
			}
			if log.Len() > 0 {
				t.Errorf("logged %q", log.String())
			}
		})
	}
}

func TestAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, cfg := llm(t)
		mux := http.NewServeMux()
		cfg.After = func(r *http.Request, res *httplimit.Result) weir.Tokens {
			if want := (httplimit.Result{Status: http.StatusTeapot, Bytes: 11, Duration: time.Second}); *res != want {
				t.Errorf("got %+v", res)
			}
			if r.PathValue("id") != "7" {
				t.Errorf("got path value %q", r.PathValue("id"))
			}
			return weir.Tokens{"tpm": res.Bytes}
		}
		mux.Handle("/{id}", wrap(t, cfg, func(w http.ResponseWriter, r *http.Request) {
			if err := httplimit.SetCost(r.Context(), weir.Tokens{"tpm": 3000, "rpm": 2}); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, "hello ")
			_, _ = w.Write([]byte("world"))
			time.Sleep(time.Second)
		}))
		r := request(t, "alice")
		r.URL.Path = "/7"
		mux.ServeHTTP(discard{}, r)
		wantSpent(t, l, "tpm", 11)
		wantSpent(t, l, "rpm", 2)
	})
}

// discard is a writer with only the required methods.
type discard struct{}

func (discard) Header() http.Header         { return make(http.Header) }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

func TestAfterFails(t *testing.T) {
	t.Parallel()
	l, cfg := llm(t)
	var log strings.Builder
	cfg.Log = config(l, &log).Log
	cfg.After = func(*http.Request, *httplimit.Result) weir.Tokens { return weir.Tokens{"xpm": 1} }
	wantStatus(t, do(t, wrap(t, cfg, ok), "alice"), http.StatusOK)
	wantSpent(t, l, "tpm", 500)
	if !strings.Contains(log.String(), "xpm") {
		t.Errorf("logged %q", log.String())
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	on5xx := func(_ *http.Request, res *httplimit.Result) bool { return res.Status >= 500 }
	never := func(*http.Request, *httplimit.Result) bool { return false }
	for name, tt := range map[string]struct {
		on     func(*http.Request, *httplimit.Result) bool
		handle http.HandlerFunc
		panics bool
		want   int64
	}{
		"answered":            {nil, ok, false, 500},
		"silent":              {nil, func(http.ResponseWriter, *http.Request) {}, false, 500},
		"5xx":                 {nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, false, 500},
		"panics":              {nil, func(http.ResponseWriter, *http.Request) { panic("no") }, true, 0},
		"no status":           {nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1000) }, true, 0},
		"aborts, answered":    {nil, func(w http.ResponseWriter, r *http.Request) { ok(w, r); panic(http.ErrAbortHandler) }, true, 500},
		"5xx, asked for":      {on5xx, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, false, 0},
		"answered, 5xx asked": {on5xx, ok, false, 500},
		"panics, not asked":   {never, func(http.ResponseWriter, *http.Request) { panic("no") }, true, 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, cfg := llm(t)
			cfg.RollbackOn = tt.on
			after := false
			cfg.After = func(*http.Request, *httplimit.Result) weir.Tokens { after = true; return nil }
			h := wrap(t, cfg, tt.handle)
			func() {
				defer func() {
					if v := recover(); (v != nil) != tt.panics {
						t.Errorf("panicked: %v", v)
					}
				}()
				do(t, h, "alice")
			}()
			wantSpent(t, l, "tpm", tt.want)
			if after != (tt.want > 0) {
				t.Errorf("After was called: %t", after)
			}
		})
	}
}

// One middleware inside another: both charge, and the handler sees the inner one.
func TestNested(t *testing.T) {
	t.Parallel()
	l, cfg := llm(t)
	l.SetLimits("", "all", weir.PerMinute("rpm", 2))
	outer := config(l, new(strings.Builder))
	outer.Resource = httplimit.Fixed("all")
	m, err := httplimit.New(outer)
	if err != nil {
		t.Fatal(err)
	}
	h := m.Wrap(wrap(t, cfg, func(_ http.ResponseWriter, r *http.Request) {
		if err := httplimit.SetCost(r.Context(), weir.Tokens{"tpm": 3}); err != nil {
			t.Error(err)
		}
	}))
	for range 2 {
		wantField(t, do(t, h, "alice"), "RateLimit-Policy", `"rpm";q=100;w=60, "tpm";q=10000;w=60`)
	}
	wantField(t, do(t, h, "alice"), "RateLimit-Policy", `"rpm";q=2;w=60`)
	wantSpent(t, l, "tpm", 6)
	if got := l.Spent(alice, "all", "rpm"); got != 2 {
		t.Errorf("the outer spent %d", got)
	}
}
