package guard_test

import (
	"strings"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/guard"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/store/memory"
)

// TestKinds checks how limits of each kind are compared with the tier, and with what they were.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ tier, own, above, sudden string }{
		{"{capacity: 10}", "{capacity: 20}", "", ""},
		{"{capacity: 10}", "{capacity: 21}", "2.1 times", ""},
		{"{capacity: 10}", "{capacity: 10, burst: 30}", "3 times", ""},
		{"{capacity: 10}", "1000/h", "100 times", ""}, // its burst
		{"{capacity: 10}", "{capacity: 5}", "", ""},
		{"{capacity: 10}", "{capacity: 4}", "", "more than 50%"},
		{"100/month@UTC", "201/month@UTC", "2.01 times", ""},
		{"100/month@UTC", "49/month@UTC", "", "more than 50%"},
		{"100/month@UTC", "{capacity: 1}", "another kind", "more than 50%"},
		{"2slots", "5slots", "2.5 times", ""},
		{"{capacity: 10}", "{capacity: 10, enforce: 50%}", "not enforced", ""},
	} {
		lim, err := weir.New(weir.Config{Store: memory.New(nil)})
		must(t, err)
		t.Cleanup(func() { must(t, lim.Close()) })
		tier := "namespace: default\nresources: {r: {limits: {x: " + tt.tier + "}}}\n"
		_, err = manifest.Apply(t.Context(), lim, plan(t, lim, tier), manifest.ApplyOptions{})
		must(t, err)
		rules, err := guard.Read("f", []byte("above_tier: 2\ntighten_at_once: 50%\n"))
		must(t, err)
		broken, unstaged := rules.Check(plan(t, lim, tier+"entities: {e: {resources: {r: {limits: {x: "+tt.own+"}}}}}\n"))
		is := func(what string, got []string, want string) {
			if (len(got) == 0) != (want == "") || len(got) > 0 && !strings.Contains(got[0], want) {
				t.Errorf("%s below %s: %s %q, want %q", tt.own, tt.tier, what, got, want)
			}
		}
		is("above the tier", broken, tt.above)
		is("at once", unstaged, tt.sudden)
	}
}

// TestRead checks that mistakes in a file of rules are errors that name them.
func TestRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"above_tier: 0.5":       "above_tier is not a factor of at least 1: 0.5",
		"above_tear: 2":         "above_tear is unknown",
		"tighten_at_once: 100%": "not a percentage from 0% to 99%",
		"tighten_at_once: 50":   "not a percentage",
		"{}":                    "has no rule",
		"above_tier: .inf":      "not a factor",
		"above_tier: [1]":       "policy f: ",
	} {
		if _, err := guard.Read("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func plan(t *testing.T, lim *weir.Limiter, text string) *manifest.Plan {
	t.Helper()
	ms, err := manifest.Decode([]strictyaml.Source{{Name: "x", Text: []byte(text)}}, strictyaml.Options{})
	must(t, err)
	p, err := manifest.Make(t.Context(), lim, ms[0], manifest.PlanOptions{})
	must(t, err)
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
