package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/httplimit"
	"github.com/weirlimits/weir/weirtest"
)

// config returns a configuration that limits each entity by the header X-Api-Key, at one rpm, and logs to log.
func config(l *weirtest.Limiter, log *strings.Builder) httplimit.Config {
	return httplimit.Config{
		Limiter: l.Limiter, Entity: httplimit.ByHeader("X-Api-Key"), Resource: httplimit.Fixed("api"), Tokens: httplimit.Each("rpm"),
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}
}

func wrap(t *testing.T, cfg httplimit.Config, h http.HandlerFunc) http.Handler {
	t.Helper()
	m, err := httplimit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m.Wrap(h)
}

func request(t *testing.T, key string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	return r
}

// answer is the response that a client gets.
type answer struct {
	status int
	header http.Header
	body   io.Reader
}

func do(t *testing.T, h http.Handler, key string) answer {
	t.Helper()
	return send(h, request(t, key))
}

func send(h http.Handler, r *http.Request) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body}
}

func wantStatus(t *testing.T, res answer, want int) {
	t.Helper()
	if res.status != want {
		t.Errorf("answered %d, want %d", res.status, want)
	}
}

func wantField(t *testing.T, res answer, name, want string) {
	t.Helper()
	if got := res.header.Get(name); got != want {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }

var alice = httplimit.KeyID("alice")

func wantSpent(t *testing.T, l *weirtest.Limiter, limit string, want int64) {
	t.Helper()
	if got := l.Spent(alice, "api", limit); got != want {
		t.Errorf("spent %d %s, want %d", got, limit, want)
	}
}

type problem struct {
	Type, Title, Detail string
	Status              int
	RetryAfter          float64  `json:"retry_after"`
	Violated            []string `json:"violated-policies"`
	Limits              []struct {
		Entity, Limit string
		Refused       bool
	}
}

func problemOf(t *testing.T, res answer) (p problem) {
	t.Helper()
	wantField(t, res, "Content-Type", "application/problem+json")
	wantField(t, res, "Cache-Control", "no-store")
	if err := json.NewDecoder(res.body).Decode(&p); err != nil {
		t.Fatal(err)
	}
	if p.Status != res.status {
		t.Errorf("the body says %d", p.Status)
	}
	return p
}

func TestAllowedAndRefused(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 2))
	cfg := config(l, new(strings.Builder))
	cfg.LegacyHeaders = true
	h := wrap(t, cfg, ok)

	res := do(t, h, "alice")
	wantStatus(t, res, http.StatusOK)
	wantField(t, res, "RateLimit-Policy", `"rpm";q=2;w=60`)
	wantField(t, res, "RateLimit", `"rpm";r=1;t=30`)
	wantField(t, res, "X-RateLimit-Remaining", "1")
	wantField(t, res, "Retry-After", "")
	do(t, h, "alice")
	wantStatus(t, do(t, h, "bob"), http.StatusOK)

	var latest int
	for range 100 {
		res = do(t, h, "alice")
		wantStatus(t, res, http.StatusTooManyRequests)
		after, err := strconv.Atoi(res.header.Get("Retry-After"))
		if err != nil || after < 30 || after > 39 {
			t.Fatalf("Retry-After %q, want 30 and up to three tenths more", res.header.Get("Retry-After"))
		}
		latest = max(latest, after)
	}
	if latest == 30 {
		t.Error("Retry-After has no jitter")
	}
	wantField(t, res, "RateLimit", `"rpm";r=0;t=30`)
	p := problemOf(t, res)
	if p.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || p.RetryAfter < 30 || len(p.Violated) != 1 ||
		p.Violated[0] != "rpm" || len(p.Limits) != 1 || !p.Limits[0].Refused || p.Limits[0].Entity != alice {
		t.Errorf("got %+v", p)
	}
	if !strings.Contains(p.Detail, "rpm of "+alice) {
		t.Errorf("the detail is %q", p.Detail)
	}
	l.Advance(30 * time.Second)
	wantStatus(t, do(t, h, "alice"), http.StatusOK)
	wantSpent(t, l, "rpm", 3)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	secret := errors.New("the password is 1234")
	for name, tt := range map[string]struct {
		set    func(*httplimit.Config, *weirtest.Limiter)
		key    string
		status int
		detail string
		logged bool
	}{
		"no key": {func(*httplimit.Config, *weirtest.Limiter) {}, "", 400, "does not identify its sender", false},
		"key function": {func(c *httplimit.Config, _ *weirtest.Limiter) {
			c.Entity = func(*http.Request) (string, error) { return "", secret }
		}, "alice", 500, "logged", true},
		"chosen": {func(c *httplimit.Config, _ *weirtest.Limiter) {
			c.Resource = func(*http.Request) (string, error) {
				return "", &httplimit.StatusError{http.StatusForbidden, "go away"}
			}
		}, "alice", 403, "go away", false},
		"chosen badly": {func(c *httplimit.Config, _ *weirtest.Limiter) {
			c.Resource = func(*http.Request) (string, error) { return "", &httplimit.StatusError{200, "fine"} }
		}, "alice", 500, "logged", true},
		"tokens": {func(c *httplimit.Config, _ *weirtest.Limiter) {
			c.Tokens = func(*http.Request) (weir.Tokens, error) { return nil, secret }
		}, "alice", 500, "logged", true},
		"no such limit": {func(c *httplimit.Config, _ *weirtest.Limiter) { c.Tokens = httplimit.Each("rmp") }, "alice", 500, "logged", true},
		"no pattern":    {func(c *httplimit.Config, _ *weirtest.Limiter) { c.Resource = httplimit.ByPattern }, "alice", 500, "logged", true},
		"namespace":     {func(c *httplimit.Config, l *weirtest.Limiter) { c.Limiter = l.In("nowhere") }, "alice", 500, "logged", true},
		"burst": {func(c *httplimit.Config, _ *weirtest.Limiter) {
			c.Tokens = func(*http.Request) (weir.Tokens, error) { return weir.Tokens{"rpm": 3}, nil }
		}, "alice", 422, "at most 2", false},
		"unavailable": {func(_ *httplimit.Config, l *weirtest.Limiter) { l.Fail(secret) }, "alice", 503, "store does not answer", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := weirtest.New(t, weir.PerMinute("rpm", 2))
			var log strings.Builder
			cfg := config(l, &log)
			tt.set(&cfg, l)
			h := wrap(t, cfg, func(http.ResponseWriter, *http.Request) { t.Error("it was handled") })
			res := do(t, h, tt.key)
			wantStatus(t, res, tt.status)
			p := problemOf(t, res)
			if !strings.Contains(p.Detail, tt.detail) || strings.Contains(p.Detail, "1234") || p.Title == "" || p.Type == "" {
				t.Errorf("got %+v", p)
			}
			if got := log.Len() > 0; got != tt.logged {
				t.Errorf("logged %q", log.String())
			}
			if came := res.header.Get("Retry-After"); (came != "") != (tt.status == 503) {
				t.Errorf("Retry-After %q", came)
			}
		})
	}
}

