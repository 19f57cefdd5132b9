package load_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/lab/load"
)

// Every scenario sets up its limits, runs in virtual time, in which nothing is ever late, and is removed again.
func TestScenarios(t *testing.T) {
	t.Parallel()
	refused := map[string][2]float64{ // in percent, from and to
		"reject-storm": {98, 99.9}, "thundering-herd": {70, 95}, "stress": {0, 60}, "llm-gateway": {0, 50},
	}
	for _, name := range load.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var meter load.Meter
				lim, st := limiter(t, &meter)
				p := plan(t, named(t, name), load.Settings{Seed: 1, For: load.Span(5 * time.Second)})
				ns := load.Scratch(name)
				must(t, p.SetUp(t.Context(), lim, ns))
				told := 0
				tally, err := load.Run(t.Context(), p, takes{load.Library{Limiter: lim.In(ns)}, time.Millisecond}, load.Options{
					Measures: func() map[string]float64 { return meter.Measures(st) },
					Progress: func(*load.Tally) { told++ }, Every: time.Second,
				})
				must(t, err)
				r := p.Report(tally)
				share := 100 * float64(r.Refused) / float64(r.Calls)
				if want := refused[name]; share < want[0] || share > want[1] {
					t.Errorf("refused %.2f %%, want %v", share, want)
				}
				if r.Calls == 0 || r.Failed > 0 || r.Missed > 0 || r.Overloaded || r.Due > 0 && r.Calls != r.Due || told < 4 {
					t.Errorf("%+v, told %d times", r, told)
				}
				if r.Late != nil && r.Late.Max > 0.001 { // the resolution of the histogram
					t.Errorf("late by %v in virtual time", r.Late)
				}
				if name != "llm-production" && (r.Store["calls"].Each < 1 || r.Store["calls"].Each > 2) {
					t.Errorf("calls of the store: %+v", r.Store)
				}
				text, err := json.Marshal(r)
				must(t, err)
				if page := load.HTML(r, nil); !bytes.Contains(page, []byte("<svg")) || bytes.Contains(page, []byte("NaN")) || bytes.Contains(text, []byte("NaN")) {
					t.Errorf("page %s\nreport %s", page, text)
				}
				must(t, load.TearDown(t.Context(), lim, ns))
				left, err := admin.New(lim).Namespaces.List(t.Context(), admin.NamespaceQuery{})
				must(t, err)
				if len(left.Items) != 1 {
					t.Errorf("left behind: %+v", left.Items)
				}
			})
		})
	}
}

// drawn counts calls by the value that of returns for each.
func drawn(p *load.Plan, n int, when func(int) time.Duration, of func(*load.Call) string) map[string]float64 {
	counts := make(map[string]float64)
	p.Draw(n, when, func(c *load.Call) { counts[of(c)] += 100 / float64(n) })
	return counts
}

func at(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func near(t *testing.T, what string, got, want, off float64) {
	t.Helper()
	if got < want-off || got > want+off {
		t.Errorf("%s: %.2f, want %.2f", what, got, want)
	}
}

// The traffic of stress has a whale, a spiker, and a tail that follows Zipf's law.
func TestStressDraws(t *testing.T) {
	t.Parallel()
	sc := named(t, "stress")
	sc.Entities[1].Spikes = nil
	p := plan(t, sc, load.Settings{Seed: 7})
	entities := drawn(p, 200_000, at(0), func(c *load.Call) string { return c.Entity })
	near(t, "whale", entities["entity-whale"], 50, 0.5)
	near(t, "spiker", entities["entity-spiker"], 3, 0.2)
	near(t, "rank 1", entities["entity-00000"], 18.1, 0.4)
	delete(entities, "entity-whale")
	delete(entities, "entity-spiker")
	shares := slices.Sorted(maps.Values(entities))
	slices.Reverse(shares)
	top := func(n int) (sum float64) {
		for _, s := range shares[:n] {
			sum += s / 0.47
		}
		return sum
	}
	near(t, "top 10", top(10), 76.9, 1)
	near(t, "top 100", top(100), 92.9, 1)
	near(t, "top 1000", top(1000), 98.2, 1)
	near(t, "distinct", float64(len(entities)), 2360, 250)
	calls := drawn(p, 100_000, at(0), func(c *load.Call) string { return string(c.Op) })
	near(t, "available", calls["available"], 100*5./105, 0.3)
	p.Draw(1000, at(0), func(c *load.Call) {
		if n := c.Tokens["tpm"]; c.Op == load.Acquire && (n < 100 || n > 1000 || c.Tokens["rpm"] != 1) {
			t.Fatalf("asks for %v", c.Tokens)
		}
	})
}

// Spikes depend on time: 0.1 a minute of half a minute each take up 4.8 % of the time, at any rate of calls.
func TestSpikesAreOfTime(t *testing.T) {
	t.Parallel()
	const length = 100 * time.Hour
	for _, n := range []int{3_600, 36_000} {
		p := plan(t, named(t, "stress"), load.Settings{Seed: 3, For: load.Span(length)})
		entities := drawn(p, n, func(i int) time.Duration { return length / time.Duration(n) * time.Duration(i) }, func(c *load.Call) string { return c.Entity })
		near(t, "spiker", entities["entity-spiker"], 4.76+95.24*0.03, 1)
	}
}

// What a call asks for depends only on the seed and the call's number, so that the parts of a run add up to the whole.
func TestSameSeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := func(seed uint64, parts, callers int) []string {
			var all []string
			f := &fake{}
			f.acquire = func(c *load.Call) (load.Held, error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				text, err := json.Marshal(c)
				all = append(all, string(text))
				return load.Nothing{}, err
			}
			none := load.Span(0)
			p := plan(t, named(t, "llm-gateway"), load.Settings{Seed: seed, For: load.Span(20 * time.Second), WarmUp: &none, Callers: callers})
			for part := range parts {
				_, err := load.Run(t.Context(), p, f, load.Options{Part: part, Parts: parts})
				must(t, err)
			}
			slices.Sort(all)
			return all
		}
		whole := asked(5, 1, 100)
		if len(whole) != 320 || !slices.Equal(whole, asked(5, 3, 1)) {
			t.Errorf("%d calls, not those of three parts", len(whole))
		}
		if slices.Equal(whole, asked(6, 1, 100)) {
			t.Error("another seed asks for the same")
		}
	})
}

