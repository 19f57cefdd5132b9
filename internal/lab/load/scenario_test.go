package load_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/lab/load"
	"github.com/weirlimits/weir/internal/lab/report"
	"github.com/weirlimits/weir/internal/lab/traffic"
	"github.com/weirlimits/weir/internal/testkit/traffictest"
)

// Every scenario sets up its limits, runs in virtual time, in which nothing is ever late, and is removed again.
func TestScenarios(t *testing.T) {
	t.Parallel()
	refused := map[string][2]float64{ // in percent, from and to
		"reject-storm": {98, 99.9}, "thundering-herd": {70, 95}, "stress": {0, 60}, "llm-gateway": {0, 50},
	}
	for _, name := range traffic.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				afterEpoch()
				var meter load.Meter
				lim, st := limiter(t, &meter)
				p := traffictest.Plan(t, traffictest.Named(t, name), traffic.Settings{Seed: 1, For: traffic.Span(5 * time.Second)})
				ns := load.Scratch(name)
				must(t, load.SetUp(t.Context(), p, lim, ns))
				told := 0
				tally, err := load.Run(t.Context(), p, takes{load.Library{Limiter: lim.In(ns)}, time.Millisecond}, load.Options{
					Measures: func() map[string]float64 { return meter.Measures(st) },
					Progress: func(*load.Tally) { told++ }, Every: time.Second,
				})
				must(t, err)
				r := load.NewReport(p, tally)
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
				if name != "llm-production" && name != "slots" && (r.Store["calls"].Each < 1 || r.Store["calls"].Each > 2) {
					t.Errorf("calls of the store: %+v", r.Store)
				}
				r.Limits, err = load.Bounds(p, tally)
				must(t, err)
				checkVerdict(t, name, r)
				text, err := json.Marshal(r)
				must(t, err)
				if page := load.Page(r, nil); !bytes.Contains(page, []byte("<svg")) || bytes.Contains(page, []byte("NaN")) || bytes.Contains(text, []byte("NaN")) {
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

// What a call requests depends only on the seed and the call's number, so that the parts of a run add up to the whole.
func TestSameSeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := func(seed uint64, parts, callers int) []string {
			var all []string
			f := &fake{}
			f.acquire = func(c *traffic.Call) (load.Held, error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				text, err := json.Marshal(c)
				all = append(all, string(text))
				return load.Nothing{}, err
			}
			none := traffic.Span(0)
			p := traffictest.Plan(t, traffictest.Named(t, "llm-gateway"), traffic.Settings{Seed: seed, For: traffic.Span(20 * time.Second), WarmUp: &none, Callers: callers})
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
		p := traffictest.Plan(t, traffictest.Named(t, name), traffic.Settings{Seed: 1})
		lim, _ := limiter(t, new(load.Meter))
		must(t, load.SetUp(t.Context(), p, lim, "models"))
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
}

func near(t *testing.T, what string, got, want, off float64) {
	t.Helper()
	if got < want-off || got > want+off {
		t.Errorf("%s: %.2f, want %.2f", what, got, want)
	}
}

// checkVerdict checks that a scenario's limits were kept, and that its report ends with that.
func checkVerdict(t *testing.T, name string, r *load.Report) {
	t.Helper()
	compared := map[string]int{"llm-gateway": 1, "llm-production": 1, "slots": 0, "stress": 2}
	want, known := compared[name]
	if !known {
		want = 1
	}
	if len(r.Limits) != want {
		t.Errorf("%d limits are compared, want %d: %v", len(r.Limits), want, r.Limits)
	}
	for _, b := range r.Limits {
		if b.Admitted == 0 || b.Admitted > b.Allowed || name == "reject-storm" && b.Admitted < b.Allowed/2 {
			t.Errorf("%+v", b)
		}
	}
	if got := outcome(r); !strings.HasPrefix(got, "ok: every call was answered") || !strings.HasSuffix(got, " ms; no more was admitted than all limits allow together") {
		t.Errorf("the verdict is %q", got)
	}
}

// outcome returns the last lines of a report.
func outcome(r *load.Report) string {
	parts := r.Document().Parts
	text, _ := parts[len(parts)-1].(report.Text)
	return strings.Join(text.Lines, "\n")
}

// A target that admits everything does not keep the limits.
func TestLimitsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := traffictest.Plan(t, traffictest.Named(t, "thundering-herd"), traffic.Settings{For: traffic.Span(5 * time.Second)})
		tally, err := load.Run(t.Context(), p, takes{load.Nothing{}, time.Millisecond}, load.Options{})
		must(t, err)
		r := load.NewReport(p, tally)
		r.Limits, err = load.Bounds(p, tally)
		must(t, err)
		if got := outcome(r); !strings.Contains(got, "rps was not kept: 1000 tokens were admitted, of at most 601") {
			t.Errorf("the verdict is %q", got)
		}
	})
}