func TestUnlimited(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t)
	var log strings.Builder
	cfg := config(l, &log)
	wantStatus(t, do(t, wrap(t, cfg, ok), "alice"), http.StatusInternalServerError)
	if !strings.Contains(log.String(), "no limits apply") {
		t.Errorf("logged %q", log.String())
	}
	cfg.AdmitUnlimited = true
	handled := false
	res := do(t, wrap(t, cfg, func(w http.ResponseWriter, r *http.Request) {
		handled = true
		if httplimit.Lease(r.Context()) != nil || httplimit.SetCost(r.Context(), weir.Tokens{"rpm": 3}) != nil {
			t.Error("there is a lease")
		}
	}), "alice")
	wantStatus(t, res, http.StatusOK)
	if !handled {
		t.Error("it was not handled")
	}
}

func TestSkip(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 1))
	cfg := config(l, new(strings.Builder))
	cfg.Skip = func(r *http.Request) bool { return r.Header.Get("X-Api-Key") == "alice" }
	h := wrap(t, cfg, ok)
	for range 3 {
		wantStatus(t, do(t, h, "alice"), http.StatusOK)
	}
	wantSpent(t, l, "rpm", 0)
	do(t, h, "bob")
	wantStatus(t, do(t, h, "bob"), http.StatusTooManyRequests)
}

// admits makes a limiter admit while the store does not answer.
func admits(t *testing.T, l *weirtest.Limiter) {
	t.Helper()
	if err := admin.New(l.Limiter).Limits.SetOnUnavailable(t.Context(), admin.Scope{}, weir.OnUnavailableAllow); err != nil {
		t.Fatal(err)
	}
}

// TestStricter: the middleware can refuse where the limiter would admit, but not admit where it would refuse.
func TestStricter(t *testing.T) {
	t.Parallel()
	for _, mode := range []weir.OnUnavailable{weir.OnUnavailableDeny, weir.OnUnavailableAllow} {
		l := weirtest.New(t, weir.PerMinute("rpm", 1))
		if mode == weir.OnUnavailableDeny {
			admits(t, l)
		}
		cfg := config(l, new(strings.Builder))
		cfg.OnUnavailable = mode
		h := wrap(t, cfg, ok)
		l.Fail(errors.New("cable cut"))
		wantStatus(t, do(t, h, "alice"), http.StatusServiceUnavailable)
	}
}

func TestDegraded(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 1))
	var log strings.Builder
	cfg := config(l, &log)
	admits(t, l)
	cfg.After = func(*http.Request, *httplimit.Result) weir.Tokens { return weir.Tokens{"rpm": 5} }
	h := wrap(t, cfg, ok)
	wantField(t, do(t, h, "bob"), "Weir-Degraded", "")
	l.Fail(errors.New("cable cut"))
	for range 3 {
		res := do(t, h, "alice")
		wantStatus(t, res, http.StatusOK)
		wantField(t, res, "Weir-Degraded", "store-unavailable")
		wantField(t, res, "RateLimit", "")
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "cable cut") {
		t.Errorf("logged %q, want one line", log.String())
	}
	wantSpent(t, l, "rpm", 0)
}

