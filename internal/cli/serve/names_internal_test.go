package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/internal/fleet/configflow"
	"github.com/weirlimits/weir/internal/serve/envoy"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/internal/testkit/pagetest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/memory"
)

// every is a store that has the measures of all stores.
type every struct {
	store.Store
	of []store.Measured
}

func (e every) Measures() (all []store.Measure) {
	for _, m := range e.of {
		for _, me := range m.Measures() {
			if !slices.ContainsFunc(all, func(o store.Measure) bool { return o.Name == me.Name }) {
				all = append(all, me)
			}
		}
	}
	return all
}

// scrape returns the lines of a scrape.
func scrape(t *testing.T, m *metrics.Metrics) []string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	return strings.Split(w.Body.String(), "\n")
}

// newMetrics returns metrics that are closed after the test.
func newMetrics(t *testing.T, cfg metrics.Config) *metrics.Metrics {
	t.Helper()
	m, err := metrics.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// scraped returns the lines of a scrape that contains every metric, and the metrics with their label names.
func scraped(t *testing.T) (lines []string, found map[string]map[string]bool) {
	t.Helper()
	m := newMetrics(t, metrics.Config{})
	inMemory := memory.New(nil)
	lim, err := weir.New(weir.Config{Store: inMemory, Observer: m.Observer()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	onDisk, err := disk.Open(filepath.Join(t.TempDir(), "store"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { onDisk.Close() })
	onDynamo, err := dynamodb.New(dynamodb.Config{Client: struct{ dynamodb.API }{}, Table: "weir"}) // makes no call
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(lim, every{inMemory, []store.Measured{inMemory, onDisk, onDynamo}})
	m.Register(func(s *metrics.Scrape) {
		reportCell(s, "a", cells.Status{Contact: time.Now()}, func(string) int64 { return cells.Whole })
		reportEnvoy(s, new(envoy.Service))
		reportFlow(s, configflow.Status{})
		reportMirror(s, configflow.NewMirror(configflow.MirrorConfig{}))
	})

	shadow := weir.PerHour("sph", 1)
	shadow.Enforce = weir.EnforceShadow
	if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerHour("rph", 2), shadow); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err := lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rph": 1, "sph": 1}})
		if err != nil && !errors.Is(err, weir.ErrExceeded) {
			t.Fatal(err)
		}
	}
	m.Requests(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	_, _ = m.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/m"}, func(context.Context, any) (any, error) { return nil, nil })

	found = make(map[string]map[string]bool)
	lines = scrape(t, m)
	for _, line := range lines {
		parts := regexp.MustCompile(`^(\w+)(\{(.*)\})? `).FindStringSubmatch(line)
		if parts == nil {
			continue
		}
		if found[parts[1]] == nil {
			found[parts[1]] = make(map[string]bool)
		}
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(parts[3], -1) {
			found[parts[1]][l[1]] = true
		}
	}
	return lines, found
}

var (
	selectors = regexp.MustCompile(`\b((?:weir|go|process)_\w+)(?:\{([^}]*)\})?`)
	matchers  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`)
	groupings = regexp.MustCompile(`by \(([^)]*)\)`)
)

// TestNames checks that everything the dashboard and the alert rules query is in a scrape, and that the guide
// names no others.
func TestNames(t *testing.T) {
	t.Parallel()
	_, found := scraped(t)
	target := []string{"instance", "job"} // added by the scraper
	rules, _ := alerts(t)
	for _, expr := range slices.Concat(dashboard(t), rules) {
		labels := make(map[string]bool)
		for _, sel := range selectors.FindAllStringSubmatch(expr, -1) {
			if found[sel[1]] == nil {
				t.Errorf("%s is in no scrape: %s", sel[1], expr)
			}
			maps.Copy(labels, found[sel[1]])
			for _, m := range matchers.FindAllStringSubmatch(sel[2], -1) {
				if !found[sel[1]][m[1]] && !slices.Contains(target, m[1]) {
					t.Errorf("%s has no label %s: %s", sel[1], m[1], expr)
				}
			}
		}
		for _, by := range groupings.FindAllStringSubmatch(expr, -1) {
			for l := range strings.SplitSeq(by[1], ", ") {
				if !labels[l] && !slices.Contains(target, l) {
					t.Errorf("no label %s: %s", l, expr)
				}
			}
		}
	}
	guide, err := os.ReadFile("../../../docs/operate/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`(weir_[a-z_]+)").FindAllStringSubmatch(string(guide), -1) {
		if found[m[1]] == nil && found[m[1]+"_count"] == nil {
			t.Errorf("the guide names %s, which is in no scrape", m[1])
		}
	}
}

// TestReference checks that docs/reference/metrics.md has every metric.
func TestReference(t *testing.T) {
	t.Parallel()
	lines, metrics := scraped(t)
	labels := make(map[string][]string)
	for name, found := range metrics {
		family := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		for label := range found {
			if label != "le" && label != "quantile" && !slices.Contains(labels[family], label) {
				labels[family] = append(labels[family], label)
			}
		}
	}
	var b strings.Builder
	b.WriteString(`# Metrics

<!-- Generated: go test ./internal/cli/serve -run TestReference -update-pages. The next run overwrites edits made here. -->

Every metric of ` + "`weir serve`" + ` at /metrics. [The guide](../operate/observability.md) has alerts and the runbook. The usual metrics of
Go (go\_) and of the process (process\_) come with them.

| metric | kind | labels | |
|---|---|---|---|
`)
	help := ""
	for _, line := range lines {
		if text, ok := strings.CutPrefix(line, "# HELP weir_"); ok {
			_, help, _ = strings.Cut(text, " ")
		}
		if text, ok := strings.CutPrefix(line, "# TYPE weir_"); ok {
			name, kind, _ := strings.Cut("weir_"+text, " ")
			slices.Sort(labels[name])
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, kind, strings.Join(labels[name], ", "), help)
		}
	}
	pagetest.Equal(t, "metrics.md", b.String())
}

