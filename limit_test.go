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
		"rpm:100/min":                  weir.PerMinute("rpm", 100),
		"tpm:50K/min:75K":              weir.PerMinute("tpm", 50_000).WithBurst(75_000),
		"tpm:50k/minute":               weir.PerMinute("tpm", 50_000),
		"jobs:3/10min":                 {Name: "jobs", Amount: 3, Period: 10 * time.Minute, Burst: 3},
		"uploads:1M/30d":               {Name: "uploads", Amount: 1_000_000, Period: 30 * 24 * time.Hour, Burst: 1_000_000},
		"rps:5/s:1":                    weir.PerSecond("rps", 5).WithBurst(1),
		"x:1/100ms":                    {Name: "x", Amount: 1, Period: 100 * time.Millisecond, Burst: 1},
		"x:1/w":                        {Name: "x", Amount: 1, Period: 7 * 24 * time.Hour, Burst: 1},
		"x:1/366days":                  {Name: "x", Amount: 1, Period: 366 * 24 * time.Hour, Burst: 1},
		"a/b c:2/h:3":                  weir.PerHour("a/b c", 2).WithBurst(3),
		"a:b:2/h":                      weir.PerHour("a:b", 2),
		"a:1/min:2/h:3":                weir.PerHour("a:1/min", 2).WithBurst(3),
		"usd:5000/month@Europe/Berlin": quota(t, "usd", 5000, "month@Europe/Berlin"),
		"a/b:1M/week+sun@UTC":          quota(t, "a/b", 1_000_000, "week+sun@UTC"),
		"a:1/h:2/day@UTC":              quota(t, "a:1/h", 2, "day@UTC"),
		"credits:balance":              {Name: "credits", Balance: true},
		"a:b:balance":                  {Name: "a:b", Balance: true},
		"parallel:20slots":             {Name: "parallel", Slots: 20, Heal: 30 * time.Second},
		"a:b:1slot/16s":                {Name: "a:b", Slots: 1, Heal: 16 * time.Second},
		"a:1/min:2Kslots/hour":         {Name: "a:1/min", Slots: 2000, Heal: time.Hour},
		"x:1/d:1000000000000K":         weir.PerDay("x", 1).WithBurst(weir.MaxTokens),
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
		"usd:5000/month":                    "write month@UTC for one of the calendar, or 30d for 30 days",
		"usd:5000/quarter":                  "write quarter@UTC",
		"usd:5000/month+15":                 "write month@UTC",
		"usd:5000/month@Mars":               "time zone \"Mars\" is unknown",
		"usd:5000/month+32@UTC":             "write 1 to 31",
		"usd:5000/month@UTC:6000":           "burst: must be the amount",
		"usd:100000000000000/month@UTC":     "count in a coarser unit",
		"usd:5000/2month@UTC":               "is not hour, day, week, month",
		"usd:5000/@UTC":                     "is not hour, day, week, month",
		":balance":                          "limit name: must not be empty",
		"balance":                           "no amount",
		"parallel:0slots":                   "slots: must be positive",
		"parallel:-1slots":                  "bad number of slots \"-1\": must not be negative",
		"parallel:slots":                    "not a number",
		"parallel:20slots/15s":              "heal: must be from 16 seconds to 1 hour: 15s",
		"parallel:20slots/61min":            "heal: must be from 16 seconds to 1 hour",
		"parallel:20slots/day@UTC":          "must be a time from 16s to 1h",
		"parallel:20slots/":                 "needs a unit",
		"parallel:20slots/min:30":           "has a burst, which slots and balances do not have",
		"parallel:1000000000000001slots":    "slots: must be at most",
		"20slots":                           "no amount",
		strings.Repeat("x", 257) + ":1/min": "257 bytes",
	} {
		_, err := weir.ParseLimit(text)
		if _, ok := errors.AsType[*weir.ConfigError](err); !ok || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: got %v, want something about %q", text, err, reason)
		}
	}
}

func slots(name string, n int64, heal time.Duration) weir.Limit {
	return weir.Limit{Name: name, Slots: n, Heal: heal}
}

func quota(t testing.TB, name string, amount int64, window string) weir.Limit {
	t.Helper()
	var w weir.Window
	if err := w.UnmarshalText([]byte(window)); err != nil {
		t.Fatal(err)
	}
	return weir.Limit{Name: name, Amount: amount, Burst: amount, Window: w}
}

