package api_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/store/memory"
)

// every has a field of each type that requests use.
type every struct {
	Text     string              `json:"text" values:"a,b"`
	Flag     bool                `json:"flag"`
	Maybe    *bool               `json:"maybe"`
	Number   int                 `json:"number" range:"1..5"`
	After    *int                `json:"after"`
	Big      int64               `json:"big" range:"1.."`
	Seed     uint64              `json:"seed"`
	Rate     *float64            `json:"rate"`
	Share    float64             `json:"share" range:"0..1"`
	Limit    weir.Limit          `json:"limit"`
	Time     time.Time           `json:"time"`
	Span     *time.Duration      `json:"span" range:"1s..1h"`
	Words    []string            `json:"words"`
	Metadata map[string]string   `json:"metadata"`
	Tokens   weir.Tokens         `json:"tokens"`
	Limits   []weir.Limit        `json:"limits"`
	Answer   *weir.OnUnavailable `json:"answer"`
	Near     *admin.Thresholds   `json:"near"`
}

func TestFieldSet(t *testing.T) {
	t.Parallel()
	limit, err := weir.ParseLimit("rpm:5/min")
	if err != nil {
		t.Fatal(err)
	}
	day := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		field string
		texts []string
		want  every
		err   string
	}{
		{field: "text", texts: []string{"a"}, want: every{Text: "a"}},
		{field: "text", texts: []string{"c"}, err: `text: must be a or b: "c"`},
		{field: "flag", texts: []string{"true"}, want: every{Flag: true}},
		{field: "flag", texts: []string{"yes"}, err: "flag: must be true or false"},
		{field: "maybe", texts: []string{"false"}, want: every{Maybe: new(false)}},
		{field: "number", texts: []string{"5"}, want: every{Number: 5}},
		{field: "number", texts: []string{"6"}, err: `number: must be between 1 and 5: "6"`},
		{field: "number", texts: []string{"few"}, err: `number: must be a whole number: "few"`},
		{field: "big", texts: []string{"9007199254740993"}, want: every{Big: 9_007_199_254_740_993}},
		{field: "big", texts: []string{"0"}, err: `big: must be at least 1: "0"`},
		{field: "seed", texts: []string{"18446744073709551615"}, want: every{Seed: math.MaxUint64}},
		{field: "seed", texts: []string{"-1"}, err: `seed: must be a number from 0: "-1"`},
		{field: "rate", texts: []string{"2.5"}, want: every{Rate: new(2.5)}},
		{field: "rate", texts: []string{"5%"}, err: `rate: must be a number: "5%"`},
		{field: "rate", texts: []string{"NaN"}, err: `rate: must be a number: "NaN"`},
		{field: "share", texts: []string{"5%"}, want: every{Share: 0.05}},
		{field: "share", texts: []string{"0.05"}, want: every{Share: 0.05}},
		{field: "share", texts: []string{"101%"}, err: `share: must be between 0 and 1: "101%"`},
		{field: "limit", texts: []string{"rpm:5/min"}, want: every{Limit: limit}},
		{field: "limit", texts: []string{"rpm"}, err: "rpm"},
		{field: "after", texts: []string{"-7"}, want: every{After: new(-7)}},
		{field: "time", texts: []string{"2026-11-21"}, want: every{Time: day}},
		{field: "time", texts: []string{"2026-11-21T00"}, want: every{Time: day}},
		{field: "time", texts: []string{"yesterday"}, err: `time: "yesterday" is not a time`},
		{field: "span", texts: []string{"2s"}, want: every{Span: new(2 * time.Second)}},
		{field: "span", texts: []string{"2"}, err: `span: must be a duration such as 30s or 72h: "2"`},
		{field: "span", texts: []string{"2h"}, err: `span: must be between 1s and 1h: "2h"`},
		{field: "words", texts: []string{"a", "b"}, want: every{Words: []string{"a", "b"}}},
		{field: "metadata", texts: []string{"a=1", "b=x=y"}, want: every{Metadata: map[string]string{"a": "1", "b": "x=y"}}},
		{field: "metadata", texts: []string{"a"}, err: "is not KEY=VALUE"},
		{field: "tokens", texts: []string{"rpm=1", "tpm=0"}, want: every{Tokens: weir.Tokens{"rpm": 1, "tpm": 0}}},
		{field: "tokens", texts: []string{"rpm=1", "rpm=2"}, err: "rpm is given twice"},
		{field: "tokens", texts: []string{"rpm=-1"}, err: "is not a whole number"},
		{field: "limits", texts: []string{"rpm:5/min"}, want: every{Limits: []weir.Limit{limit}}},
		{field: "answer", texts: []string{"default"}, want: every{Answer: new(weir.OnUnavailableDefault)}},
		{field: "near", texts: []string{"80,95"}, want: every{Near: &admin.Thresholds{80, 95}}},
	} {
		t.Run(tt.field+" "+strings.Join(tt.texts, " "), func(t *testing.T) {
			t.Parallel()
			var got every
			var err error
			for _, f := range api.FieldsOf(reflect.TypeFor[every]()) {
				for _, text := range tt.texts {
					if f.Name == tt.field && err == nil {
						err = f.Set(&got, text)
					}
				}
			}
			switch {
			case tt.err == "" && err != nil:
				t.Fatal(err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Fatalf("error %v, want %s", err, tt.err)
			case tt.err != "":
				return
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// Every operation has a route of its own, and its path names members of its request.
func TestOperations(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, o := range api.Operations {
		route := o.Method + " " + o.Path
		if seen[route] || seen[o.Name] || o.Name == "" {
			t.Errorf("%s %s is declared twice", o.Name, route)
		}
		seen[route], seen[o.Name] = true, true
		for _, f := range o.Fields() {
			if in := strings.Contains(o.Path, "{"+f.Name+"}"); in != (f.In == "path") {
				t.Errorf("%s: %s is in %q", o.Name, f.Name, f.In)
			}
			if f.In == "" && (o.Method == "GET" || o.Method == "DELETE") {
				t.Errorf("%s: %s is in the body of %s", o.Name, f.Name, o.Method)
			}
		}
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim, err := weir.New(weir.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	c := api.Local{Limiter: lim}
	e, found, err := api.CreateEntity.Call(t.Context(), c, &api.NewEntity{ID: "alice", Name: "Alice"})
	if err != nil || !found || e.Name != "Alice" || e.Created.IsZero() {
		t.Fatalf("%+v, %v, %v", e, found, err)
	}
	if _, found, err := api.DeleteEntity.Call(t.Context(), c, &api.EntityDeletion{ID: "alice"}); err != nil || found {
		t.Errorf("a deletion returns %v, %v", found, err)
	}
	if _, _, err := api.ListChildren.Call(t.Context(), c, &api.ChildrenQuery{ID: "alice"}); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("children of nobody: %v", err)
	}
	none := &api.LimitsChange{OnUnavailable: new(weir.OnUnavailableDefault)}
	if l, found, err := api.SetLimits.Call(t.Context(), c, none); err != nil || found || l != nil {
		t.Errorf("nothing is set, but found %+v, %v, %v", l, found, err)
	}
	wrong := &api.LimitsChange{
		Scope: api.Scope{Resource: "gpt-4"}, Limits: []weir.Limit{weir.PerMinute("rpm", 1)}, Group: new("a b\x00"),
	}
	if _, _, err := api.SetLimits.Call(t.Context(), c, wrong); err == nil {
		t.Error("a group with such a name was set")
	}
	if l, _, err := api.ShowLimits.Call(t.Context(), c, &wrong.Scope); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("half of a request that was refused is in force: %+v, %v", l, err)
	}
}

type described struct {
	First  string `json:"first"`
	Second string `json:"second"`
	Third  string `json:"third"`
}

var members = api.Describe("api_test", "described\n\tfirst   one\n\tsecond  two {WORDS},\n\t        on two lines\n")

func TestDescribe(t *testing.T) {
	t.Parallel()
	if members != 2 {
		t.Errorf("%d members", members)
	}
	want := []string{"one", "two {WORDS}, on two lines", ""}
	for i, f := range api.FieldsOf(reflect.TypeFor[described]()) {
		if f.Doc != want[i] {
			t.Errorf("%s is %q, want %q", f.Name, f.Doc, want[i])
		}
	}
}

// The longest duration, which means never, is not turned into a negative one.
func TestLongSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]time.Duration{
		math.MaxInt64: math.MaxInt64, math.MaxInt64 - 1: math.MaxInt64, math.MaxInt64 / 2: math.MaxInt64/2 + time.Millisecond,
	} {
		text, err := json.Marshal(api.Seconds(d))
		if err != nil {
			t.Fatal(err)
		}
		var back api.Seconds
		if err := json.Unmarshal(text, &back); err != nil || time.Duration(back) < d || time.Duration(back) > want {
			t.Errorf("%d as %s is %d, %v", d, text, back, err)
		}
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0", 1: "0.001", 1500 * time.Millisecond: "1.5", time.Hour + 1: "3600.001"} {
		if got, err := json.Marshal(api.Seconds(d)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", d, got, err, want)
		}
		var back api.Seconds
		if err := json.Unmarshal([]byte(want), &back); err != nil || time.Duration(back) != (d+time.Millisecond-1).Truncate(time.Millisecond) {
			t.Errorf("%s: %s, %v", want, time.Duration(back), err)
		}
	}
}
