package weir_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

func TestParseLimit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]weir.Limit{
		"rpm:100/min":          weir.PerMinute("rpm", 100),
		"tpm:50K/min:75K":      weir.PerMinute("tpm", 50_000).WithBurst(75_000),
		"tpm:50k/minute":       weir.PerMinute("tpm", 50_000),
		"jobs:3/10min":         {Name: "jobs", Amount: 3, Period: 10 * time.Minute, Burst: 3},
		"uploads:1M/30d":       {Name: "uploads", Amount: 1_000_000, Period: 30 * 24 * time.Hour, Burst: 1_000_000},
		"rps:5/s:1":            weir.PerSecond("rps", 5).WithBurst(1),
		"x:1/100ms":            {Name: "x", Amount: 1, Period: 100 * time.Millisecond, Burst: 1},
		"x:1/w":                {Name: "x", Amount: 1, Period: 7 * 24 * time.Hour, Burst: 1},
		"x:1/366days":          {Name: "x", Amount: 1, Period: 366 * 24 * time.Hour, Burst: 1},
		"a/b c:2/h:3":          weir.PerHour("a/b c", 2).WithBurst(3),
		"a:b:2/h":              weir.PerHour("a:b", 2),
		"a:1/min:2/h:3":        weir.PerHour("a:1/min", 2).WithBurst(3),
		"x:1/d:1000000000000K": weir.PerDay("x", 1).WithBurst(weir.MaxTokens),
	} {
		if got, err := weir.ParseLimit(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	for text, reason := range map[string]string{
		"":                                  "no amount",
		"rpm":                               "no amount",
		"rpm:100":                           "no period",
		"rpm:/min":                          "not a number",
		"rpm:x/min":                         "whole number",
		"rpm:-1/min":                        "negative",
		"rpm:1.5K/min":                      "whole number",
		"rpm:1,000/min":                     "whole number",
		"rpm:K/min":                         "not a number",
		"rpm:99999999999999999999/min":      "too large",
		"rpm:9223372036854775807K/min":      "too large",
		"rpm:1/":                            "needs a unit",
		"rpm:1/0min":                        "positive",
		"rpm:1/fortnight":                   "needs a unit",
		"rpm:1/99999999999999999999d":       "too long",
		"rpm:1/367d":                        "366 days",
		"rpm:1/min:0":                       "burst of 0",
		"rpm:1/min:x":                       "bad burst",
		"rpm:1/min:":                        "bad burst",
		"rpm:0/min":                         "amount: must be positive",
		"rpm:0/min:5":                       "amount: must be positive",
		":1/min":                            "limit name: must not be empty",
		"wcu:1/min":                         "reserved",
		"_default_:1/min":                   "reserved",
		"rpm:5M/s":                          "coarser unit",
		"rpm:1/min:1000000000000001":        "burst: must be at most",
		"rpm:1000000000000001/min":          "amount: must be at most",
		"a\nb:1/min":                        "control character",
		strings.Repeat("x", 257) + ":1/min": "257 bytes",
	} {
		_, err := weir.ParseLimit(text)
		var bad *weir.ConfigError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: got %v, want something about %q", text, err, reason)
		}
	}
}

// Each bound names its field. A negative number that becomes positive in millitokens is still negative.
func TestLimitBounds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := weir.PerMinute("rpm", 10)
	for _, tt := range []struct {
		field string
		spoil func(*weir.Limit)
	}{
		{"limit name", func(l *weir.Limit) { l.Name = "" }},
		{"limit name", func(l *weir.Limit) { l.Name = "wcu" }},
		{"limit name", func(l *weir.Limit) { l.Name = "a\xff" }},
		{"limit rpm: amount", func(l *weir.Limit) { l.Amount = 0 }},
		{"limit rpm: amount", func(l *weir.Limit) { l.Amount = -1 }},
		{"limit rpm: amount", func(l *weir.Limit) { l.Amount = math.MinInt64 }},
		{"limit rpm: amount", func(l *weir.Limit) { l.Amount, l.Burst = -18446744073709551, 1 }},
		{"limit rpm: amount", func(l *weir.Limit) { l.Amount = weir.MaxTokens + 1 }},
		{"limit rpm: amount", func(l *weir.Limit) { l.Amount = math.MaxInt64 }},
		{"limit rpm: period", func(l *weir.Limit) { l.Period = 0 }},
		{"limit rpm: period", func(l *weir.Limit) { l.Period = -time.Second }},
		{"limit rpm: period", func(l *weir.Limit) { l.Period = 366*24*time.Hour + 1 }},
		{"limit rpm: burst", func(l *weir.Limit) { l.Burst = -1 }},
		{"limit rpm: burst", func(l *weir.Limit) { l.Burst = -18446744073709551 }},
		{"limit rpm: burst", func(l *weir.Limit) { l.Burst = weir.MaxTokens + 1 }},
		{"limit rpm: rate", func(l *weir.Limit) { l.Period = 1 }},
	} {
		l := good
		tt.spoil(&l)
		wantConfigError(t, b.admin.Limits.Set(b.ctx, admin.Scope{}, l), tt.field)
		_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api", Limits: []weir.Limit{l}})
		wantConfigError(t, err, tt.field)
	}
	wantConfigError(t, b.admin.Limits.Set(b.ctx, admin.Scope{}), "limits")
	wantConfigError(t, b.admin.Limits.Set(b.ctx, admin.Scope{}, good, good), "limits")
	_, err := b.admin.Limits.Get(b.ctx, admin.Scope{})
	wantErr(t, err, weir.ErrNotFound)

	for i, l := range []weir.Limit{ // at the bounds
		{Name: "rpm", Amount: 1, Period: 366 * 24 * time.Hour, Burst: weir.MaxTokens},
		{Name: "rpm", Amount: 4_000_000, Period: time.Second},
		{Name: "rpm", Amount: 4_000_000 * 366 * 24 * 3600, Period: 366 * 24 * time.Hour},
		{Name: "rpm", Amount: 1, Period: time.Microsecond},
	} {
		must(t, b.admin.Limits.Set(b.ctx, admin.Scope{}, l))
		b.take(fmt.Sprint("e", i), one)
	}
}

