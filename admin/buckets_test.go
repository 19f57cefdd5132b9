package admin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

func TestBucket(t *testing.T) {
	t.Parallel()
	lim, ctx := limiterOn(t, memory.New(&memory.Config{Now: func() time.Time { return noon }})), t.Context()
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerMinute("rpm", 60), weir.PerMinute("tpm", 1000)))
	full := admin.Bucket{Entity: "e", Resource: "r", Limits: []admin.BucketLimit{
		{Limit: weir.PerMinute("rpm", 60), Available: 60}, {Limit: weir.PerMinute("tpm", 1000), Available: 1000},
	}}
	got, err := admin.New(lim).Buckets.Get(ctx, "e", "r")
	must(t, err)
	if diff := cmp.Diff(full, got); diff != "" {
		t.Errorf("a bucket that does not exist is full (-want +got)\n%s", diff)
	}
	lease, err := lim.Acquire(ctx, weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"rpm": 2, "tpm": 900}})
	must(t, err)
	must(t, errOf(lease.Adjust(ctx, weir.Tokens{"tpm": 200})))
	must(t, errOf(lease.Adjust(ctx, weir.Tokens{"tpm": -50})))
	extra := weir.PerHour("rph", 7)
	_, err = lim.Acquire(ctx, weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"rph": 3}, Limits: []weir.Limit{extra}})
	must(t, err)

	got, err = admin.New(lim).Buckets.Get(ctx, "e", "r")
	must(t, err)
	want := admin.Bucket{Entity: "e", Resource: "r", ID: got.ID, At: noon, Limits: []admin.BucketLimit{
		{Limit: weir.PerMinute("rpm", 60), Available: 58, Debited: 2},
		{Limit: weir.PerMinute("tpm", 1000), Available: -50, Debited: 1100, Returned: 50},
		{Limit: extra, Override: true, Available: 4, Debited: 3},
	}}
	if diff := cmp.Diff(want, got); diff != "" || got.ID == 0 {
		t.Errorf("id %d (-want +got)\n%s", got.ID, diff)
	}

	must(t, admin.New(lim).Buckets.Reset(ctx, "e", "r"))
	got, err = admin.New(lim).Buckets.Get(ctx, "e", "r")
	must(t, err)
	if diff := cmp.Diff(full, got); diff != "" {
		t.Errorf("after the reset (-want +got)\n%s", diff)
	}
	if err := admin.New(lim).Buckets.Reset(ctx, "e", "r"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("reset again: %v", err)
	}
	if got := len(events(t, lim, admin.BucketSubject("e", "r"))); got != 1 {
		t.Errorf("%d events", got)
	}
	av, err := lim.Available(ctx, "e", "r")
	must(t, err)
	if got := av.Statuses[1].Available; got != 1000 {
		t.Errorf("%d tpm available after the reset", got)
	}
}

