package manifest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// older is what a weir that knows only rates reads of a record of limits.
type older struct {
	Limits        []olderLimit `json:"limits"`
	OnUnavailable string       `json:"on_unavailable"`
}

// olderLimit refuses what it does not know, as that weir did.
type olderLimit struct {
	Name    string         `json:"name"`
	Amount  int64          `json:"amount"`
	Period  olderPeriod    `json:"period"`
	Burst   int64          `json:"burst"`
	Enforce record.Enforce `json:"enforce"`
	Former  *struct {
		Amount int64       `json:"amount"`
		Period olderPeriod `json:"period"`
		Burst  int64       `json:"burst"`
	} `json:"former"`
	MaxDebt int64          `json:"max_debt"`
	Returns record.Returns `json:"returns"`
}

func (l *olderLimit) UnmarshalJSON(data []byte) error {
	type plain olderLimit
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode((*plain)(l))
}

// olderPeriod is a duration.
type olderPeriod string

var olderPeriods = regexp.MustCompile(`^[0-9]*(w|weeks?|d|days?|h|hr|hours?|m|min|minutes?|s|sec|seconds?|ms|us|µs|ns)$`)

func (p *olderPeriod) UnmarshalText(text []byte) error {
	if *p = olderPeriod(text); !olderPeriods.Match(text) {
		return fmt.Errorf("the period %q needs a unit: ms, s, min, h, d or w", text)
	}
	return nil
}

// TestOlderRefuses: on every store, a weir that knows only rates cannot read a record with a quota or a balance, at
// whichever level and in whichever place of a limit, so that it refuses to decide instead of deciding otherwise. What it
// knows, it reads.
func TestOlderRefuses(t *testing.T) {
	t.Parallel()
	onStores(t, testOlderRefuses)
	onRedis(t, testOlderRefuses)
}

func testOlderRefuses(t *testing.T, lim *weir.Limiter, st *faulty) {
	limit := func(text string) weir.Limit {
		l, err := weir.ParseLimit(text)
		must(t, err)
		return l
	}
	rate, quota, balance := limit("rpm:60/min:90"), limit("usd:5000/month@Europe/Berlin"), limit("credits:balance")
	was := rate.WithEnforce(25)
	was.Former = weir.Rate{Amount: 7, Window: quota.Window, Burst: 7}
	strict := rate
	strict.Strict, strict.MaxDebt = true, 5
	a := admin.New(lim)
	for _, c := range []struct {
		scope  admin.Scope
		limits []weir.Limit
		reads  bool
	}{
		{admin.Scope{Resource: "rates"}, []weir.Limit{rate, limit("jobs:3/10min"), limit("daily:1M/day")}, true},
		{admin.Scope{Resource: "more"}, []weir.Limit{strict, limit("x:1/day").WithEnforce(25)}, true},
		{admin.Scope{Entity: "team"}, []weir.Limit{rate}, true},
		{admin.Scope{}, []weir.Limit{rate, quota}, false},
		{admin.Scope{Resource: "quota"}, []weir.Limit{quota}, false},
		{admin.Scope{Resource: "balance"}, []weir.Limit{rate, balance}, false},
		{admin.Scope{Resource: "former"}, []weir.Limit{was}, false},
		{admin.Scope{Entity: "ann"}, []weir.Limit{quota}, false},
		{admin.Scope{Entity: "ann", Resource: "r"}, []weir.Limit{balance}, false},
		{admin.Scope{Entity: "ann", Resource: weir.TotalResource}, []weir.Limit{quota}, false},
		{admin.Scope{Resource: weir.GroupResource("g")}, []weir.Limit{quota}, false},
		{admin.Scope{Plan: "pro"}, []weir.Limit{quota}, false},
		{admin.Scope{Plan: "pro", Resource: "r"}, []weir.Limit{quota}, false},
	} {
		must(t, a.Limits.Set(t.Context(), c.scope, c.limits...))
		got, err := st.Get(t.Context(), record.Scope(c.scope).Key(weir.DefaultNamespace))
		must(t, err)
		var old older
		err = json.Unmarshal(got.Records[0].Value, &old)
		if read := err == nil && len(old.Limits) == len(c.limits); read != c.reads {
			t.Errorf("%+v: an older weir reads %+v of %s: %v", c.scope, old, got.Records[0].Value, err)
		}
	}
	// A resource's group, and the marks that there are totals and plans, are unreadable to it, too.
	must(t, a.Limits.SetGroup(t.Context(), "rates", "g"))
	for _, k := range []store.Key{record.Scope{Resource: "rates"}.Key(weir.DefaultNamespace), record.SystemKey(weir.DefaultNamespace)} {
		got, err := st.Get(t.Context(), k)
		must(t, err)
		if err := json.Unmarshal(got.Records[0].Value, new(older)); err == nil {
			t.Errorf("an older weir reads %s", got.Records[0].Value)
		}
	}
}
