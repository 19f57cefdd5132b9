package load_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/lab/load"
	"github.com/weirlimits/weir/internal/lab/traffic"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/testkit/redirecttest"
	"github.com/weirlimits/weir/internal/testkit/traffictest"
)

// served returns a limiter in memory and a server over it.
func served(t *testing.T) (*weir.Limiter, http.Handler) {
	t.Helper()
	lim, _ := limiter(t, new(load.Meter))
	s, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: lim}})
	must(t, err)
	return lim, s.Handler()
}

// kinds contains each operation, occasional refusals, and a parent.
const kinds = `
users: 10
wait: 0.1s
entities: [{name: user, id: "user/%d", pick: own, share: 1, parent: parent}]
resources: [a/b]
calls:
  - {name: acquire, op: acquire, weight: 8, tokens: {rpm: 1, tpm: 10}, adjust: {tpm: 5..15}}
  - {name: available, op: available, weight: 2}
limits: {system: {limits: {rpm: {capacity: 300}, tpm: {capacity: 1M}}}}
`

func kindsPlan(t *testing.T, length time.Duration) (*traffic.Plan, *traffic.Scenario, traffic.Settings) {
	t.Helper()
	sc, err := traffic.Decode("kinds", []byte(kinds))
	must(t, err)
	warm := traffic.Span(10 * time.Millisecond)
	set := traffic.Settings{Seed: 1, For: traffic.Span(length), WarmUp: &warm}
	return traffictest.Plan(t, sc, set), sc, set
}

// wantKinds checks a run of 1,000 calls.
func wantKinds(t *testing.T, r *load.Report) {
	t.Helper()
	near(t, "calls", float64(r.Calls), 1000, 0)
	near(t, "admitted", 800-float64(r.Refused), 300+50-1, 1) // the parent's burst and its refill during the run
	if r.Failed != 0 || len(r.Ops) != 3 || r.Ops[1].Op != traffic.Adjust || r.Ops[1].Calls < 300 || r.Ops[1].Calls > 350 {
		t.Errorf("%+v", r)
	}
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim, h := served(t)
		target, err := load.NewHTTP("http://weir.example/", "", nil)
		must(t, err)
		target.Through(direct{h})
		p, _, _ := kindsPlan(t, 10*time.Second)
		must(t, target.SetUp(t.Context(), p, "scratch"))
		tally, err := load.Run(t.Context(), p, target.In("scratch"), load.Options{Measures: target.Measures})
		must(t, err)
		wantKinds(t, load.NewReport(p, tally))
		must(t, target.TearDown(t.Context(), "scratch"))
		if _, err := admin.New(lim).Namespaces.Get(t.Context(), "scratch"); !errors.Is(err, weir.ErrNotFound) {
			t.Errorf("after the end: %v", err)
		}
		// In this namespace no limits apply, and every call reports it.
		r := run(t, p, target.In("scratch"))
		if r.Failed != r.Calls || !strings.Contains(strings.Join(keys(r.Errors), " "), "404 Not Found: namespace") {
			t.Errorf("%+v", r)
		}
		must(t, target.Close())
	})
	for _, bad := range []string{"", "weir.example", "ftp://x", "http://x?y=z"} {
		if _, err := load.NewHTTP(bad, "", nil); err == nil {
			t.Errorf("%q is a URL", bad)
		}
	}
}

func keys(m map[string]uint64) (all []string) {
	for k := range m {
		all = append(all, k)
	}
	return all
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim, _ := limiter(t, new(load.Meter))
		p, _, _ := kindsPlan(t, 10*time.Second)
		must(t, load.SetUp(t.Context(), p, lim, "scratch"))
		wantKinds(t, run(t, p, overGRPC(t, lim, "scratch", "")))
		nowhere := overGRPC(t, lim, "nowhere", "token")
		if r := run(t, p, nowhere); r.Failed != r.Calls || !strings.HasPrefix(keys(r.Errors)[0], "NotFound: ") {
			t.Errorf("%+v", r)
		}
	})
}

// worker serves parts of runs over a limiter.
func worker(t *testing.T, lim *weir.Limiter) *httptest.Server {
	t.Helper()
	w := &load.Worker{Token: "secret", Open: func(ns string) (load.Target, func() map[string]float64, func() error, error) {
		return load.Library{Limiter: lim.In(ns)}, func() map[string]float64 { return map[string]float64{"calls": 1} }, func() error { return nil }, nil
	}}
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	return s
}

