package server

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
)

func TestRateLimitFields(t *testing.T) {
	t.Parallel()
	st := func(entity, limit string, change func(*weir.LimitStatus)) weir.LimitStatus {
		s := weir.LimitStatus{Entity: entity, Limit: limit, Amount: 60, Burst: 60, Period: time.Minute}
		if change != nil {
			change(&s)
		}
		return s
	}
	for _, tt := range []struct {
		name          string
		status        weir.LimitStatus
		policy, limit string
	}{
		{"full", st("a", "rpm", func(s *weir.LimitStatus) { s.Available = 60 }), `"rpm";q=60;w=60`, `"rpm";r=60`},
		{"empty", st("a", "rpm", func(s *weir.LimitStatus) { s.Full = time.Minute }), `"rpm";q=60;w=60`, `"rpm";r=0;t=1`},
		{"in debt", st("a", "rpm", func(s *weir.LimitStatus) { s.Available, s.Full = -9, time.Hour }), `"rpm";q=60;w=60`, `"rpm";r=0;t=10`},
		{"refused", st("a", "rpm", func(s *weir.LimitStatus) { s.Available, s.Refused, s.RetryAfter = 3, true, time.Second+1 }), `"rpm";q=60;w=60`, `"rpm";r=3;t=2`},
		{"slow", st("a", "rpd", func(s *weir.LimitStatus) { s.Amount, s.Period, s.Full = 7, 24*time.Hour, 1 }), `"rpd";q=7;w=86400;weir-burst=60`, `"rpd";r=0;t=12343`},
		{"less than a second", st("a", "x", func(s *weir.LimitStatus) { s.Period = 1500 * time.Millisecond }), `"x";q=60`, `"x";r=0`},
		{"parent", st("org", "rpm", nil), `"rpm@org";q=60;w=60`, `"rpm@org";r=0`},
		{"escaped", st("a", `q"\`, nil), `"q\"\\";q=60;w=60`, `"q\"\\";r=0`},
		{"huge", st("a", "x", func(s *weir.LimitStatus) { s.Available = math.MaxInt64 }), `"x";q=60;w=60`, `"x";r=999999999999999`},
		{"huge debt", st("a", "x", func(s *weir.LimitStatus) {
			s.Available, s.Full, s.Amount, s.Period = math.MinInt64/2, time.Hour, 1, 366*24*time.Hour
		}), `"x";q=1;w=31622400;weir-burst=60`, `"x";r=0;t=999999999999999`},
		{"not ASCII", st("a", "é", nil), "", ""},
		{"in shadow", st("a", "rpm", func(s *weir.LimitStatus) { s.Shadow, s.WouldRefuse = true, true }), "", ""},
		{"control character", st("a", "a\r\nb", nil), "", ""},
		{"parent not ASCII", st("ü", "rpm", nil), "", ""},
	} {
		h := make(http.Header)
		new(Server).setLimits(h, "a", []weir.LimitStatus{tt.status})
		if got := h.Get("RateLimit-Policy"); got != tt.policy {
			t.Errorf("%s: got policy %s, want %s", tt.name, got, tt.policy)
		}
		if got := h.Get("RateLimit"); got != tt.limit {
			t.Errorf("%s: got limit %s, want %s", tt.name, got, tt.limit)
		}
	}

	many := make([]weir.LimitStatus, 500)
	for i := range many {
		many[i] = st("a", strings.Repeat("x", 256), nil)
	}
	h := make(http.Header)
	new(Server).setLimits(h, "a", many)
	if n := len(h.Get("RateLimit")) + len(h.Get("RateLimit-Policy")); n > 10<<10 {
		t.Errorf("the fields have %d bytes", n)
	}
}

func TestJitter(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{-1, 0, 1, time.Second, 1500 * time.Millisecond, 10 * time.Second, time.Hour, math.MaxInt64} {
		for range 1000 {
			got := jittered(d)
			most := max(d, 0) + min(max(d, 0)/10*3, maxJitter)
			if d == math.MaxInt64 {
				most = d
			}
			if got > most || got < min(d, math.MaxInt64-maxJitter-1) {
				t.Fatalf("%s became %s", d, got)
			}
		}
		h := make(http.Header)
		setRetryAfter(h, d)
		n, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
		if early := n < int64(math.MaxInt64/time.Second) && time.Duration(n)*time.Second < d; err != nil || n < 1 || early {
			t.Errorf("%s: got Retry-After %q", d, h.Get("Retry-After"))
		}
	}
}

func TestAppendSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0", 1: "0.001", time.Millisecond: "0.001", time.Second: "1", 1500 * time.Millisecond: "1.5",
		time.Second + 1: "1.001", 59*time.Second + 999*time.Millisecond + 1: "60", math.MaxInt64: "9223372036.855",
	} {
		if got := string(appendSeconds(nil, d)); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
}

func TestAppendString(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "plain", `q"uo\te`, "\x00\x1f\x7f\n", "ключ\u2028", "😀", "a\xffb\xc3", "\xed\xa0\x80"} {
		var got string
		if err := json.Unmarshal(appendString(nil, s), &got); err != nil || got != strings.ToValidUTF8(s, "\uFFFD") && got != string([]rune(s)) {
			t.Errorf("%q: got %q, %v", s, got, err)
		}
	}
}

// TestUnforeseen fails in a way, and panics, that nobody thought of: the client learns nothing, the log does.
func TestUnforeseen(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]handler{
		"error": func(http.ResponseWriter, *http.Request) error { return errors.New("the password is 1234") },
		"panic": func(http.ResponseWriter, *http.Request) error { panic("the password is 1234") },
	} {
		var log strings.Builder
		s := &Server{cfg: Config{Log: slog.New(slog.NewTextHandler(&log, nil))}}
		w := httptest.NewRecorder()
		s.handle(serve).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		if w.Code != 500 || strings.Contains(w.Body.String(), "1234") || !strings.Contains(log.String(), "1234") {
			t.Errorf("%s: got %d %s, logged %s", name, w.Code, w.Body, &log)
		}
	}
}
