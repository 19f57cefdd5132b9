package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/notify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var secret = []byte("a secret of some length")

func near(id string) weir.NearLimitEvent {
	return weir.NearLimitEvent{
		ID: id, Namespace: "default", Entity: "alice", Resource: "gpt-4", Limit: "tpm", Kind: weir.NearThreshold,
		Percent: 80, Used: 81, Of: 100, Left: 19, WindowStart: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), WindowLength: time.Hour,
		At: time.Date(2026, 3, 1, 12, 5, 0, 5e8, time.UTC),
	}
}

// receiver answers in place of the network.
type receiver struct {
	mu     sync.Mutex
	answer func(n int) (status int, header http.Header, err error) // to the n-th attempt, from 1; nil accepts all
	began  time.Time
	seen   []string // "id +when"
	heads  []http.Header
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	r.mu.Lock()
	r.seen = append(r.seen, req.Header.Get("Weir-Event-Id")+" +"+time.Since(r.began).String())
	r.heads = append(r.heads, req.Header)
	n, answer := len(r.seen), r.answer
	r.mu.Unlock()
	status, header := http.StatusNoContent, http.Header(nil)
	if answer != nil {
		var err error
		if status, header, err = answer(n); err != nil {
			return nil, err
		}
	}
	if status == 0 { // never answers
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return &http.Response{Status: fmt.Sprint(status, " ", http.StatusText(status)), StatusCode: status, Header: header, Body: http.NoBody}, nil
}

func (r *receiver) want(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if diff := cmp.Diff(want, r.seen); diff != "" {
		t.Error(diff)
	}
}

// always is a receiver that always gives the same answer.
func always(status int) func(int) (int, http.Header, error) {
	return func(int) (int, http.Header, error) { return status, nil, nil }
}

// bubble runs f over a webhook with the longest possible pauses, in a bubble of virtual time.
func bubble(t *testing.T, r *receiver, change func(*notify.Config), f func(t *testing.T, w *notify.Webhook, log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r.began = time.Now()
		var log bytes.Buffer
		cfg := notify.Config{
			URL: "https://hooks.example/T0/path-that-is-secret", Secret: secret, Client: &http.Client{Transport: r},
			Log: slog.New(slog.NewTextHandler(&log, nil)), Jitter: func(most time.Duration) time.Duration { return most },
		}
		if change != nil {
			change(&cfg)
		}
		w, err := notify.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		f(t, w, &log)
		_ = w.Close(t.Context())
		if s := log.String(); strings.Contains(s, string(secret)) || strings.Contains(s, "path-that-is-secret") {
			t.Errorf("the log holds a secret: %s", s)
		}
	})
}

// later waits until everything due within an hour of virtual time has happened.
func later() {
	time.Sleep(time.Hour) // virtual time: bubbles only
	synctest.Wait()
}

func wantStats(t *testing.T, w *notify.Webhook, want notify.Stats) {
	t.Helper()
	if got := w.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestDelivers(t *testing.T) {
	t.Parallel()
	r := &receiver{}
	bubble(t, r, nil, func(t *testing.T, w *notify.Webhook, log *bytes.Buffer) {
		w.NearLimit(t.Context(), near("a"))
		w.NearLimit(t.Context(), near("b"))
		synctest.Wait()
		r.want(t, "a +0s", "b +0s")
		wantStats(t, w, notify.Stats{Delivered: 2})
		if log.Len() > 0 {
			t.Errorf("logged %s", log)
		}
	})
}

// Pauses double up to a minute, and after eight attempts the event is given up.
func TestTriesAgain(t *testing.T) {
	t.Parallel()
	r := &receiver{answer: func(n int) (int, http.Header, error) {
		if n%2 == 0 {
			return 0, nil, errors.New("connection refused")
		}
		return 503, nil, nil
	}}
	bubble(t, r, nil, func(t *testing.T, w *notify.Webhook, log *bytes.Buffer) {
		w.NearLimit(t.Context(), near("a"))
		later()
		r.want(t, "a +0s", "a +500ms", "a +1.5s", "a +3.5s", "a +7.5s", "a +15.5s", "a +31.5s", "a +1m3.5s")
		wantStats(t, w, notify.Stats{GivenUp: 1})
		if s := log.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "given up") || !strings.Contains(s, "attempts=8") || !strings.Contains(s, "host=hooks.example") {
			t.Errorf("logged %s", s)
		}
	})
}

