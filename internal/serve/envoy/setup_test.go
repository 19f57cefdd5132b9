package envoy_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/envoy"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ok      = rlsv3.RateLimitResponse_OK
	over    = rlsv3.RateLimitResponse_OVER_LIMIT
	unknown = rlsv3.RateLimitResponse_UNKNOWN
)

// faulty is a store in which a test can replace takes and settles.
type faulty struct {
	store.Store
	take   atomic.Pointer[func(context.Context) error]
	settle atomic.Pointer[func(context.Context) error]
}

func (f *faulty) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if fail := f.take.Load(); fail != nil {
		return store.Outcome{}, (*fail)(ctx)
	}
	return f.Store.Take(ctx, t)
}

func (f *faulty) Settle(ctx context.Context, s store.Settle) (store.Outcome, error) {
	if fail := f.settle.Load(); fail != nil {
		if err := (*fail)(ctx); err != nil {
			return store.Outcome{}, err
		}
	}
	return f.Store.Settle(ctx, s)
}

// bundle is a service over a limiter in memory.
type bundle struct {
	t     *testing.T
	ctx   context.Context //nolint:containedctx // of the test
	lim   *weir.Limiter
	store *faulty
	svc   *envoy.Service
}

func setup(t *testing.T, change ...func(*weir.Config, *envoy.Config)) *bundle {
	t.Helper()
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	b := &bundle{t: t, ctx: t.Context(), store: &faulty{Store: memory.New(&memory.Config{Now: func() time.Time { return now }})}}
	// Real time: outside bubbles, nothing may depend on how busy the machine is.
	lim := weir.Config{Store: b.store, StoreTimeout: time.Minute}
	cfg := envoy.Config{Within: time.Minute}
	for _, f := range change {
		f(&lim, &cfg)
	}
	var err error
	if b.lim, err = weir.New(lim); err != nil {
		t.Fatal(err)
	}
	cfg.Limiter = b.lim
	if b.svc, err = envoy.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.svc.Close()
		if err := b.lim.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bundle) set(entity, resource string, limits ...weir.Limit) {
	b.t.Helper()
	if err := admin.New(b.lim).Limits.Set(b.ctx, admin.Scope{Entity: entity, Resource: resource}, limits...); err != nil {
		b.t.Fatal(err)
	}
}

// entry is a descriptor of key=value pairs.
func entry(pairs ...string) *ratelimitv3.RateLimitDescriptor {
	d := &ratelimitv3.RateLimitDescriptor{}
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: k, Value: v})
	}
	return d
}

func hits(n uint64, d *ratelimitv3.RateLimitDescriptor) *ratelimitv3.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func back(n uint64, d *ratelimitv3.RateLimitDescriptor) *ratelimitv3.RateLimitDescriptor {
	d.IsNegativeHits = true
	return hits(n, d)
}

func limited(n uint32, unit typev3.RateLimitUnit, d *ratelimitv3.RateLimitDescriptor) *ratelimitv3.RateLimitDescriptor {
	d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	return d
}

func (b *bundle) ask(ds ...*ratelimitv3.RateLimitDescriptor) *rlsv3.RateLimitResponse {
	b.t.Helper()
	resp, err := b.svc.ShouldRateLimit(b.ctx, &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: ds})
	if err != nil {
		b.t.Fatal(err)
	}
	if len(resp.Statuses) != len(ds) {
		b.t.Fatalf("%d statuses for %d descriptors", len(resp.Statuses), len(ds))
	}
	return resp
}

// want sends a request and checks the codes of the descriptors.
func (b *bundle) want(want []rlsv3.RateLimitResponse_Code, ds ...*ratelimitv3.RateLimitDescriptor) *rlsv3.RateLimitResponse {
	b.t.Helper()
	resp := b.ask(ds...)
	overall := ok
	for i, s := range resp.Statuses {
		if s.Code != want[i] {
			b.t.Errorf("descriptor %d: got %s, want %s", i, s.Code, want[i])
		}
		if want[i] == over {
			overall = over
		}
	}
	if resp.OverallCode != overall {
		b.t.Errorf("overall got %s, want %s", resp.OverallCode, overall)
	}
	return resp
}

func (b *bundle) left(entity, resource, limit string) int64 {
	b.t.Helper()
	av, err := b.lim.Available(b.ctx, entity, resource)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range av.Statuses {
		if s.Entity == entity && s.Limit == limit {
			return s.Available
		}
	}
	b.t.Fatalf("%s has no limit %s", entity, limit)
	return 0
}

func (b *bundle) wantLeft(entity string, want int64) {
	b.t.Helper()
	if got := b.left(entity, "edge", "rph"); got != want {
		b.t.Errorf("%s has %d left, want %d", entity, got, want)
	}
}

type code = []rlsv3.RateLimitResponse_Code

func fact(r *rlsv3.RateLimitResponse, name string) string {
	v := r.GetDynamicMetadata().GetFields()[name]
	if v == nil {
		return ""
	}
	return fmt.Sprint(v.AsInterface())
}

func header(r *rlsv3.RateLimitResponse, name string) string {
	for _, h := range r.GetResponseHeadersToAdd() {
		if h.GetKey() == name {
			return h.GetValue()
		}
	}
	return ""
}
