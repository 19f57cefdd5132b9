package httplimit_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/httplimit"
	"github.com/weirlimits/weir/internal/testkit/mototest"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/weirtest"
)

// TestOpenAI checks the answers to requests that are not handled in the format of OpenAI's API.
func TestOpenAI(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 2), weir.PerMinute("tpm", 1000))
	cfg := config(l, new(strings.Builder))
	cfg.Errors = httplimit.OpenAI
	cfg.Tokens = func(r *http.Request) (weir.Tokens, error) {
		n := int64(200)
		if r.Header.Get("Large") != "" {
			n = 2000
		}
		return weir.Tokens{"rpm": 1, "tpm": n}, nil
	}
	h := wrap(t, cfg, ok)
	res := do(t, h, "alice")
	wantStatus(t, res, http.StatusOK)
	wantField(t, res, "X-Ratelimit-Limit-Requests", "") // an answer that is passed on has the fields of its own limits
	do(t, h, "alice")
	res = do(t, h, "alice")
	wantStatus(t, res, http.StatusTooManyRequests)
	for name, want := range map[string]string{
		"Content-Type": "application/json", "X-Ratelimit-Limit-Requests": "2", "X-Ratelimit-Remaining-Requests": "0",
		"X-Ratelimit-Reset-Requests": "1m0s", "X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "600",
		"X-Ratelimit-Reset-Tokens": "24s", "RateLimit": `"rpm";r=0;t=30, "tpm";r=600;t=30`,
	} {
		wantField(t, res, name, want)
	}
	if ms := res.header.Get("Retry-After-Ms"); !regexp.MustCompile(`^3\d{4}$`).MatchString(ms) {
		t.Errorf("retry-after-ms %q, want 30000 and up to three tenths more", ms)
	}
	var body struct {
		Error struct{ Message, Type, Param, Code *string }
	}
	if err := json.NewDecoder(res.body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	if e := body.Error; e.Message == nil || *e.Type != "requests" || *e.Code != "rate_limit_exceeded" || e.Param != nil {
		t.Errorf("%+v", e)
	}
	large := request(t, "bob")
	large.Header.Set("Large", "yes")
	res = send(h, large)
	wantStatus(t, res, http.StatusUnprocessableEntity)
	wantField(t, res, "Retry-After-Ms", "")
	if _, err := httplimit.New(httplimit.Config{Errors: "xml"}); err == nil || !strings.Contains(err.Error(), "Config.Errors") {
		t.Errorf("%v", err)
	}
}

// TestBalance checks that no time to retry is sent where a balance refuses.
func TestBalance(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t)
	scope := admin.Scope{Resource: "chat"}
	if err := admin.New(l.Limiter).Limits.Set(t.Context(), scope, weir.PerMinute("rpm", 2), weir.Limit{Name: "credits", Balance: true}); err != nil {
		t.Fatal(err)
	}
	for _, format := range []httplimit.Errors{httplimit.ProblemJSON, httplimit.OpenAI} {
		h := wrap(t, httplimit.Config{
			Limiter: l.Limiter, Entity: httplimit.ByBearer(), Resource: httplimit.Fixed("chat"), Errors: format, Tokens: httplimit.Each("credits"),
		}, nil)
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", http.NoBody)
		r.Header.Set("Authorization", "Bearer sk-1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 429 || w.Header().Get("Retry-After")+w.Header().Get("Retry-After-Ms") != "" ||
			!strings.Contains(w.Body.String(), "until it is topped up") {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		if format == httplimit.OpenAI && !strings.Contains(w.Body.String(), `"type":"insufficient_quota","param":null,"code":"insufficient_quota"`) {
			t.Errorf("%s", w.Body)
		}
	}
}

// TestOpenAIClient checks that OpenAI's client for Python understands a refusal: it waits as long as it must, so that its
// retry is admitted. Its own pause would be at most half a second.
func TestOpenAIClient(t *testing.T) {
	t.Parallel()
	python := mototest.Tool(t, "python3")
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	limits := admin.New(lim).Limits
	for key, per := range map[string]time.Duration{"sk-soon": 2500 * time.Millisecond, "sk-later": time.Hour} {
		err := limits.Set(t.Context(), admin.Scope{Entity: httplimit.KeyID(key)},
			weir.Limit{Name: "rpm", Amount: 1, Period: per}, weir.PerMinute("tpm", 50_000))
		if err != nil {
			t.Fatal(err)
		}
	}
	var soon, later atomic.Int64 // refusals
	h := wrap(t, httplimit.Config{
		Limiter: lim, Entity: httplimit.ByBearer(), Resource: httplimit.Fixed("chat"), Errors: httplimit.OpenAI,
		Tokens: func(*http.Request) (weir.Tokens, error) { return weir.Tokens{"rpm": 1, "tpm": 100}, nil },
		OnRefused: func(_ http.ResponseWriter, r *http.Request, _ *httplimit.Refusal) {
			if r.Header.Get("Authorization") == "Bearer sk-soon" {
				soon.Add(1)
			} else {
				later.Add(1)
			}
		},
	}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}]}`))
	})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	client := exec.CommandContext(t.Context(), python, "testdata/openai_client.py", server.URL)
	var errs strings.Builder
	client.Stderr = &errs
	out, err := client.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	if soon.Load() != 1 || later.Load() != 1 {
		t.Errorf("%d and %d refusals, want one of each key: the client came back too early", soon.Load(), later.Load())
	}
	var seen struct {
		Code, Type string
		Param      any
		Headers    map[string]string
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if seen.Code != "rate_limit_exceeded" || seen.Type != "requests" || seen.Param != nil ||
		seen.Headers["x-ratelimit-remaining-requests"] != "0" || seen.Headers["retry-after-ms"] == "" {
		t.Errorf("%+v", seen)
	}
}
