package admin_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/memory"
)

// names are names of entities and resources that must not collide with other parts of a key or record.
var names = []string{"ttl", "window", "resource", "a#b", "a/b", "entity"}

// TestUsageNames spends under names that also occur in other parts of a key or record, and finds each where it belongs.
func TestUsageNames(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memory.New(nil) },
		"disk": func(t *testing.T) store.Store {
			t.Helper()
			s, err := disk.Open(filepath.Join(t.TempDir(), "weir-data"), nil)
			must(t, err)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lim := limiterOn(t, open(t))
			defer lim.Close()
			ctx := t.Context()
			var limits []weir.Limit
			for _, n := range names {
				limits = append(limits, weir.PerDay(n, 1000))
			}
			must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, limits...))
			for i, entity := range names {
				for j, resource := range names {
					for k, limit := range names {
						_, err := lim.Acquire(ctx, weir.Request{Entity: entity, Resource: resource, Tokens: weir.Tokens{limit: int64(100*i + 10*j + k + 1)}})
						must(t, err)
					}
				}
			}
			for _, w := range []admin.Window{admin.Hourly, admin.Daily, admin.Monthly} {
				for i, entity := range names {
					for j, resource := range names {
						page, err := admin.New(lim).Usage.Windows(ctx, admin.UsageQuery{Entity: entity, Resource: resource, Window: w})
						must(t, err)
						got := map[string]int64{}
						for _, u := range page.Items { // two if an hour has just turned
							for _, l := range u.Limits {
								got[l.Limit] += l.Consumed
							}
						}
						for k, limit := range names {
							if want := int64(100*i + 10*j + k + 1); got[limit] != want {
								t.Errorf("%s usage of %s by %s on %s is %d, want %d", w, limit, entity, resource, got[limit], want)
							}
						}
					}
				}
			}
		})
	}
}

// limitsOf returns the totals of a summary by limit.
func limitsOf(u admin.Usage) map[string]admin.LimitUsage {
	m := map[string]admin.LimitUsage{}
	for _, l := range u.Limits {
		m[l.Limit] = l
	}
	return m
}

// TestUsageLife follows a child and its parent across midnight: debits, an adjustment, a rollback, refusals.
func TestUsageLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := limiterOn(t, memory.New(nil))
		defer lim.Close()
		ctx := t.Context()
		time.Sleep(24*time.Hour - time.Since(time.Now().Truncate(24*time.Hour)) - 30*time.Second) // until 23:59:30; in the bubble
		must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "org"}))
		must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "key", Parent: "org", Cascade: true}))
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerHour("rph", 10), weir.PerHour("tph", 1000)))
		req := weir.Request{Entity: "key", Resource: "api", Tokens: weir.Tokens{"rph": 1, "tph": 100}}
		lease, err := lim.Acquire(ctx, req)
		must(t, err)
		must(t, errOf(lease.Adjust(ctx, weir.Tokens{"tph": 50})))
		back, err := lim.Acquire(ctx, req)
		must(t, err)
		time.Sleep(time.Minute) // it is the next day
		must(t, back.Rollback(ctx))
		req.Tokens = weir.Tokens{"rph": 1, "tph": 1000}
		for range 3 {
			if _, err := lim.Acquire(ctx, req); !errors.Is(err, weir.ErrExceeded) {
				t.Fatalf("error %v, want a refusal", err)
			}
		}

		page, err := admin.New(lim).Usage.Windows(ctx, admin.UsageQuery{Entity: "key", Window: admin.Daily})
		must(t, err)
		day := admin.Daily.Start(time.Now())
		want := []admin.Usage{
			{
				Window: admin.Daily, Start: day.AddDate(0, 0, -1), Entity: "key", Resource: "api", Requests: 2,
				Limits: []admin.LimitUsage{
					{Limit: "rph", Consumed: 2, Debited: 2, Peak: 2},
					{Limit: "tph", Consumed: 250, Debited: 250, Peak: 250, Adjustments: 1},
				},
			},
			{
				Window: admin.Daily, Start: day, Entity: "key", Resource: "api", Refused: 3,
				Limits: []admin.LimitUsage{
					{Limit: "rph", Consumed: -1, Returned: 1},
					{Limit: "tph", Consumed: -100, Returned: 100, Refused: 3, RefusedTokens: 3000},
				},
			},
		}
		if diff := cmp.Diff(want, page.Items); diff != "" {
			t.Errorf("windows (-want +got):\n%s", diff)
		}

		// Own equals Cascaded, because the parent has the same limits.
		parents, err := admin.New(lim).Usage.Top(ctx, admin.TopQuery{By: admin.ByParent, Limit: "tph"})
		must(t, err)
		if len(parents) != 1 || parents[0].Entity != "org" || limitsOf(parents[0])["tph"].Consumed != 150 ||
			parents[0].Own == nil || parents[0].Own.Limits[1].Consumed != 150 {
			t.Errorf("parents %+v, want org with 150 below it and 150 of its own", parents)
		}
		s, err := admin.New(lim).Usage.Sum(ctx, admin.UsageQuery{Entity: "key", Window: admin.Hourly})
		must(t, err)
		if got := limitsOf(s.Total); got["tph"].Consumed != 150 || s.Total.Requests != 2 || s.Total.Refused != 3 || len(s.Windows) != 2 {
			t.Errorf("summary %+v, want 150 tokens of 2 requests in 2 hours", s)
		}
		if s, err = admin.New(lim).Usage.Sum(ctx, admin.UsageQuery{Window: admin.Monthly}); err != nil || limitsOf(s.Total)["tph"].Consumed != 300 {
			t.Errorf("the namespace has %+v, %v, want 300 with the parent's", s.Total, err)
		}
	})
}