// An event that the receiver cannot handle does not hold up the others. An event that hangs does so for ten seconds.
func TestOthersGoOn(t *testing.T) {
	t.Parallel()
	r := &receiver{answer: func(n int) (int, http.Header, error) {
		switch n {
		case 1:
			return 0, nil, nil
		case 2:
			return 500, nil, nil
		}
		return 200, nil, nil
	}}
	bubble(t, r, nil, func(t *testing.T, w *notify.Webhook, _ *bytes.Buffer) {
		for _, id := range []string{"a", "b", "c"} {
			w.NearLimit(t.Context(), near(id))
		}
		later()
		r.want(t, "a +0s", "b +10s", "c +10s", "a +10.5s", "b +10.5s")
		wantStats(t, w, notify.Stats{Delivered: 3})
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	r := &receiver{}
	r.answer = func(n int) (int, http.Header, error) {
		switch n {
		case 1:
			return 429, http.Header{"Retry-After": {"30"}}, nil
		case 2:
			return 429, http.Header{"Retry-After": {r.began.Add(100 * time.Second).UTC().Format(http.TimeFormat)}}, nil
		case 3:
			return 429, http.Header{"Retry-After": {"soon"}}, nil
		}
		return 200, nil, nil
	}
	bubble(t, r, nil, func(t *testing.T, w *notify.Webhook, _ *bytes.Buffer) {
		w.NearLimit(t.Context(), near("a"))
		time.Sleep(time.Second) // virtual
		synctest.Wait()
		w.NearLimit(t.Context(), near("b"))
		later()
		// Nothing is sent while the receiver requests a pause. Afterwards, the event that has waited longest comes
		// first.
		r.want(t, "a +0s", "b +30s", "a +1m40s", "b +1m40s", "a +1m41s")
		wantStats(t, w, notify.Stats{Delivered: 2})
	})
}

// If the receiver requests a longer wait than an event is retried for, the event is given up at once.
func TestRetryAfterTooLong(t *testing.T) {
	t.Parallel()
	r := &receiver{answer: func(int) (int, http.Header, error) { return 429, http.Header{"Retry-After": {"3600"}}, nil }}
	bubble(t, r, nil, func(t *testing.T, w *notify.Webhook, _ *bytes.Buffer) {
		w.NearLimit(t.Context(), near("a"))
		synctest.Wait()
		r.want(t, "a +0s")
		wantStats(t, w, notify.Stats{GivenUp: 1})
	})
}

func TestRejected(t *testing.T) {
	t.Parallel()
	for _, status := range []int{302, 400, 401, 404, 410} {
		r := &receiver{answer: func(int) (int, http.Header, error) {
			return status, http.Header{"Location": {"https://elsewhere.example/"}}, nil
		}}
		bubble(t, r, nil, func(t *testing.T, w *notify.Webhook, log *bytes.Buffer) {
			w.NearLimit(t.Context(), near("a"))
			later()
			r.want(t, "a +0s")
			wantStats(t, w, notify.Stats{Rejected: 1})
			if s := log.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, fmt.Sprint(status)) || !strings.Contains(s, "id=a") {
				t.Errorf("logged %s", s)
			}
		})
	}
}

// If there is no room, the oldest events are dropped. That is counted, and logged occasionally.
func TestOverflows(t *testing.T) {
	t.Parallel()
	r := &receiver{answer: func(n int) (int, http.Header, error) {
		if n == 1 {
			return 429, http.Header{"Retry-After": {"300"}}, nil
		}
		return 200, nil, nil
	}}
	bubble(t, r, func(cfg *notify.Config) { cfg.Queue = 2 }, func(t *testing.T, w *notify.Webhook, log *bytes.Buffer) {
		w.NearLimit(t.Context(), near("a"))
		synctest.Wait()
		for _, id := range []string{"b", "c", "d", "e"} {
			w.NearLimit(t.Context(), near(id))
		}
		wantStats(t, w, notify.Stats{Waiting: 2, Dropped: 3})
		later()
		r.want(t, "a +0s", "d +5m0s", "e +5m0s")
		wantStats(t, w, notify.Stats{Delivered: 2, Dropped: 3})
		if s := log.String(); strings.Count(s, "\n") != 1 {
			t.Errorf("logged %s", s)
		}
	})
}

// Events of one namespace, however many, take the place of none of another.
func TestOverflowsAlone(t *testing.T) {
	t.Parallel()
	r := &receiver{answer: func(n int) (int, http.Header, error) {
		if n == 1 {
			return 429, http.Header{"Retry-After": {"300"}}, nil
		}
		return 200, nil, nil
	}}
	bubble(t, r, func(cfg *notify.Config) { cfg.Queue = 3 }, func(t *testing.T, w *notify.Webhook, _ *bytes.Buffer) {
		other := near("other")
		other.Namespace = "other"
		w.NearLimit(t.Context(), other)
		synctest.Wait()
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			w.NearLimit(t.Context(), near(id))
		}
		later()
		r.want(t, "other +0s", "d +5m0s", "e +5m0s", "other +5m0s")
		wantStats(t, w, notify.Stats{Delivered: 3, Dropped: 3})
	})
}