// Each bound names its field. A negative number that becomes positive in millitokens is still negative.
func TestLimitBounds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := weir.PerMinute("rpm", 10)
	month := quota(t, "rpm", 1, "month@UTC").Window
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
		{"limit rpm: window", func(l *weir.Limit) { l.Window = month }},
		{"limit rpm: burst", func(l *weir.Limit) { l.Period, l.Window, l.Burst = 0, month, l.Amount+1 }},
		{"limit rpm: amount", func(l *weir.Limit) { l.Balance = true }},
		{"limit rpm: period", func(l *weir.Limit) { *l = weir.Limit{Name: "rpm", Period: 1, Balance: true} }},
		{"limit rpm: period", func(l *weir.Limit) { *l = weir.Limit{Name: "rpm", Window: month, Balance: true} }},
		{"limit rpm: burst", func(l *weir.Limit) { *l = weir.Limit{Name: "rpm", Burst: 1, Balance: true} }},
		{"limit rpm: returns", func(l *weir.Limit) { *l = weir.Limit{Name: "rpm", Strict: true, Balance: true} }},
		{"limit rpm: enforce", func(l *weir.Limit) { *l = weir.Limit{Name: "rpm", Enforce: weir.EnforceShadow, Balance: true} }},
		{"limit rpm: amount", func(l *weir.Limit) { l.Slots = 1 }},
		{"limit rpm: amount", func(l *weir.Limit) { l.Heal = time.Minute }},
		{"limit rpm: slots", func(l *weir.Limit) { *l = slots("rpm", 0, time.Minute) }},
		{"limit rpm: slots", func(l *weir.Limit) { *l = slots("rpm", -18446744073709551, 0) }},
		{"limit rpm: slots", func(l *weir.Limit) { *l = slots("rpm", weir.MaxTokens+1, 0) }},
		{"limit rpm: heal", func(l *weir.Limit) { *l = slots("rpm", 1, 16*time.Second-1) }},
		{"limit rpm: heal", func(l *weir.Limit) { *l = slots("rpm", 1, time.Hour+1) }},
		{"limit rpm: heal", func(l *weir.Limit) { *l = slots("rpm", 1, -time.Minute) }},
		{"limit rpm: period", func(l *weir.Limit) { *l = slots("rpm", 1, 0); l.Period = time.Minute }},
		{"limit rpm: period", func(l *weir.Limit) { *l = slots("rpm", 1, 0); l.Window = month }},
		{"limit rpm: period", func(l *weir.Limit) { *l = slots("rpm", 1, 0); l.Balance = true }},
		{"limit rpm: burst", func(l *weir.Limit) { *l = slots("rpm", 1, 0); l.Burst = 1 }},
		{"limit rpm: former", func(l *weir.Limit) { *l = slots("rpm", 1, 0); l.Former = good.Rate() }},
		{"limit rpm: slots", func(l *weir.Limit) { l.Enforce, l.Former = 5, slots("rpm", -1, 0).Rate() }},
		{"limit rpm: heal", func(l *weir.Limit) { l.Enforce, l.Former = 5, slots("rpm", 1, 1).Rate() }},
		{"limit rpm: max_debt", func(l *weir.Limit) { *l = slots("rpm", 1, 0); l.MaxDebt = 1 }},
		{"limit rpm: returns", func(l *weir.Limit) { *l = slots("rpm", 1, 0); l.Strict = true }},
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
	switch rapid.SampledFrom([]string{"rate", "rate", "quota", "balance", "slots"}).Draw(t, "kind") {
	case "quota":
		unit := rapid.SampledFrom([]string{"day", "week+wed", "month", "month+15", "quarter", "year"}).Draw(t, "unit")
		zone := rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"})
		var w weir.Window
		if err := w.UnmarshalText([]byte(unit + "@" + zone.Draw(t, "zone"))); err != nil {
			t.Fatal(err)
		}
		amount := rapid.Int64Range(1, 100_000_000_000).Draw(t, "amount")
		return weir.Limit{Name: l.Name, Amount: amount, Burst: amount, Window: w}
	case "balance":
		return weir.Limit{Name: l.Name, Balance: true}
	case "slots":
		heal := rapid.Int64Range(int64(16*time.Second), int64(time.Hour)).Draw(t, "heal")
		if rapid.Bool().Draw(t, "round") {
			heal -= heal % int64(time.Second)
		}
		return slots(l.Name, rapid.Int64Range(1, weir.MaxTokens).Draw(t, "slots"), time.Duration(heal))
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
	text, err = json.Marshal(slots("parallel", 20, 0))
	if want := `{"name":"parallel","slots":20,"heal":"30s"}`; err != nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
	must(t, json.Unmarshal([]byte(`{"name":"parallel","slots":20}`), &l))
	if l != slots("parallel", 20, 30*time.Second) {
		t.Errorf("got %+v", l)
	}
	must(t, json.Unmarshal([]byte(`{"name":"parallel","slots":0,"period":"min"}`), &l)) // Validate is for bounds
	wantConfigError(t, l.Validate(), "limit parallel: period")
	for _, text := range []string{
		`{"name":"rpm","amount":1.5,"period":"min"}`, `{"name":"rpm","amount":1,"period":"min","typo":1}`,
		`{"name":"rpm","amount":1,"period":"fortnight"}`, `{"name":"rpm","amount":1}`, `"rpm"`, `7`, `{"name":"p","slots":1,"heal":"day@UTC"}`, `{"name":"p","slots":1,"heal":30}`, `{"name":"rpm","amount":1e30,"period":"min"}`,
	} {
		var bad *weir.ConfigError
		if err := json.Unmarshal([]byte(text), &l); !errors.As(err, &bad) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func FuzzParseLimit(f *testing.F) {
	for _, seed := range []string{"rpm:100/min", "tpm:50K/min:75K", "a:b:3/10min:1M", "x:1/ns", ":::", "x:1/366d:1000000000M", "usd:5K/month+15@Europe/Berlin", "a:balance", "p:20slots/min"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := weir.ParseLimit(text)
		if err != nil {
			if _, ok := errors.AsType[*weir.ConfigError](err); !ok {
				t.Fatalf("%q: %v is no ConfigError", text, err)
			}
			return
		}
		if back, err := weir.ParseLimit(l.String()); err != nil || back != l {
			t.Fatalf("%q is %+v, whose text %q is %+v, %v", text, l, l.String(), back, err)
		}
		b := setup(t)
		_, err = b.Acquire(b.ctx, weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{l.Name: 1}, Limits: []weir.Limit{l}})
		own := l.Balance || l.Slots > 0 // a request cannot bring them
		if bad := new(weir.ConfigError); own != errors.As(err, &bad) || err != nil && !own {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