// TestUsageTopOnce: a ranking of entities counts what was asked for once, and one of parents has those that are charged.
func TestUsageTopOnce(t *testing.T) {
	t.Parallel()
	lim, ctx := limiterOn(t, memory.New(nil)), t.Context()
	a := admin.New(lim)
	must(t, a.Limits.Set(ctx, admin.Scope{}, weir.PerDay("rpd", 1000), weir.PerDay("tpd", 1e6)))
	must(t, a.Limits.Set(ctx, admin.Scope{Entity: "team"}, weir.PerDay("rpd", 1000), weir.PerDay("tpd", 1e6), weir.PerDay("usd", 1000)))
	for _, e := range []admin.Entity{
		{ID: "org"},
		{ID: "team", Parent: "org", Cascade: true},
		{ID: "key", Parent: "team", Cascade: true},
		{ID: "group"},
		{ID: "member", Parent: "group"},
	} {
		must(t, a.Entities.Create(ctx, e))
	}
	for entity, tokens := range map[string]weir.Tokens{
		"key": {"rpd": 1, "tpd": 500, "usd": 5}, "member": {"rpd": 1, "tpd": 300}, "group": {"rpd": 1, "tpd": 200}, "alone": {"rpd": 1, "tpd": 100},
	} {
		_, err := lim.Acquire(ctx, weir.Request{Entity: entity, Resource: "api", Tokens: tokens})
		must(t, err)
	}
	for _, c := range []struct {
		query admin.TopQuery
		want  string
	}{
		{admin.TopQuery{}, "[alone group key member]"},
		{admin.TopQuery{Limit: "tpd"}, "[key member group alone]"}, // what is not charged to a parent is in its row only
		{admin.TopQuery{Limit: "tpd", Max: 2, Resource: "api"}, "[key member]"},
		{admin.TopQuery{Limit: "usd"}, "[team]"}, // its children have no such limit
		{admin.TopQuery{By: admin.ByParent, Limit: "tpd"}, "[org team group]"},
	} {
		top, err := a.Usage.Top(ctx, c.query)
		must(t, err)
		got := []string{}
		for _, u := range top {
			got = append(got, u.Entity)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%+v: %v, want %v", c.query, got, c.want)
		}
	}
}

// TestUsageRefused: refusals by Allow are counted, by limit if there is one.
func TestUsageRefused(t *testing.T) {
	t.Parallel()
	lim := limiterOn(t, memory.New(nil))
	ctx := t.Context()
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerDay("requests", 2)))
	for range 5 {
		_, err := lim.Allow(ctx, "alice", "api")
		must(t, err)
	}
	top, err := admin.New(lim).Usage.Top(ctx, admin.TopQuery{Window: admin.Monthly})
	must(t, err)
	if len(top) != 1 || top[0].Requests != 2 || top[0].Refused != 3 || top[0].Limits[0].Refused != 3 || top[0].Limits[0].RefusedTokens != 3 {
		t.Errorf("top %+v, want 2 requests, 3 refused", top)
	}
}

