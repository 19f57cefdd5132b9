package metrics_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a limiter that reports to its metrics.
type rig struct {
	*testing.T
	m     *metrics.Metrics
	lim   *weir.Limiter
	store *faulty
}

// faulty is a store that can be made to fail.
type faulty struct {
	*memory.Store
	err error
}

var errDown = errors.New("down")

func (f *faulty) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if f.err != nil {
		return store.Outcome{}, f.err
	}
	return f.Store.Take(ctx, t)
}

func setup(t *testing.T, cfg metrics.Config) *rig {
	t.Helper()
	m, err := metrics.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	st := &faulty{Store: memory.New(nil)}
	lim, err := weir.New(weir.Config{Store: st, Observer: m.Observer()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	m.Watch(lim, st)
	r := &rig{T: t, m: m, lim: lim, store: st}
	r.limits(admin.Scope{}, weir.PerHour("rph", 10), weir.PerHour("tph", 1000))
	return r
}

// admits makes the limiter admit while the store does not answer.
func (r *rig) admits() {
	r.Helper()
	if err := admin.New(r.lim).Limits.SetOnUnavailable(r.Context(), admin.Scope{}, weir.OnUnavailableAllow); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) limits(scope admin.Scope, ls ...weir.Limit) {
	r.Helper()
	if err := admin.New(r.lim).Limits.Set(context.Background(), scope, ls...); err != nil {
		r.Fatal(err)
	}
}

// take spends tokens. It returns no lease if a limit refuses.
func (r *rig) take(entity, resource string, tokens weir.Tokens) *weir.Lease {
	r.Helper()
	lease, err := r.lim.Acquire(context.Background(), weir.Request{Entity: entity, Resource: resource, Tokens: tokens})
	if err != nil && !errors.Is(err, weir.ErrExceeded) {
		r.Fatal(err)
	}
	return lease
}

// scrape returns the lines of a scrape.
func (r *rig) scrape() []string {
	r.Helper()
	w := httptest.NewRecorder()
	r.m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/metrics", nil))
	if w.Code != 200 {
		r.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	return strings.Split(w.Body.String(), "\n")
}

// has asserts that a scrape contains each of the lines, and none of the texts that begin with a dash.
func (r *rig) has(lines ...string) {
	r.Helper()
	got := r.scrape()
	for _, want := range lines {
		without := strings.HasPrefix(want, "-")
		found := false
		for _, line := range got {
			found = found || line == want || without && strings.Contains(line, want[1:])
		}
		if found == without {
			r.Errorf("scrape: %q\n%s", want, strings.Join(weirs(got), "\n"))
		}
	}
}

// weirs returns the lines that are neither Go's own metrics nor histogram buckets.
func weirs(lines []string) (own []string) {
	for _, line := range lines {
		if strings.HasPrefix(line, "weir_") && !strings.Contains(line, "_bucket") {
			own = append(own, line)
		}
	}
	return own
}