func TestModels(t *testing.T) {
	t.Parallel()
	want := map[string][2]int64{
		"openai/gpt-4o": {500, 800_000}, "openai/gpt-4o-mini": {2000, 4e6}, "openai/o1": {100, 200_000}, "openai/o3-mini": {200, 400_000},
		"anthropic/claude-sonnet": {1000, 400_000}, "anthropic/claude-haiku": {2000, 4e6}, "google/gemini-pro": {360, 1e6}, "google/gemini-flash": {1500, 4e6},
	}
	for _, name := range []string{"llm-gateway", "llm-production"} {
		p := plan(t, named(t, name), load.Settings{Seed: 1})
		lim, _ := limiter(t, new(load.Meter))
		must(t, p.SetUp(t.Context(), lim, "models"))
		for model, n := range want {
			got, err := admin.New(lim.In("models")).Limits.Get(t.Context(), admin.Scope{Resource: model})
			must(t, err)
			for _, l := range got.Limits {
				if l.Period != time.Minute || l.Amount != map[string]int64{"rpm": n[0], "tpm": n[1]}[l.Name] {
					t.Errorf("%s %s: %v", name, model, l)
				}
			}
			if len(got.Limits) != 2 {
				t.Errorf("%s %s: %v", name, model, got.Limits)
			}
		}
	}
	p := plan(t, named(t, "llm-production"), load.Settings{Seed: 1})
	p.Draw(2000, at(0), func(c *load.Call) {
		if n := c.Adjust["tpm"] + 800; c.Adjust != nil && (n < 200 || n > 2000 || c.Tokens["tpm"] != 800) {
			t.Fatalf("%v adjusted by %v", c.Tokens, c.Adjust)
		}
	})
	kinds := drawn(p, 50_000, at(0), func(c *load.Call) string {
		if c.Op == load.Acquire && c.Adjust == nil {
			return "list-models"
		}
		return string(c.Op)
	})
	near(t, "chat", kinds["acquire"], 100*15./18, 1)
	near(t, "list-models", kinds["list-models"], 100*2./18, 1)
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	good := string(named(t, "stress").Text())
	for _, tt := range []struct{ old, with, want string }{
		{"users: 20", "users: 20\nuser: 1", "user"},
		{"users: 20", "users: 0", "users"},
		{"users: 20", "users: 20\nloop: round", "neither open nor closed"},
		{"users: 20", "users: 20\nshape: daily", "is not defined under shapes"},
		{"users: 20", "users: 20\nshapes: {x: [{for: 1s, users: 1}]}", "needs for, users and spawn"},
		{"users: 20", "users: 20\nbursts: {every: 1s}", "need every and calls"},
		{"wait: 0.01s..0.1s", "wait: 2s..1s", "neither a number nor a range"},
		{"pick: zipf", "pick: most", "is neither own nor zipf"},
		{"exponent: 1.5", "exponent: 1", "above 1"},
		{"entity-%05d", "entity-%s", "must contain one %d"},
		{"entity-%05d", "entity", "must contain one %d"},
		{"id: entity-whale", "id: whale-%d", "must contain one %d"},
		{"share: 50", "share: 0", "above 0"},
		{"for: 30s}", "for: 0s}", "spikes need"},
		{"op: available", "op: list", "neither acquire nor available"},
		{"tpm: 100..1000", "tpm: 0.5", "whole number"},
		{"weight: 100, tokens: {rpm: 1, tpm: 100..1000}", "weight: 100", "needs tokens"},
		{"weight: 100, tokens: {rpm: 1, tpm: 100..1000}", "weight: 100, tokens: {rpm: 1}, adjust: {tpm: 1}", "not among its tokens"},
		{"weight: 5", "weight: 0", "weight"},
		{"resources: [", "resources: []\nx: [", "x"},
	} {
		text := strings.Replace(good, tt.old, tt.with, 1)
		if text == good {
			t.Fatalf("no %q to replace", tt.old)
		}
		if _, err := load.Decode("bad", []byte(text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.with, err, tt.want)
		}
	}
	if _, err := load.Decode("empty", nil); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Error(err)
	}
	if _, err := load.Named("nothing"); err == nil || !strings.Contains(err.Error(), "scenarios are cascade, ") {
		t.Error(err)
	}
	for _, set := range []load.Settings{{Rate: 5, Loop: load.Closed}, {Shape: "none", Loop: "x"}, {Callers: -1}, {Rate: 1e9}, {Wait: &load.Range{}}} {
		if _, err := load.NewPlan(named(t, "simple"), set); err == nil {
			t.Errorf("%+v is fine", set)
		}
	}
}