// TestBucketInForce checks that buckets are shown with the limits in force, as the next request will find them.
func TestBucketInForce(t *testing.T) {
	t.Parallel()
	lim, ctx := limiterOn(t, memory.New(&memory.Config{Now: func() time.Time { return noon }})), t.Context()
	limits := admin.New(lim).Limits
	must(t, limits.Set(ctx, admin.Scope{}, weir.PerMinute("rpm", 100), weir.PerMinute("tpm", 10), weir.PerMinute("old", 5)))
	_, err := lim.Acquire(ctx, weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"rpm": 49, "tpm": 1}})
	must(t, err)
	show := func() []admin.BucketLimit {
		t.Helper()
		got, err := admin.New(lim).Buckets.Get(ctx, "e", "r")
		must(t, err)
		page, err := admin.New(lim).Buckets.List(ctx, admin.BucketQuery{Resource: "r"})
		must(t, err)
		if diff := cmp.Diff([]admin.Bucket{got}, page.Items); diff != "" {
			t.Errorf("shown, and as listed\n%s", diff)
		}
		return got.Limits
	}
	check := func(what string, want ...admin.BucketLimit) {
		t.Helper()
		if diff := cmp.Diff(want, show()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
	}
	rpm := func(n, left int64) admin.BucketLimit {
		return admin.BucketLimit{Limit: weir.PerMinute("rpm", n), Available: left, Debited: 49}
	}
	tpm := admin.BucketLimit{Limit: weir.PerMinute("tpm", 10), Available: 9, Debited: 1, Removed: true}
	must(t, limits.Set(ctx, admin.Scope{Entity: "e"}, weir.PerMinute("rpm", 10), weir.PerMinute("new", 7)))
	check("lowered, removed, new", rpm(10, -39), admin.BucketLimit{Limit: weir.PerMinute("new", 7), Available: 7}, tpm)
	av, err := lim.Available(ctx, "e", "r")
	must(t, err)
	if av.Statuses[0].Available != -39 {
		t.Errorf("available: %+v", av.Statuses)
	}
	must(t, limits.Set(ctx, admin.Scope{Entity: "e", Resource: "r"}, weir.PerMinute("rpm", 1000)))
	check("raised", rpm(1000, 951), tpm)
	for _, s := range []admin.Scope{{}, {Entity: "e"}, {Entity: "e", Resource: "r"}} {
		must(t, limits.Delete(ctx, s))
	}
	was := rpm(100, 51)
	was.Removed = true
	check("none in force", was, tpm)
	if _, err := admin.New(lim).Buckets.Get(ctx, "e", "other"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("no bucket and no limits: %v", err)
	}
}

// Every reset leaves an audit event, whatever fails.
func TestResetIsTold(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"peek", "commit", "forget"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			died := errors.New("died")
			h := &hooked{Store: memory.New(nil)}
			prepare(t, h)
			lim := limiterOn(t, h)
			h.before = func(_ context.Context, o string) error {
				if o == op {
					return died
				}
				return nil
			}
			if err := admin.New(lim).Buckets.Reset(t.Context(), "child", "r"); !errors.Is(err, died) {
				t.Errorf("got error %v", err)
			}
			h.before = nil
			if _, err := admin.New(lim).Buckets.Get(t.Context(), "child", "r"); err != nil {
				t.Errorf("the bucket: %v", err)
			}
			want := 0
			if op == "forget" {
				want = 1
			}
			if got := len(events(t, lim, admin.BucketSubject("child", "r"))); got != want {
				t.Errorf("%d events, want %d", got, want)
			}
		})
	}
}

func TestBuckets(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	_, err := admin.New(lim).Namespaces.Create(ctx, "other")
	must(t, err)
	for _, l := range []*weir.Limiter{lim, lim.In("other")} {
		must(t, admin.New(l).Limits.Set(ctx, admin.Scope{}, weir.PerHour("rph", 5)))
		for _, e := range oddIDs[:6] {
			for _, r := range oddIDs[:4] {
				allowed(t, l, e, r, true)
			}
		}
	}
	for _, tt := range []struct {
		name  string
		query admin.BucketQuery
		want  int
	}{
		{"all", admin.BucketQuery{}, 24},
		{"entity", admin.BucketQuery{Entity: "a#b"}, 4},
		{"resource", admin.BucketQuery{Resource: "<script>"}, 6},
		{"both", admin.BucketQuery{Entity: "openai/gpt-4o", Resource: "a%23b"}, 1},
		{"none", admin.BucketQuery{Entity: "nobody"}, 0},
	} {
		for _, size := range []int{0, 1, 5} {
			t.Run(fmt.Sprintf("%s by %d", tt.name, size), func(t *testing.T) {
				t.Parallel()
				last, n := "", 0
				q := tt.query
				for q.Max = size; ; {
					page, err := admin.New(lim).Buckets.List(t.Context(), q)
					must(t, err)
					if size > 0 && len(page.Items) > size {
						t.Errorf("a page of %d", len(page.Items))
					}
					for _, b := range page.Items {
						if key := b.Entity + "\x00" + b.Resource; key <= last {
							t.Errorf("%q after %q", key, last)
						} else {
							last = key
						}
						if len(b.Limits) != 1 || b.Limits[0].Available != 4 || b.Limits[0].Debited != 1 {
							t.Errorf("got %+v", b)
						}
						n++
					}
					if q.After = page.Next; q.After == "" {
						break
					}
				}
				if n != tt.want {
					t.Errorf("got %d, want %d", n, tt.want)
				}
			})
		}
	}
}