// TestUsageShadow: what shadow limits would have refused is counted separately from refusals.
func TestUsageShadow(t *testing.T) {
	t.Parallel()
	lim := limiterOn(t, memory.New(nil))
	ctx := t.Context()
	must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "org"}))
	must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "key", Parent: "org", Cascade: true}))
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "org"}, weir.PerDay("tpd", 100).WithEnforce(weir.EnforceShadow), weir.PerDay("rpd", 2).WithEnforce(weir.EnforceShadow)))
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "key"}, weir.PerDay("tpd", 250)))
	req := weir.Request{Entity: "key", Resource: "api", Tokens: weir.Tokens{"tpd": 80}}
	for range 3 { // the parent's limit would refuse the second and third
		_, err := lim.Acquire(ctx, req)
		must(t, err)
	}
	_, err := lim.Acquire(ctx, req) // refused; the parent's limit would refuse it too
	if !errors.Is(err, weir.ErrExceeded) {
		t.Error(err)
	}
	_, err = lim.AcquireAll(ctx, []weir.Request{req})
	if !errors.Is(err, weir.ErrExceeded) {
		t.Error(err)
	}
	for range 3 { // the third would be refused
		ok, err := lim.Allow(ctx, "org", "api")
		if must(t, err); !ok {
			t.Error("a limit in shadow refuses")
		}
	}
	of := func(entity string) admin.Usage {
		s, err := admin.New(lim).Usage.Sum(ctx, admin.UsageQuery{Entity: entity, Window: admin.Monthly})
		must(t, err)
		return s.Total
	}
	org, key := of("org"), of("key")
	tpd, rpd := limitsOf(org)["tpd"], limitsOf(org)["rpd"]
	if org.Refused != 0 || tpd.Refused != 0 || tpd.WouldRefuse != 4 || tpd.WouldRefuseTokens != 4*80 || tpd.Consumed != 80 ||
		rpd.WouldRefuse != 1 || rpd.WouldRefuseTokens != 1 || rpd.Consumed != 2 {
		t.Errorf("org %+v", org)
	}
	if tpd := limitsOf(key)["tpd"]; key.Refused != 2 || tpd.Refused != 2 || tpd.WouldRefuse != 0 {
		t.Errorf("key %+v", key)
	}
}

// silent is a store that does not answer takes.
type silent struct {
	store.Store
	keeper
}

type keeper = store.Usage

func (silent) Take(context.Context, store.Take) (store.Outcome, error) {
	return store.Outcome{}, &store.Error{Op: "take", Err: errors.New("nobody there")}
}

func TestUsageDegraded(t *testing.T) {
	t.Parallel()
	m := memory.New(nil)
	lim, err := weir.New(weir.Config{Store: silent{m, m}, OnUnavailable: weir.OnUnavailableAllow})
	must(t, err)
	defer lim.Close()
	ctx := t.Context()
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerDay("rpd", 2)))
	_, err = lim.Acquire(ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpd": 1}})
	must(t, err)
	_, err = lim.Allow(ctx, "alice", "api")
	must(t, err)
	s, err := admin.New(lim).Usage.Sum(ctx, admin.UsageQuery{})
	must(t, err)
	if s.Total.Degraded != 2 {
		t.Errorf("%d degraded, want 2", s.Total.Degraded)
	}
}

// TestUsageDegradedWait: a Wait call admitted without the store, before its limits are known, is counted too.
func TestUsageDegradedWait(t *testing.T) {
	t.Parallel()
	m := memory.New(nil)
	var down atomic.Bool
	h := &hooked{Store: m, before: func(_ context.Context, op string) error {
		if op == "get" && down.Load() {
			return errors.New("connection refused")
		}
		return nil
	}}
	lim, err := weir.New(weir.Config{Store: struct {
		*hooked
		keeper
	}{h, m}, OnUnavailable: weir.OnUnavailableAllow})
	must(t, err)
	defer lim.Close()
	ctx := t.Context()
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerDay("rpd", 2)))
	down.Store(true)
	_, err = lim.Wait(ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpd": 1}})
	must(t, err)
	down.Store(false)
	s, err := admin.New(lim).Usage.Sum(ctx, admin.UsageQuery{})
	must(t, err)
	if s.Total.Degraded != 1 {
		t.Errorf("%d degraded, want 1", s.Total.Degraded)
	}
}