// The webhook counts what waits of each namespace, whatever happens to the events.
func TestCounts(t *testing.T) {
	t.Parallel()
	r := &receiver{answer: func(n int) (int, http.Header, error) {
		if n <= 2 || n > 6 {
			return 429, http.Header{"Retry-After": {"60"}}, nil
		}
		return 200, nil, nil
	}}
	bubble(t, r, func(cfg *notify.Config) { cfg.Queue = 4 }, func(t *testing.T, w *notify.Webhook, _ *bytes.Buffer) {
		send := func(namespace string, ids ...string) {
			for _, id := range ids {
				e := near(id)
				e.Namespace = namespace
				w.NearLimit(t.Context(), e)
			}
		}
		want := func(all int, of map[string]int) {
			t.Helper()
			synctest.Wait()
			if n, got := w.Counted(); n != all || !cmp.Equal(got, of) {
				t.Errorf("%d wait, counted %v; want %d, %v", n, got, all, of)
			}
		}
		send("a", "a1")
		want(1, map[string]int{"a": 1}) // after an attempt that failed
		send("b", "b1", "b2", "b3", "b4")
		want(4, map[string]int{"a": 1, "b": 3})
		send("c", "c1")
		want(4, map[string]int{"a": 1, "b": 2, "c": 1})
		time.Sleep(time.Minute)
		want(4, map[string]int{"a": 1, "b": 2, "c": 1}) // after another
		time.Sleep(time.Minute)
		want(0, map[string]int{})
		send("a", "a2", "a3")
		send("b", "b5")
		want(3, map[string]int{"a": 2, "b": 1})
		_ = w.Close(t.Context())
		want(0, map[string]int{})
	})
}