var anyLimit = rapid.Custom(func(t *rapid.T) weir.Limit {
	l := weir.Limit{
		Name: rapid.StringN(1, 12, 64).Filter(func(s string) bool {
			return s != "_" && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
		}).Draw(t, "name"),
		Period: time.Duration(rapid.Int64Range(1000, int64(365*24*time.Hour)).Draw(t, "period")),
	}
	if rapid.Bool().Draw(t, "round") {
		l.Period = l.Period.Truncate(time.Hour) + time.Hour
	}
	most := max(1, 4*l.Period.Microseconds()) // 4 million a second
	l.Amount = rapid.Int64Range(1, most).Draw(t, "amount")
	if most > 2_000_000 && rapid.Bool().Draw(t, "millions") {
		l.Amount = (l.Amount/2_000_000 + 1) * 1_000_000
	}
	l.Burst = rapid.OneOf(rapid.Just(l.Amount), rapid.Int64Range(1, weir.MaxTokens)).Draw(t, "burst")
	return l
})

func TestLimitRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit.Draw(t, "limit")
		if back, err := weir.ParseLimit(l.String()); err != nil || back != l {
			t.Fatalf("%s: got %+v, %v", l, back, err)
		}
		for _, v := range []any{l, l.String()} { // both forms
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			var back weir.Limit
			if err := json.Unmarshal(text, &back); err != nil || back != l {
				t.Fatalf("%s: got %+v, %v", text, back, err)
			}
		}
	})
}

func TestLimitJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(weir.PerMinute("rpm", 100))
	if want := `{"name":"rpm","amount":100,"period":"min","burst":100}`; err != nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
	var l weir.Limit
	must(t, json.Unmarshal([]byte(`{"name":"rpm","amount":100,"period":"2h"}`), &l))
	if want := (weir.Limit{Name: "rpm", Amount: 100, Period: 2 * time.Hour, Burst: 100}); l != want {
		t.Errorf("got %+v", l)
	}
	for _, text := range []string{
		`{"name":"rpm","amount":1.5,"period":"min"}`, `{"name":"rpm","amount":1,"period":"min","typo":1}`,
		`{"name":"rpm","amount":1,"period":"fortnight"}`, `{"name":"rpm","amount":1}`, `"rpm"`, `7`, `{"name":"rpm","amount":1e30,"period":"min"}`,
	} {
		var bad *weir.ConfigError
		if err := json.Unmarshal([]byte(text), &l); !errors.As(err, &bad) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func FuzzParseLimit(f *testing.F) {
	for _, seed := range []string{"rpm:100/min", "tpm:50K/min:75K", "a:b:3/10min:1M", "x:1/ns", ":::", "x:1/366d:1000000000M"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := weir.ParseLimit(text)
		if err != nil {
			var bad *weir.ConfigError
			if !errors.As(err, &bad) {
				t.Fatalf("%q: %v is no ConfigError", text, err)
			}
			return
		}
		if back, err := weir.ParseLimit(l.String()); err != nil || back != l {
			t.Fatalf("%q is %+v, whose text %q is %+v, %v", text, l, l.String(), back, err)
		}
		b := setup(t)
		_, err = b.Acquire(b.ctx, weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{l.Name: 1}, Limits: []weir.Limit{l}})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
