package answer_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
)

func TestRateLimitFields(t *testing.T) {
	t.Parallel()
	var month weir.Window
	if err := month.UnmarshalText([]byte("month@Europe/Berlin")); err != nil {
		t.Fatal(err)
	}
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
		{"full", st("a", "rpm", func(s *weir.LimitStatus) { s.Available = 60 }), `"rpm";q=60;w=60`, `"rpm";r=60;t=60`},
		{"empty", st("a", "rpm", func(s *weir.LimitStatus) { s.Full = time.Minute }), `"rpm";q=60;w=60`, `"rpm";r=0;t=1`},
		{"in debt", st("a", "rpm", func(s *weir.LimitStatus) { s.Available, s.Full = -9, time.Hour }), `"rpm";q=60;w=60`, `"rpm";r=0;t=10`},
		{"half", st("a", "rpm", func(s *weir.LimitStatus) { s.Available, s.Full = 31, 29*time.Second }), `"rpm";q=60;w=60`, `"rpm";r=31;t=31`},
		{"spread", st("a", "x", func(s *weir.LimitStatus) {
			s.Available, s.Amount, s.Period, s.Burst = 10_000, 10_000, 1000*time.Second, 10_000
		}), `"x";q=10000;w=1000`, `"x";r=10000;t=1000`},
		{"no period", st("a", "usd", func(s *weir.LimitStatus) { s.Available, s.Period, s.Full = 40, 0, 9*24*time.Hour }), `"usd";q=60`, `"usd";r=40;t=777600`},
		{"no period, full", st("a", "usd", func(s *weir.LimitStatus) { s.Available, s.Period = 60, 0 }), `"usd";q=60`, `"usd";r=60`},
		{"no period, refused for good", st("a", "usd", func(s *weir.LimitStatus) { s.Available, s.Period, s.Refused = 0, 0, true }), `"usd";q=60`, `"usd";r=0`},
		{"month", st("a", "usd", func(s *weir.LimitStatus) {
			s.Available, s.Period, s.Full, s.Window = 40, 0, 9*24*time.Hour, month
			s.Began, s.Ends = 21*24*time.Hour, 9*24*time.Hour
		}), `"usd";q=60;w=2592000`, `"usd";r=40;t=777600`},
		{"month, full", st("a", "usd", func(s *weir.LimitStatus) {
			s.Available, s.Period, s.Window, s.Began, s.Ends = 60, 0, month, 21*24*time.Hour, 9*24*time.Hour
		}), `"usd";q=60;w=2592000`, `"usd";r=60;t=777600`},
		{"balance", st("a", "credits", func(s *weir.LimitStatus) { s.Available, s.Amount, s.Period, s.Burst = 40, 0, 0, 0 }), `"credits";q=40`, `"credits";r=40`},
		{"balance, refused", st("a", "credits", func(s *weir.LimitStatus) {
			s.Amount, s.Period, s.Burst, s.Refused, s.RetryAfter = 0, 0, 0, true, math.MaxInt64
		}), `"credits";q=0`, `"credits";r=0`},
		{"slots", st("a", "parallel", func(s *weir.LimitStatus) {
			s.Amount, s.Period, s.Burst, s.Heal, s.Available = 0, 0, 20, 30*time.Second, 7
		}), `"parallel";q=20;qu="concurrent-requests"`, `"parallel";r=7`},
		{"slots, refused", st("a", "parallel", func(s *weir.LimitStatus) {
			s.Amount, s.Period, s.Burst, s.Heal, s.Refused, s.RetryAfter = 0, 0, 20, 30*time.Second, true, time.Second
		}), `"parallel";q=20;qu="concurrent-requests"`, `"parallel";r=0;t=1`},
		{"refused", st("a", "rpm", func(s *weir.LimitStatus) { s.Available, s.Refused, s.RetryAfter = 3, true, time.Second+1 }), `"rpm";q=60;w=60`, `"rpm";r=3;t=2`},
		{"slow", st("a", "rpd", func(s *weir.LimitStatus) { s.Amount, s.Period, s.Full = 7, 24*time.Hour, 1 }), `"rpd";q=7;w=86400;weir-burst=60`, `"rpd";r=0;t=12343`},
		{"less than a second", st("a", "x", func(s *weir.LimitStatus) { s.Period = 1500 * time.Millisecond }), `"x";q=60`, `"x";r=0;t=1`},
		{"parent", st("org", "rpm", nil), `"rpm@org";q=60;w=60`, `"rpm@org";r=0;t=1`},
		{"escaped", st("a", `q"\`, nil), `"q\"\\";q=60;w=60`, `"q\"\\";r=0;t=1`},
		{"huge", st("a", "x", func(s *weir.LimitStatus) { s.Available = math.MaxInt64 }), `"x";q=60;w=60`, `"x";r=999999999999999;t=999999999999999`},
		{"huge debt", st("a", "x", func(s *weir.LimitStatus) {
			s.Available, s.Full, s.Amount, s.Period = math.MinInt64/2, time.Hour, 1, 366*24*time.Hour
		}), `"x";q=1;w=31622400;weir-burst=60`, `"x";r=0;t=999999999999999`},
		{"not ASCII", st("a", "é", nil), "", ""},
		{"in shadow", st("a", "rpm", func(s *weir.LimitStatus) { s.Shadow, s.WouldRefuse = true, true }), "", ""},
		{"control character", st("a", "a\r\nb", nil), "", ""},
		{"parent not ASCII", st("ü", "rpm", nil), "", ""},
	} {
		if policy, limit := answer.Fields("a", []weir.LimitStatus{tt.status}); policy != tt.policy || limit != tt.limit {
			t.Errorf("%s: got %s and %s, want %s and %s", tt.name, policy, limit, tt.policy, tt.limit)
		}
	}

	many := make([]weir.LimitStatus, 500)
	for i := range many {
		many[i] = st("a", strings.Repeat("x", 256), nil)
	}
	if policy, limit := answer.Fields("a", many); len(policy)+len(limit) > 10<<10 || limit == "" {
		t.Errorf("the fields have %d and %d bytes", len(policy), len(limit))
	}
}

// TestEffectiveWindow checks that spending what is available over the effective window keeps to the limit's rate.
func TestEffectiveWindow(t *testing.T) {
	t.Parallel()
	for range 10_000 {
		st := weir.LimitStatus{
			Limit: "x", Amount: 1 + rand.Int64N(1000), Burst: 1000, Period: time.Duration(1+rand.Int64N(100_000)) * time.Second,
			Available: rand.Int64N(1000),
		}
		_, limit := answer.Fields("", []weir.LimitStatus{st})
		var r, seconds int64
		if _, err := fmt.Sscanf(limit, `"x";r=%d;t=%d`, &r, &seconds); err != nil {
			t.Fatalf("%v in %s", err, limit)
		}
		if issued := seconds * st.Amount; r != st.Available || r*int64(st.Period/time.Second) > issued {
			t.Fatalf("%d every %s: got %s", st.Amount, st.Period, limit)
		}
	}
}

func TestJitter(t *testing.T) {
	t.Parallel()
	if got := answer.Jittered(math.MaxInt64); got != 0 {
		t.Errorf("there is a time to retry: %v", got)
	}
	for _, d := range []time.Duration{-1, 0, 1, time.Second, 1500 * time.Millisecond, 10 * time.Second, time.Hour, math.MaxInt64 - 1} {
		for range 1000 {
			got := answer.Jittered(d)
			most := max(d, 0) + min(max(d, 0)/10*3, answer.MaxJitter)
			if d == math.MaxInt64-1 {
				most = d
			}
			if got > most || got < min(d, math.MaxInt64-answer.MaxJitter-1) {
				t.Fatalf("%s became %s", d, got)
			}
		}
		after := answer.RetryAfter(d)
		n, err := strconv.ParseInt(after, 10, 64)
		if early := n < int64(math.MaxInt64/time.Second) && time.Duration(n)*time.Second < d; err != nil || n < 1 || early {
			t.Errorf("%s: got Retry-After %q", d, after)
		}
	}
}

// Limits of the same name on other resources get names of their own. In an answer with Retry-After, no effective window
// ends later.
func TestOtherResource(t *testing.T) {
	t.Parallel()
	of := func(entity, resource string, refused bool) weir.LimitStatus {
		return weir.LimitStatus{Entity: entity, Resource: resource, Limit: "rpm", Amount: 60, Burst: 60, Period: time.Minute, Refused: refused, RetryAfter: map[bool]time.Duration{true: 9 * time.Second}[refused], Available: 30}
	}
	policy, limit := answer.Fields("a", []weir.LimitStatus{of("a", "x", false), of("a", "y", false), of("b", "x", false), of("b", "y", true)})
	if want := `"rpm";q=60;w=60, "rpm@a/y";q=60;w=60, "rpm@b";q=60;w=60, "rpm@b/y";q=60;w=60`; policy != want {
		t.Errorf("got policy %s", policy)
	}
	if want := `"rpm@b/y";r=30;t=9, "rpm";r=30;t=9, "rpm@a/y";r=30;t=9, "rpm@b";r=30;t=9`; limit != want {
		t.Errorf("got limit %s", limit)
	}
}

func TestBinding(t *testing.T) {
	t.Parallel()
	low := weir.LimitStatus{Limit: "low", Available: 1, Burst: 10}
	high := weir.LimitStatus{Limit: "high", Available: 100, Burst: 100}
	refused := weir.LimitStatus{Limit: "refused", Available: 10, Burst: 10, Refused: true, RetryAfter: 1}
	shadow := weir.LimitStatus{Limit: "shadow", Burst: 10, Shadow: true, RetryAfter: 9}
	for want, of := range map[string][]weir.LimitStatus{
		"low": {high, low, shadow}, "refused": {low, refused, high}, "high": {high},
	} {
		if got := answer.Binding(of); got == nil || got.Limit != want {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
	if got := answer.Binding([]weir.LimitStatus{shadow}); got != nil {
		t.Errorf("got %+v", got)
	}
	if l, r, s := answer.Legacy([]weir.LimitStatus{shadow}); l+r+s != "" {
		t.Errorf("got %s %s %s", l, r, s)
	}
}