// When the sender must stop, nothing waits any more.
func TestCountsStopped(t *testing.T) {
	t.Parallel()
	bubble(t, &receiver{answer: always(0)}, nil, func(t *testing.T, w *notify.Webhook, _ *bytes.Buffer) {
		for _, id := range []string{"a", "b", "c"} {
			w.NearLimit(t.Context(), near(id))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Close(ctx); err == nil {
			t.Error("all were delivered")
		}
		if n, of := w.Counted(); n != 0 || len(of) != 0 {
			t.Errorf("%d wait, counted %v", n, of)
		}
	})
}

// Close sends waiting events once more, even if the receiver asked for a pause.
func TestCloseFlushes(t *testing.T) {
	t.Parallel()
	r := &receiver{answer: func(n int) (int, http.Header, error) {
		switch n {
		case 1:
			return 429, http.Header{"Retry-After": {"300"}}, nil
		case 3:
			return 500, nil, nil
		}
		return 200, nil, nil
	}}
	bubble(t, r, nil, func(t *testing.T, w *notify.Webhook, _ *bytes.Buffer) {
		w.NearLimit(t.Context(), near("a"))
		synctest.Wait()
		w.NearLimit(t.Context(), near("b"))
		w.NearLimit(t.Context(), near("c"))
		err := w.Close(t.Context())
		if err == nil || !strings.Contains(err.Error(), "1 near-limit events were not delivered") {
			t.Errorf("got %v", err)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Errorf("a second time: %v", err)
		}
		w.NearLimit(t.Context(), near("late"))
		r.want(t, "a +0s", "a +0s", "b +0s", "c +0s")
		wantStats(t, w, notify.Stats{Delivered: 2, GivenUp: 1, Dropped: 1})
	})
}

func TestCloseEnds(t *testing.T) {
	t.Parallel()
	r := &receiver{answer: always(0)}
	bubble(t, r, nil, func(t *testing.T, w *notify.Webhook, _ *bytes.Buffer) {
		w.NearLimit(t.Context(), near("a"))
		w.NearLimit(t.Context(), near("b"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if err := w.Close(ctx); err == nil || !strings.Contains(err.Error(), "2 near-limit events") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %s", took)
		}
		wantStats(t, w, notify.Stats{GivenUp: 2})
	})
}

// Every attempt has its own timestamp, and a signature that covers it.
func TestSignsEachAttempt(t *testing.T) {
	t.Parallel()
	r := &receiver{answer: func(n int) (int, http.Header, error) { return map[bool]int{true: 500, false: 200}[n < 3], nil, nil }}
	bubble(t, r, nil, func(t *testing.T, w *notify.Webhook, _ *bytes.Buffer) {
		e := near("a")
		w.NearLimit(t.Context(), e)
		later()
		stamps := map[string]bool{}
		for _, h := range r.heads {
			stamps[h.Get("Weir-Timestamp")] = true
			if got, want := h.Get("Weir-Signature"), notify.Sign(secret, h.Get("Weir-Timestamp"), notify.Body(&e)); got != want {
				t.Errorf("signature %s, want %s", got, want)
			}
		}
		if len(r.heads) != 3 || len(stamps) != 2 { // at 0s, 0.5s, 1.5s
			t.Errorf("%d attempts with %d timestamps", len(r.heads), len(stamps))
		}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  notify.Config
		want string // "" is valid
	}{
		{notify.Config{URL: "https://hooks.example/x", Secret: secret}, ""},
		{notify.Config{URL: "http://127.0.0.1:9/x", Secret: secret}, ""},
		{notify.Config{URL: "http://[::1]:9/x", Secret: secret}, ""},
		{notify.Config{URL: "http://localhost/x", Secret: secret}, ""},
		{notify.Config{URL: "http://hooks.example/x", Secret: secret, Insecure: true}, ""},
		{notify.Config{URL: "http://hooks.example/x", Secret: secret}, "webhook URL: is http, and hooks.example is not this machine: use https"},
		{notify.Config{URL: "http://localhost.example/x", Secret: secret}, "webhook URL: is http, and localhost.example is not this machine: use https"},
		{notify.Config{URL: "ftp://hooks.example/x", Secret: secret}, "webhook URL: must begin with https://"},
		{notify.Config{URL: "hooks.example", Secret: secret}, "webhook URL: must be a URL such as https://HOST/PATH"},
		{notify.Config{URL: "https://hooks.example", Secret: secret[:15]}, "webhook secret: has 15 bytes, at least 16 are needed"},
		{notify.Config{URL: "https://hooks.example", Secret: secret, Queue: -1}, "webhook queue: must not be negative"},
	} {
		w, err := notify.New(c.cfg)
		if err == nil {
			_ = w.Close(t.Context())
		}
		var bad *weir.ConfigError
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &bad) || err.Error() != c.want) {
			t.Errorf("%s: got %v, want %s", c.cfg.URL, err, c.want)
		}
	}
}

func TestLogged(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	e := near("a")
	e.Shadow = true
	notify.Logged(slog.New(slog.NewJSONHandler(&b, nil)))(t.Context(), e)
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "time")
	want := map[string]any{
		"level": "INFO", "msg": "near a limit", "id": "a",
		"event": map[string]any{
			"kind": "threshold", "namespace": "default", "entity": "alice", "resource": "gpt-4", "limit": "tpm",
			"percent": 80.0, "used": 81.0, "of": 100.0, "left": 19.0, "shadow": true,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Over a real connection: from a limiter to a receiver that verifies what it gets.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	got := make(chan string, 10)
	srv := httptest.NewServer(receive(secret, func(e Event) { got <- fmt.Sprintf("%s %s %s %d%%", e.Entity, e.Limit, e.Kind, e.Percent) }))
	defer srv.Close()
	w, err := notify.New(notify.Config{URL: srv.URL + "/near", Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	w.NearLimit(t.Context(), near("a"))
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := <-got; s != "alice tpm threshold 80%" {
		t.Errorf("got %s", s)
	}
	wantStats(t, w, notify.Stats{Delivered: 1})

	other, err := notify.New(notify.Config{URL: srv.URL, Secret: []byte("another secret of length"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	other.NearLimit(t.Context(), near("b"))
	if err := other.Close(t.Context()); err == nil {
		t.Error("a receiver takes what another has signed")
	}
}