// TestUsagePages: reading windows in pages of any size finds each once, in order.
func TestUsagePages(t *testing.T) {
	t.Parallel()
	lim := limiterOn(t, memory.New(nil))
	ctx := t.Context()
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerDay("rpd", 2)))
	var want []string
	for _, entity := range []string{"a", "b", "c", "d", "e"} {
		_, err := lim.Allow(ctx, entity, "api")
		must(t, err)
		want = append(want, entity)
	}
	now := time.Now()
	for size := 1; size < 7; size++ {
		q := admin.UsageQuery{Window: admin.Monthly, From: now.AddDate(0, -1, 0), To: now.AddDate(0, 1, 0), Max: size}
		var got []string
		for {
			page, err := admin.New(lim).Usage.Windows(ctx, q)
			must(t, err)
			if len(page.Items) > size {
				t.Fatalf("a page of %d, want at most %d", len(page.Items), size)
			}
			for _, u := range page.Items {
				got = append(got, u.Entity)
			}
			if q.After = page.Next; q.After == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %q, want %q", size, got, want)
		}
	}
	page, err := admin.New(lim).Usage.Windows(ctx, admin.UsageQuery{Window: admin.Monthly, Max: 2})
	must(t, err)
	if _, err := admin.New(lim).Usage.Windows(ctx, admin.UsageQuery{Window: admin.Daily, Max: 2, After: page.Next}); !errors.Is(err, weir.ErrBadCursor) {
		t.Errorf("error %v of another window's cursor, want ErrBadCursor", err)
	}
}

func TestUsageMistakes(t *testing.T) {
	t.Parallel()
	lim := limiterOn(t, memory.New(nil))
	now := time.Now()
	for field, q := range map[string]admin.UsageQuery{
		"window":   {Window: "weekly"},
		"by":       {By: admin.ByLimit},
		"from":     {From: now, To: now.AddDate(0, 0, -2)},
		"max":      {Max: -1},
		"entity":   {By: admin.ByResource, Entity: "alice"},
		"resource": {By: admin.ByNamespace, Resource: "api"},
	} {
		_, err := admin.New(lim).Usage.Windows(t.Context(), q)
		if config, ok := errors.AsType[*weir.ConfigError](err); !ok || config.Field != field {
			t.Errorf("%+v: error %v, want one about %s", q, err, field)
		}
	}
	none := limiterOn(t, struct{ store.Store }{memory.New(nil)})
	if _, err := admin.New(none).Usage.Windows(t.Context(), admin.UsageQuery{}); !errors.Is(err, weir.ErrNoUsage) {
		t.Errorf("error %v, want ErrNoUsage", err)
	}
}

// TestUsagePurged: purging a namespace removes its usage.
func TestUsagePurged(t *testing.T) {
	t.Parallel()
	m := memory.New(nil)
	lim := limiterOn(t, m)
	ctx := t.Context()
	ns, err := admin.New(lim).Namespaces.Create(ctx, "blue")
	must(t, err)
	blue := lim.In("blue")
	must(t, admin.New(blue).Limits.Set(ctx, admin.Scope{}, weir.PerDay("rpd", 2)))
	_, err = blue.Allow(ctx, "alice", "api")
	must(t, err)
	q := store.UsageQuery{Namespace: ns.ID, Of: store.OfNamespace, Window: store.Monthly, To: time.Now().AddDate(1, 0, 0)}
	if page, err := m.Usage(ctx, q); err != nil || len(page.Records) != 1 {
		t.Fatalf("before: %+v, %v", page, err)
	}
	must(t, admin.New(lim).Namespaces.Delete(ctx, "blue"))
	must(t, admin.New(lim).Namespaces.Purge(ctx, "blue"))
	if page, err := m.Usage(ctx, q); err != nil || len(page.Records) != 0 {
		t.Errorf("after: %+v, %v", page, err)
	}
}