// A client that has gone is not an error to report.
func TestClientGone(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 1))
	var log strings.Builder
	h := wrap(t, config(l, &log), func(http.ResponseWriter, *http.Request) { t.Error("it was handled") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantStatus(t, send(h, request(t, "alice").WithContext(ctx)), http.StatusServiceUnavailable)
	if log.Len() > 0 {
		t.Errorf("logged %q", log.String())
	}
}

func TestOnRefused(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 1))
	cfg := config(l, new(strings.Builder))
	cfg.OnRefused = func(w http.ResponseWriter, _ *http.Request, ref *httplimit.Refusal) {
		if !errors.Is(ref.Err, weir.ErrExceeded) || ref.RetryAfter < time.Minute || ref.Detail == "" {
			t.Errorf("got %+v", ref)
		}
		http.Error(w, "slow down", ref.Status)
	}
	h := wrap(t, cfg, ok)
	do(t, h, "alice")
	res := do(t, h, "alice")
	wantStatus(t, res, http.StatusTooManyRequests)
	wantField(t, res, "RateLimit", `"rpm";r=0;t=60`)
	wantField(t, res, "Content-Type", "text/plain; charset=utf-8")
	if res.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// A handler that writes nothing must not turn a refused request into a success.
func TestOnRefusedSilent(t *testing.T) {
	t.Parallel()
	cfg := config(weirtest.New(t, weir.PerMinute("rpm", 1)), new(strings.Builder))
	cfg.OnRefused = func(w http.ResponseWriter, _ *http.Request, _ *httplimit.Refusal) { w.Header().Set("X-Seen", "1") }
	res := do(t, wrap(t, cfg, ok), "")
	wantStatus(t, res, http.StatusBadRequest)
	wantField(t, res, "X-Seen", "1")
	problemOf(t, res)
}

// However many requests arrive at once, exactly as many are handled as the limit allows; those whose handler panics do
// not count.
func TestExact(t *testing.T) {
	t.Parallel()
	const all, most = 300, 40
	l := weirtest.New(t, weir.PerMinute("rpm", most))
	var handled, refused atomic.Int64
	var turn atomic.Int64
	h := wrap(t, config(l, new(strings.Builder)), func(http.ResponseWriter, *http.Request) {
		if turn.Add(1)%3 == 0 {
			panic(http.ErrAbortHandler)
		}
		handled.Add(1)
	})
	var wg sync.WaitGroup
	for range all {
		wg.Go(func() {
			defer func() { _ = recover() }() // http.ErrAbortHandler
			if send(h, request(t, "alice")).status == http.StatusTooManyRequests {
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	for range all { // others may spend what was rolled back
		func() {
			defer func() { _ = recover() }()
			do(t, h, "alice")
		}()
	}
	if handled.Load() != most || refused.Load() == 0 {
		t.Errorf("%d were handled, want %d; %d refused", handled.Load(), most, refused.Load())
	}
	wantSpent(t, l, "rpm", most)
}

// Internal details appear neither in fields nor in bodies.
func TestTell(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 5))
	l.SetLimits("org-1", "api", weir.PerMinute("rpm", 1))
	for _, e := range []admin.Entity{{ID: "org-1"}, {ID: alice, Parent: "org-1", Cascade: true}} {
		if err := admin.New(l.Limiter).Entities.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, tell := range []bool{true, false} {
		cfg := config(l, new(strings.Builder))
		if !tell {
			cfg.Tell = func(st *weir.LimitStatus) bool { return st.Entity != "org-1" }
		}
		h := wrap(t, cfg, ok)
		res := do(t, h, "alice")
		check := func(what string, has bool) {
			t.Helper()
			if has != tell {
				t.Errorf("told %t, %s: %t", tell, what, has)
			}
		}
		check("allowed", strings.Contains(res.header.Get("RateLimit"), "org-1"))
		res = do(t, h, "alice")
		wantStatus(t, res, http.StatusTooManyRequests)
		check("refused", strings.Contains(res.header.Get("RateLimit-Policy"), "org-1"))
		p := problemOf(t, res)
		check("detail", strings.Contains(p.Detail, "org-1"))
		check("limits", len(p.Limits) == 2)
		check("violated", len(p.Violated) == 1 && p.Violated[0] == "rpm@org-1")

		cfg.Tokens = func(*http.Request) (weir.Tokens, error) { return weir.Tokens{"rpm": 2}, nil }
		p = problemOf(t, do(t, wrap(t, cfg, ok), "alice"))
		if p.Status != http.StatusUnprocessableEntity {
			t.Errorf("got %+v", p)
		}
		check("burst", strings.Contains(p.Detail, "org-1"))
		l.Advance(time.Hour)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := httplimit.New(httplimit.Config{OnUnavailable: "locally"})
	for _, field := range []string{"Limiter", "Entity", "Resource", "Tokens", "OnUnavailable"} {
		if err == nil || !strings.Contains(err.Error(), "Config."+field+": ") {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
	if _, ok := errors.AsType[*weir.ConfigError](err); !ok {
		t.Errorf("got %v", err)
	}
}
