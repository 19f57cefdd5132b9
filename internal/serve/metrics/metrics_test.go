package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{Version: "1.2"})
	ctx := context.Background()
	for range 12 {
		r.take("alice", "api", weir.Tokens{"rph": 1, "tph": 10})
	}
	for range 2 {
		if _, err := r.lim.Allow(ctx, "bob", "files"); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []weir.Request{
		{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"nosuch": 1}},
		{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rph": 11}},
	} {
		if _, err := r.lim.Acquire(ctx, bad); err == nil {
			t.Fatal("no error")
		}
	}
	r.admits()
	r.store.err = errDown
	for _, on := range []weir.OnUnavailable{weir.OnUnavailableDeny, weir.OnUnavailableAllow} {
		_, err := r.lim.Acquire(ctx, weir.Request{Entity: "carol", Resource: "api", OnUnavailable: on})
		if (err == nil) != (on == weir.OnUnavailableAllow) {
			t.Fatal(on, err)
		}
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.lim.Acquire(canceled, weir.Request{Entity: "carol", Resource: "api"}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.has(
		`weir_decisions_total{outcome="allowed",resource="api"} 10`,
		`weir_decisions_total{outcome="refused",resource="api"} 2`,
		`weir_decisions_total{outcome="unmetered",resource="api"} 1`, `weir_decisions_total{outcome="local",resource="api"} 0`,
		`weir_decisions_total{outcome="failed",resource="api"} 2`,
		`weir_decisions_total{outcome="allowed",resource="files"} 2`,
		`weir_decisions_total{outcome="invalid",resource="other"} 2`,
		`weir_refusals_total{limit="rph",resource="api"} 2`, `-limit="tph"`,
		`weir_decision_duration_seconds_count 17`,
		`weir_store_call_duration_seconds_count{op="take",result="ok"} 14`,
		`weir_store_errors_total{op="take"} 3`, `weir_store_errors_total{op="get"} 0`,
		`weir_store_buckets 2`,
		`-alice`, `-bob`, `-carol`, `-namespace=`, // entities are not labels
	)
	got := r.m.Overview("default").Totals
	if want := (metrics.Totals{Allowed: 12, Refused: 2, Degraded: 1, Failed: 2}); got != want {
		t.Errorf("totals %+v", got)
	}
}

// TestAnswersAreNoErrors checks that what a store that works answers, such as that nothing books usage, is no error of it.
func TestAnswersAreNoErrors(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{})
	observer := r.m.Observer()
	for _, err := range []error{fmt.Errorf("list: %w", store.ErrNoUsage), store.ErrConflict, store.ErrExpired} {
		observer.Called(t.Context(), weir.CalledEvent{Op: "usage", Err: err})
	}
	r.has(`weir_store_errors_total{op="usage"} 0`, `weir_store_call_duration_seconds_count{op="usage",result="rejected"} 3`)
	observer.Called(t.Context(), weir.CalledEvent{Op: "usage", Err: errDown})
	r.has(`weir_store_errors_total{op="usage"} 1`)
}

// TestRefusals checks that requests refused together count once for the limit that refused them, that parents' limits
// count by name, and that limits in shadow do not refuse.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{})
	shadow := weir.PerHour("rph", 1)
	shadow.Enforce = weir.EnforceShadow
	r.limits(admin.Scope{Entity: "team"}, weir.PerHour("tph", 5))
	r.limits(admin.Scope{Entity: "alice"}, shadow)
	for _, e := range []admin.Entity{{ID: "team"}, {ID: "alice", Parent: "team", Cascade: true}} {
		if err := admin.New(r.lim).Entities.Create(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	r.take("team", "api", weir.Tokens{"tph": 3})
	both := []weir.Request{
		{Entity: "team", Resource: "api", Tokens: weir.Tokens{"tph": 1}},
		{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rph": 2, "tph": 2}},
	}
	if _, err := r.lim.AcquireAll(context.Background(), both); !errors.Is(err, weir.ErrExceeded) {
		t.Fatal(err)
	}
	r.has(
		`weir_decisions_total{outcome="refused",resource="api"} 2`,
		`weir_refusals_total{limit="tph",resource="api"} 1`,
		`weir_would_refusals_total{limit="rph"} 1`,
		`-weir_refusals_total{limit="rph"`,
	)
}

func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{Resources: 2, Namespaces: 1})
	for i := range 5 {
		r.take("alice", "r"+strconv.Itoa(i), weir.Tokens{"rph": 1})
	}
	for i := range 3 {
		name := "ns" + strconv.Itoa(i)
		if _, err := admin.New(r.lim).Namespaces.Create(context.Background(), name); err != nil {
			t.Fatal(err)
		}
		in := r.lim.In(name)
		if err := admin.New(in).Limits.Set(context.Background(), admin.Scope{}, weir.PerHour("rph", 10)); err != nil {
			t.Fatal(err)
		}
		if ok, err := in.Allow(context.Background(), "bob", "r0"); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	r.has(
		`weir_decisions_total{namespace="default",outcome="allowed",resource="r0"} 1`,
		`weir_decisions_total{namespace="default",outcome="allowed",resource="r1"} 1`,
		`weir_decisions_total{namespace="default",outcome="allowed",resource="other"} 3`,
		`weir_decisions_total{namespace="other",outcome="allowed",resource="r0"} 3`,
		`-ns1`, `-r2`,
	)
	if got := r.m.Overview("ns1").Totals.Allowed; got != 1 { // the overview still distinguishes them
		t.Errorf("%d in ns1", got)
	}
	if got := r.m.Overview("*").Totals.Allowed; got != 8 {
		t.Errorf("%d in all", got)
	}
}

// TestMadeUpNamespaces checks that unknown names do not use up the room for namespaces that exist.
func TestMadeUpNamespaces(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{Namespaces: 1})
	for i := range 120 {
		if _, err := r.lim.In(fmt.Sprintf("made-up-%d", i)).Allow(context.Background(), "bob", "api"); !errors.Is(err, weir.ErrNotFound) {
			t.Fatal(err)
		}
	}
	r.take("alice", "api", weir.Tokens{"rph": 1})
	if got := r.m.Overview("default").Totals.Allowed; got != 1 {
		t.Errorf("%d in default", got)
	}
	r.has(`weir_decisions_total{namespace="default",outcome="allowed",resource="api"} 1`, `-made-up`)
}

// TestSpending checks that spending counts for the requesting entity, not again for its parents, and that returns are
// subtracted.
func TestSpending(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{})
	ctx := context.Background()
	for _, e := range []admin.Entity{{ID: "team"}, {ID: "alice", Parent: "team", Cascade: true}} {
		if err := admin.New(r.lim).Entities.Create(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	r.limits(admin.Scope{Entity: "team"}, weir.PerHour("tph", 5000))
	lease := r.take("alice", "api", weir.Tokens{"rph": 1, "tph": 100})
	if _, err := lease.Adjust(ctx, weir.Tokens{"tph": 40}); err != nil {
		t.Fatal(err)
	}
	back := r.take("alice", "api", weir.Tokens{"rph": 1, "tph": 500})
	if err := back.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	r.take("bob", "api", weir.Tokens{"tph": 30})
	for range 3 {
		r.take("bob", "api", weir.Tokens{"tph": 990})
	}
	o := r.m.Overview("default")
	want := []metrics.Spent{
		{Entity: "alice", Resource: "api", Limit: "tph", Tokens: 140},
		{Entity: "bob", Resource: "api", Limit: "tph", Tokens: 30},
		{Entity: "alice", Resource: "api", Limit: "rph", Tokens: 1},
	}
	if fmt.Sprint(o.Spending) != fmt.Sprint(want) {
		t.Errorf("spending %+v", o.Spending)
	}
	if len(o.Refused) != 1 || o.Refused[0] != (metrics.Refused{Entity: "bob", Resource: "api", Refused: 3}) {
		t.Errorf("refused %+v", o.Refused)
	}
}

// TestNoAllocation checks that metrics add no allocations to a decision.
func TestNoAllocation(t *testing.T) { //nolint:paralleltest // measures what the whole process allocates
	allocs := func(observe bool) (allow, acquire float64) {
		cfg := weir.Config{Store: memory.New(nil)}
		m, err := metrics.New(metrics.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if observe {
			cfg.Observer = m.Observer()
		}
		lim, err := weir.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerSecond("rps", 1_000_000)); err != nil {
			t.Fatal(err)
		}
		ctx, req := context.Background(), weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": 1}}
		allow = testing.AllocsPerRun(1000, func() { _, _ = lim.Allow(ctx, "alice", "api") })
		return allow, testing.AllocsPerRun(1000, func() { _, _ = lim.Acquire(ctx, req) })
	}
	allow, acquire := allocs(false)
	if a, b := allocs(true); a > allow || b > acquire {
		t.Errorf("Allow: %g with, %g without; Acquire: %g with, %g without", a, allow, b, acquire)
	}
}

// TestSlots: what is taken, given back and lost of limits of slots, whoever renews them; refusals take none.
func TestSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(clock.Epoch) + time.Hour) // clocks before it would be far behind
		r, ctx := setup(t, metrics.Config{}), t.Context()
		r.limits(admin.Scope{Resource: "video"}, weir.Limit{Name: "parallel", Slots: 4}, weir.PerHour("rph", 100))
		want := func(taken, returned, lost int) {
			t.Helper()
			for name, n := range map[string]int{"taken": taken, "returned": returned, "lost": lost} {
				r.has(fmt.Sprintf("weir_slots_%s_total %d", name, n))
			}
		}
		want(0, 0, 0)
		acquire := func(n int64) *weir.Lease {
			return r.take("alice", "video", weir.Tokens{"parallel": n, "rph": 1})
		}
		one, two := acquire(1), acquire(2)
		if acquire(2) != nil {
			t.Error("5 of 4 slots are held")
		}
		want(3, 0, 0)
		if err := one.Close(ctx); err != nil {
			t.Fatal(err)
		}
		want(3, 1, 0)
		away, err := r.lim.LeaseFromToken(ctx, two.Token("two", time.Now().Add(time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := away.Renew(ctx); err != nil {
			t.Fatal(err)
		}
		want(3, 1, 0)
		time.Sleep(2 * time.Minute)
		if _, err := away.Renew(ctx); !errors.Is(err, weir.ErrSlotLost) {
			t.Fatal(err)
		}
		want(3, 1, 2)
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []metrics.Config{{Resources: -1}, {Namespaces: -1}, {Namespaces: 101}} {
		var bad *weir.ConfigError
		if _, err := metrics.New(cfg); !errors.As(err, &bad) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

var _ store.Measured = (*faulty)(nil)

// TestStrangeNames checks that a name which is no label value, or that of the rest, counts with the rest.
func TestStrangeNames(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{Resources: 2, Namespaces: 1})
	decided := func(e weir.DecidedEvent) { r.m.Observer().Decided(context.Background(), e) }
	for _, resource := range []string{"\xff", "\xfe", metrics.Other, "a", "b", "c"} {
		over := &weir.ExceededError{Decision: weir.Decision{Statuses: []weir.LimitStatus{{Limit: resource, Resource: resource, Refused: true}}}}
		decided(weir.DecidedEvent{Namespace: metrics.Other, Resource: resource, Allowed: true})
		decided(weir.DecidedEvent{Namespace: "ns", Resource: resource, Err: over})
	}
	r.has(
		`weir_decisions_total{namespace="other",outcome="allowed",resource="a"} 1`,
		`weir_decisions_total{namespace="other",outcome="allowed",resource="b"} 1`,
		`weir_decisions_total{namespace="other",outcome="allowed",resource="other"} 4`,
		`weir_refusals_total{limit="a",namespace="other",resource="a"} 1`,
		`weir_refusals_total{limit="other",namespace="other",resource="other"} 4`,
	)
}

// TestMadeUpNames checks that names use up no label values if no limits were found for them.
func TestMadeUpNames(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{Resources: 1})
	r.admits()
	r.store.err = errDown
	for _, resource := range []string{"made up", "\xff", "api"} {
		for _, on := range []weir.OnUnavailable{weir.OnUnavailableDeny, weir.OnUnavailableAllow} {
			_, _ = r.lim.Acquire(context.Background(), weir.Request{Entity: "a", Resource: resource, OnUnavailable: on})
		}
	}
	r.store.err = nil
	r.take("alice", "api", weir.Tokens{"rph": 1})
	r.has(
		`weir_decisions_total{outcome="unmetered",resource="other"} 2`, `weir_decisions_total{outcome="failed",resource="other"} 2`,
		`weir_decisions_total{outcome="invalid",resource="other"} 2`, `weir_decisions_total{outcome="allowed",resource="api"} 1`,
	)
}

// A decision of a process without a share of the limits is not counted as one that the store did not answer.
func TestNoShare(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{})
	r.take("alice", "api", weir.Tokens{"rph": 1})
	for _, err := range []error{policy.NoShare(), &record.CellError{Cell: "eu-1"}} {
		r.store.err = err
		if _, err := r.lim.Acquire(t.Context(), weir.Request{Entity: "a", Resource: "api", OnUnavailable: weir.OnUnavailableAllow}); err == nil {
			t.Errorf("admitted after %v", r.store.err)
		}
	}
	r.has(`weir_decisions_total{outcome="no_share",resource="api"} 2`, `weir_decisions_total{outcome="failed",resource="api"} 0`)
	if o := r.m.Overview("default"); o.Totals.Failed != 2 {
		t.Errorf("the overview counts %+v", o.Totals)
	}
}

// Names that callers invent, which only the system's limits or their own apply to, leave room for those of the catalog.
func TestInventedNames(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{Resources: 3})
	r.limits(admin.Scope{}, weir.PerHour("rph", 1000))
	for i := range 100 {
		name := fmt.Sprint("invented", i)
		r.take("mallory", name, weir.Tokens{"rph": 1})
		for range 2 {
			_, _ = r.lim.Acquire(t.Context(), weir.Request{
				Entity: "mallory", Resource: "r", Tokens: weir.Tokens{name: 1}, Limits: []weir.Limit{weir.PerHour(name, 1)},
			})
		}
	}
	for _, resource := range []string{"one", "two", "three", "four"} {
		r.limits(admin.Scope{Resource: resource}, weir.PerHour(resource, 1))
		for range 2 {
			r.take("alice", resource, weir.Tokens{resource: 1})
		}
	}
	r.limits(admin.Scope{Entity: "alice", Resource: "five"}, weir.PerHour("rph", 1))
	r.take("alice", "five", weir.Tokens{"rph": 1})
	r.has(
		`weir_decisions_total{outcome="allowed",resource="one"} 1`, `weir_decisions_total{outcome="refused",resource="three"} 1`,
		`weir_refusals_total{limit="one",resource="one"} 1`, `weir_refusals_total{limit="three",resource="three"} 1`,
		`-resource="four"`, `-limit="four"`, `-resource="five"`, `-invented99`,
	)
}

// TestConcurrent checks that nothing is lost while many callers decide and another reads.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{})
	r.limits(admin.Scope{}, weir.PerHour("rph", 1_000_000))
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for j := range 200 {
				if ok, err := r.lim.Allow(context.Background(), "entity-"+strconv.Itoa(j%3), "api"); !ok || err != nil {
					t.Errorf("%v %v", ok, err)
				}
				if i == 0 && j%50 == 0 {
					r.scrape()
					r.m.OverviewJSON("*")
				}
			}
		})
	}
	group.Wait()
	o := r.m.Overview("default")
	var spent int64
	for _, s := range o.Spending {
		spent += s.Tokens
	}
	if o.Totals.Allowed != 800 || spent != 800 {
		t.Errorf("%d allowed, %d spent", o.Totals.Allowed, spent)
	}
	r.has(`weir_decisions_total{outcome="allowed",resource="api"} 800`, `weir_store_call_duration_seconds_count{op="take",result="ok"} 800`)
}