// TestRunbook checks that the guide has a paragraph of runbook for each alert, and for no other.
func TestRunbook(t *testing.T) {
	t.Parallel()
	_, names := alerts(t)
	guide, err := os.ReadFile("../../../docs/operate/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, runbook, _ := strings.Cut(string(guide), "\n## Runbook\n")
	var described []string
	for section := range strings.SplitSeq(runbook, "\n### ") {
		heading, text, _ := strings.Cut(section, "\n")
		for name := range strings.SplitSeq(heading, ", ") {
			if strings.HasPrefix(name, "Weir") && len(strings.TrimSpace(text)) > 80 {
				described = append(described, name)
			}
		}
	}
	slices.Sort(names)
	slices.Sort(described)
	if !slices.Equal(names, described) {
		t.Errorf("alerts: %q\nwith a paragraph: %q", names, described)
	}
}

// dashboard returns the expressions of all panels.
func dashboard(t *testing.T) (exprs []string) {
	t.Helper()
	var d struct {
		Panels []struct {
			ID      int
			Targets []struct{ Expr string }
			GridPos struct{ X, Y, W, H int }
		}
	}
	read(t, "dashboard.json", json.Unmarshal, &d)
	ids := make(map[int]bool)
	for _, p := range d.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d: twice, or too wide", p.ID)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	if len(exprs) == 0 {
		t.Error("the dashboard shows nothing")
	}
	return exprs
}

// TestCellAlerts checks that cells that may admit, or have admitted, 1.5 times the limits are a warning, and 3 times critical.
func TestCellAlerts(t *testing.T) {
	t.Parallel()
	exprs, names := alerts(t)
	for name, want := range map[string]string{
		"WeirCellsOver":            "(weir_cell_over_admission_ratio) >= 1.5",
		"WeirCellsFarOver":         "(weir_cell_over_admission_ratio) >= 3",
		"WeirCellsAdmittedOver":    "(weir_cell_admitted_ratio) >= 1.5",
		"WeirCellsAdmittedFarOver": "(weir_cell_admitted_ratio) >= 3",
		"WeirCellLimitsDiffer":     "(weir_cell_limits_differ) > 0",
	} {
		if i := slices.Index(names, name); i < 0 || !strings.HasSuffix(exprs[i], want) {
			t.Errorf("%s is not raised at %s", name, want)
		}
	}
}

// alerts returns the expressions and the names of all rules.
func alerts(t *testing.T) (exprs, names []string) {
	t.Helper()
	var f struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	read(t, "alerts.yaml", yaml.Unmarshal, &f)
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			exprs, names = append(exprs, r.Expr), append(names, r.Alert)
			if r.Alert == "" || r.For == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %q lacks something", r.Alert)
			}
		}
	}
	if len(exprs) == 0 {
		t.Error("there are no rules")
	}
	return exprs, names
}

func read(t *testing.T, name string, unmarshal func([]byte, any) error, v any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "observability", name))
	if err == nil {
		err = unmarshal(text, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