// Two workers together do what one does alone.
func TestFleet(t *testing.T) {
	t.Parallel()
	lim, _ := limiter(t, new(load.Meter))
	a, b := worker(t, lim), worker(t, lim)
	_, sc, set := kindsPlan(t, 300*time.Millisecond) // real time: sockets
	set.Rate = 1000 / 0.3
	p := traffictest.Plan(t, sc, set)
	must(t, load.SetUp(t.Context(), p, lim, "scratch"))
	f := &load.Fleet{Addresses: []string{a.Listener.Addr().String(), b.URL}, Token: "secret"}
	told := 0
	tally, err := f.Run(t.Context(), p, sc, set, "scratch", func(*load.Tally) { told++ })
	must(t, err)
	r := load.NewReport(p, tally)
	if told == 0 {
		t.Error("no progress")
	}
	if r.Calls+r.Missed != 1000 || r.Failed > 0 || r.Calls > 500 && r.Refused == 0 || r.Store["calls"].Total > 2 {
		t.Errorf("%+v", r)
	}

	f.Token = "other"
	if _, err := f.Run(t.Context(), p, sc, set, "scratch", nil); err == nil || !strings.Contains(err.Error(), "401 Unauthorized: wrong token") {
		t.Errorf("another token: %v", err)
	}
	f.Token = "secret"
	none := &load.Fleet{Addresses: []string{a.URL, "127.0.0.1:1"}, Token: "secret"}
	if _, err := none.Run(t.Context(), p, sc, set, "scratch", nil); err == nil || !strings.Contains(err.Error(), "worker 127.0.0.1:1: ") {
		t.Errorf("nobody there: %v", err)
	}
	// A worker that cannot start ends the others, long before their time.
	broken := httptest.NewServer(&load.Worker{Token: "secret", Open: func(string) (load.Target, func() map[string]float64, func() error, error) {
		return nil, nil, nil, errors.New("out of order")
	}})
	defer broken.Close()
	set.For = traffic.Span(time.Hour)
	set.Rate = 10
	p = traffictest.Plan(t, sc, set)
	f.Addresses[1] = broken.URL
	if _, err := f.Run(t.Context(), p, sc, set, "scratch", nil); err == nil || err.Error() != "worker "+broken.URL+": out of order" {
		t.Errorf("one is broken: %v", err)
	}
}

// A worker that reports on something other than what it was asked for is not believed.
func TestFleetChecks(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"tally":{},"done":true}`: "the tally belongs to another run",
		`{"tally":{"late":"no"}}`:  "the response broke off: read a histogram",
		``:                         "the response broke off: EOF",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/ready" {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			_, _ = w.Write([]byte(answer))
		}))
		p, sc, set := kindsPlan(t, time.Second)
		_, err := (&load.Fleet{Addresses: []string{s.URL}}).Run(t.Context(), p, sc, set, "scratch", nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", answer, err)
		}
		s.Close()
	}
}

func TestWorkerRefuses(t *testing.T) {
	t.Parallel()
	w := &load.Worker{Token: "secret"}
	for _, tt := range []struct {
		method, path, token, body string
		want                      int
	}{
		{"GET", "/v1/ready", "secret", "", 204},
		{"GET", "/v1/ready", "", "", 401},
		{"POST", "/v1/run", "wrong", "{}", 401},
		{"POST", "/v1/run", "secret", "no", 400},
		{"GET", "/v1/run", "secret", "", 404},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, strings.NewReader(tt.body))
		r.Header.Set("Authorization", "Bearer "+tt.token)
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		if rec.Code != tt.want {
			t.Errorf("%+v: %d %s", tt, rec.Code, rec.Body)
		}
	}
	for _, body := range []string{`{}`, `{"parts":1,"text":"about: x"}`, `{"parts":1,"text":"` + strings.ReplaceAll(strings.ReplaceAll(kinds, `"`, `\"`), "\n", `\n`) + `","settings":{"loop":"x"}}`} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/run", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer secret")
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		var m struct{ Error string }
		if err := json.Unmarshal(rec.Body.Bytes(), &m); err != nil || m.Error == "" {
			t.Errorf("%s: %s", body, rec.Body)
		}
	}
	// A worker without a token accepts no token.
	rec := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/ready", http.NoBody)
	r.Header.Set("Authorization", "Bearer ")
	(&load.Worker{}).ServeHTTP(rec, r)
	if rec.Code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", rec.Code)
	}
}

// The measures of the store that a server's metrics contain. Calls to a table are its writes, which callers share.
func TestMeasuresOfServer(t *testing.T) {
	t.Parallel()
	writes := `# HELP weir_store_writes_applied_total x
weir_store_writes_applied_total 7
weir_store_writes_denied_total 3
weir_store_writes_failed_total 1
`
	for text, want := range map[string]map[string]float64{
		"":     {"calls": 12, "reads": 4},
		writes: {"writes_applied": 7, "writes_denied": 3, "writes_failed": 1, "wcu": 10, "calls": 11, "reads": 4},
	} {
		target, err := load.NewHTTP("http://weir.example", "", nil)
		must(t, err)
		target.Through(direct{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(text + `weir_store_buckets 12
weir_store_errors_total{op="take"} 1
weir_store_call_duration_seconds_bucket{op="take",le="0.1"} 9
weir_store_call_duration_seconds_count{op="take",result="ok"} 9
weir_store_call_duration_seconds_count{op="take",result="rejected"} 1
weir_store_call_duration_seconds_count{op="settle",result="ok"} 2
weir_store_call_duration_seconds_count{op="get",result="ok"} 4
weir_decisions_total 5
`))
		})})
		if m := target.Measures(); !maps.Equal(m, want) {
			t.Errorf("%v, want %v", m, want)
		}
	}
}

// A redirect is not followed: the token is for the server that was named.
func TestRedirect(t *testing.T) {
	t.Parallel()
	target, err := load.NewHTTP(redirecttest.Start(t), "secret", nil)
	must(t, err)
	defer target.Close()
	if _, err := target.Acquire(t.Context(), &traffic.Call{Entity: "a", Resource: "b"}); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("a target: %v", err)
	}
	p, sc, set := kindsPlan(t, time.Second)
	f := &load.Fleet{Addresses: []string{redirecttest.Start(t)}, Token: "secret"}
	if _, err := f.Run(t.Context(), p, sc, set, "scratch", nil); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("a worker: %v", err)
	}
}