func TestBucketsRefuse(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	for name, id := range badIDs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for field, pair := range map[string][2]string{"entity": {id, "r"}, "resource": {"e", id}} {
				_, err := admin.New(lim).Buckets.Get(ctx, pair[0], pair[1])
				wantConfigError(t, err, field)
				wantConfigError(t, admin.New(lim).Buckets.Reset(ctx, pair[0], pair[1]), field)
				if id != "" {
					_, err = admin.New(lim).Buckets.List(ctx, admin.BucketQuery{Entity: pair[0], Resource: pair[1]})
					wantConfigError(t, err, field)
				}
			}
		})
	}
	if _, err := admin.New(lim).Buckets.List(ctx, admin.BucketQuery{After: "?"}); !errors.Is(err, weir.ErrBadCursor) {
		t.Errorf("cursor: %v", err)
	}
	_, err := admin.New(lim).Buckets.List(ctx, admin.BucketQuery{Max: -1})
	wantConfigError(t, err, "max")
	_, err = admin.New(lim.In("nowhere")).Buckets.List(ctx, admin.BucketQuery{})
	_, err2 := admin.New(lim.In("nowhere")).Buckets.Get(ctx, "e", "r")
	for _, err := range []error{err, err2, admin.New(lim.In("nowhere")).Buckets.Reset(ctx, "e", "r")} {
		if !errors.Is(err, weir.ErrNotFound) {
			t.Errorf("no namespace: %v", err)
		}
	}
}

// Forgiving raises what is below zero to zero, and nothing else.
func TestForgive(t *testing.T) {
	t.Parallel()
	lim, ctx := limiterOn(t, memory.New(nil)), t.Context()
	defer lim.Close()
	a := admin.New(lim)
	must(t, a.Limits.Set(ctx, admin.Scope{}, weir.PerDay("rpd", 10), weir.PerDay("tpd", 1000)))
	lease, err := lim.Acquire(ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpd": 4}})
	must(t, err)
	if _, err := lease.Adjust(ctx, weir.Tokens{"tpd": 1_000_000_000_000_000}); !errors.Is(err, weir.ErrMaxDebt) {
		t.Fatal(err)
	}
	b, err := a.Buckets.Forgive(ctx, "alice", "api")
	must(t, err)
	for _, l := range b.Limits {
		if want := map[string]int64{"rpd": 6, "tpd": 0}[l.Limit.Name]; l.Available != want {
			t.Errorf("%s: %d are left, want %d", l.Limit.Name, l.Available, want)
		}
		if kept := l.Debited - l.Returned; l.Limit.Name == "tpd" && (kept < 1000 || kept > 1001) { // both are rounded down
			t.Errorf("%d debited, %d returned", l.Debited, l.Returned)
		}
	}
	for _, entity := range []string{"alice", "bob"} { // one is even by now, the other has no bucket
		before, err := a.Buckets.Get(ctx, entity, "api")
		must(t, err)
		n := len(events(t, lim, admin.BucketSubject(entity, "api")))
		after, err := a.Buckets.Forgive(ctx, entity, "api")
		must(t, err)
		if !after.At.Equal(before.At) || len(events(t, lim, admin.BucketSubject(entity, "api"))) != n {
			t.Errorf("%s: forgiving nothing changed %+v to %+v", entity, before, after)
		}
	}
}
