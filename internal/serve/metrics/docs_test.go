package metrics_test

import (
	"context"
	"encoding/json"
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
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/dynamodb"
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

// scraped returns the metrics of a scrape that contains every metric, with their label names.
func scraped(t *testing.T) map[string]map[string]bool {
	t.Helper()
	r := setup(t, metrics.Config{})
	onDisk, err := disk.Open(filepath.Join(t.TempDir(), "store"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { onDisk.Close() })
	onDynamo, err := dynamodb.New(dynamodb.Config{Client: struct{ dynamodb.API }{}, Table: "weir"}) // makes no call
	if err != nil {
		t.Fatal(err)
	}
	r.m.Watch(r.lim, every{r.store, []store.Measured{r.store, onDisk, onDynamo}})

	cell := metrics.Cell{Name: "a", Contact: time.Now(), Shares: []metrics.CellShare{{Share: 1, Ratio: 1}}}
	r.m.Register(cell.Report)
	r.m.Register(metrics.ConfigFlow{}.Report)
	r.m.Register(metrics.MirrorAge(time.Second).Report)

	shadow := weir.PerHour("sph", 1)
	shadow.Enforce = weir.EnforceShadow
	r.limits(admin.Scope{}, weir.PerHour("rph", 2), shadow)
	for range 3 {
		r.take("alice", "api", weir.Tokens{"rph": 1, "sph": 1})
	}
	r.m.Requests(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	_, _ = r.m.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/m"}, func(context.Context, any) (any, error) { return nil, nil })

	found := make(map[string]map[string]bool)
	for _, line := range r.scrape() {
		m := regexp.MustCompile(`^(\w+)(\{(.*)\})? `).FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if found[m[1]] == nil {
			found[m[1]] = make(map[string]bool)
		}
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[3], -1) {
			found[m[1]][l[1]] = true
		}
	}
	return found
}

var (
	selectors = regexp.MustCompile(`\b((?:weir|go|process)_\w+)(?:\{([^}]*)\})?`)
	matchers  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`)
	groupings = regexp.MustCompile(`by \(([^)]*)\)`)
)

// TestNames checks that everything the dashboard and the alert rules query is in a scrape, and that every metric is in the
// guide.
func TestNames(t *testing.T) {
	t.Parallel()
	found := scraped(t)
	target := []string{"instance", "job"} // added by the scraper
	for _, expr := range slices.Concat(dashboard(t), alerts(t)) {
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
	guide, err := os.ReadFile("../../../docs/guide/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range found {
		family := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if strings.HasPrefix(name, "weir_") && !strings.Contains(string(guide), "`"+family) {
			t.Errorf("the guide does not tell of %s", family)
		}
	}
	for _, m := range regexp.MustCompile("`(weir_[a-z_]+)").FindAllStringSubmatch(string(guide), -1) {
		if found[m[1]] == nil && found[m[1]+"_count"] == nil {
			t.Errorf("the guide tells of %s, which is in no scrape", m[1])
		}
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

// alerts returns the expressions of all rules.
func alerts(t *testing.T) (exprs []string) {
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
			exprs = append(exprs, r.Expr)
			if r.Alert == "" || r.For == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %q lacks something", r.Alert)
			}
		}
	}
	if len(exprs) == 0 {
		t.Error("there are no rules")
	}
	return exprs
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
