package admin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// fillNamespace creates a namespace with records of every kind and returns its ID.
func fillNamespace(tb testing.TB, st store.Store, name string, n int) string {
	tb.Helper()
	ctx, lim := tb.Context(), limiterOn(tb, st)
	ns, err := admin.New(lim).Namespaces.Create(ctx, name)
	must(tb, err)
	in := lim.In(name)
	must(tb, admin.New(in).Limits.Set(ctx, admin.Scope{}, weir.PerHour("rph", 9)))
	for i := range n {
		id := fmt.Sprint("e", i)
		must(tb, admin.New(in).Entities.Create(ctx, admin.Entity{ID: id}))
		must(tb, admin.New(in).Limits.Set(ctx, admin.Scope{Entity: id}, weir.PerHour("rph", 8)))
		must(tb, admin.New(in).Limits.Set(ctx, admin.Scope{Resource: id}, weir.PerHour("rph", 7)))
		allowed(tb, in, id, "r", true)
	}
	return ns.ID
}

// holds returns the number of records in a namespace apart from its audit events, and of buckets that are not sealed.
func holds(tb testing.TB, st store.Store, id string) (n int) {
	tb.Helper()
	for _, kind := range store.Kinds {
		if kind == store.KindAudit || kind == store.KindAuditHead {
			continue
		}
		page, err := st.List(tb.Context(), store.Query{Namespace: id, Kind: kind, Max: 1000})
		must(tb, err)
		n += len(page.Records)
	}
	page, err := st.Buckets(tb.Context(), store.BucketQuery{Namespace: id, Max: 1000})
	must(tb, err)
	for i := range page.States {
		if !page.States[i].Sealed() {
			n++
		}
	}
	return n
}

func orphans(tb testing.TB, lim *weir.Limiter) (out []admin.Namespace) {
	tb.Helper()
	for q := (admin.NamespaceQuery{Max: 2}); ; {
		page, err := admin.New(lim).Namespaces.Orphans(tb.Context(), q)
		must(tb, err)
		out = append(out, page.Items...)
		if q.After = page.Next; q.After == "" {
			return out
		}
	}
}

func TestPurgeNamespace(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim, ctx := limiterOn(t, st), t.Context()
	id, other := fillNamespace(t, st, "alpha", 40), fillNamespace(t, st, "beta", 3)
	before := holds(t, st, other)
	wantConfigError(t, admin.New(lim).Namespaces.Purge(ctx, "alpha"), "namespace")
	wantConfigError(t, admin.New(lim).Namespaces.Purge(ctx, id), "namespace")
	must(t, admin.New(lim).Namespaces.Delete(ctx, "alpha"))
	wantConfigError(t, admin.New(lim).Namespaces.Purge(ctx, id), "namespace")
	if got := holds(t, st, id); got != 40*3+1+40 {
		t.Errorf("deleted: %d records and buckets", got)
	}
	must(t, admin.New(lim).Namespaces.Purge(ctx, "alpha"))
	if got := holds(t, st, id); got != 0 {
		t.Errorf("purged: %d records and buckets", got)
	}
	events, err := st.List(ctx, store.Query{Namespace: id, Kind: store.KindAudit, Max: 1000})
	must(t, err)
	if n := len(events.Records); n != 40*3+1 {
		t.Errorf("%d audit events are left", n)
	}
	if got := holds(t, st, other); got != before {
		t.Errorf("the other one: %d records and buckets, had %d", got, before)
	}
	for _, again := range []string{"alpha", id} {
		if err := admin.New(lim).Namespaces.Purge(ctx, again); !errors.Is(err, weir.ErrNotFound) {
			t.Errorf("purge %s again: %v", again, err)
		}
	}
	if _, err := admin.New(lim).Namespaces.Recover(ctx, "alpha"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("recover: %v", err)
	}
	if got := orphans(t, lim); got != nil {
		t.Errorf("orphans %v", got)
	}
}

// A purge killed before or after any store call, and run again by name or by ID, removes everything. In between, the
// namespace is an orphan or still deleted, and is never half recovered.
func TestPurgeResumes(t *testing.T) {
	t.Parallel()
	died := errors.New("died")
	for _, applied := range []bool{false, true} {
		for _, by := range []string{"name", "id", "id, name in use again"} {
			t.Run(fmt.Sprintf("applied %v, by %s", applied, by), func(t *testing.T) {
				t.Parallel()
				for at := 1; ; at++ {
					h := &hooked{Store: memory.New(nil)}
					id, other := fillNamespace(t, h, "alpha", 2), fillNamespace(t, h, "beta", 2)
					must(t, admin.New(limiterOn(t, h)).Namespaces.Delete(t.Context(), "alpha"))
					before := holds(t, h, other)
					stop := h.failAt(at, applied, died)
					lim, ctx := limiterOn(t, h), t.Context()
					first := admin.New(lim).Namespaces.Purge(ctx, "alpha")
					finished := stop()
					if finished {
						must(t, first)
					} else if !errors.Is(first, died) {
						t.Fatalf("call %d: %v", at, first)
					}
					resume, newID := "alpha", ""
					if left := orphans(t, lim); len(left) == 1 && left[0].ID == id && left[0].Name == "alpha" {
						if _, err := admin.New(lim).Namespaces.Recover(ctx, "alpha"); !errors.Is(err, weir.ErrNotFound) {
							t.Errorf("call %d: an orphan was recovered: %v", at, err)
						}
						if by != "name" {
							resume = id
						}
						if by == "id, name in use again" {
							newID = fillNamespace(t, h, "alpha", 1)
							wantConfigError(t, admin.New(lim).Namespaces.Purge(ctx, "alpha"), "namespace")
						}
					} else if len(left) != 0 {
						t.Errorf("call %d: orphans %v", at, left)
					}
					if err := admin.New(lim).Namespaces.Purge(ctx, resume); err != nil && !errors.Is(err, weir.ErrNotFound) {
						t.Errorf("call %d: again: %v", at, err)
					}
					if got := holds(t, h, id); got != 0 {
						t.Errorf("call %d: left: %d", at, got)
					}
					if got := orphans(t, lim); got != nil {
						t.Errorf("call %d: orphans %v", at, got)
					}
					if got := holds(t, h, other); got != before {
						t.Errorf("call %d: the other one has %d, had %d", at, got, before)
					}
					if newID != "" && holds(t, h, newID) == 0 {
						t.Errorf("call %d: the new one was purged", at)
					}
					if finished {
						t.Logf("%d calls", at-1)
						return
					}
				}
			})
		}
	}
}

// A purge and a recovery run at once, with their store calls in every possible order: one of them wins, and its result is
// complete.
func TestPurgeAgainstRecover(t *testing.T) {
	t.Parallel()
	purge := func(ctx context.Context, l *weir.Limiter) error { return admin.New(l).Namespaces.Purge(ctx, "alpha") }
	recov := func(ctx context.Context, l *weir.Limiter) error {
		_, err := admin.New(l).Namespaces.Recover(ctx, "alpha")
		return err
	}
	explore(2, func(swap func() bool) {
		st := memory.New(nil)
		id := fillNamespace(t, st, "alpha", 1)
		must(t, admin.New(limiterOn(t, st)).Namespaces.Delete(t.Context(), "alpha"))
		before := holds(t, st, id)
		errs := race(t, st, [2]op{purge, recov}, swap)
		after := holds(t, st, id)
		switch {
		case errs[0] == nil && errors.Is(errs[1], weir.ErrNotFound) && after == 0:
		case errs[1] == nil && errs[0] != nil && after == before:
		default:
			t.Errorf("purge: %v; recover: %v; %d of %d are left", errs[0], errs[1], after, before)
		}
	})
}

// Two purges at once: both finish, and nothing is left.
func TestPurgeTwiceAtOnce(t *testing.T) {
	t.Parallel()
	purge := func(ctx context.Context, l *weir.Limiter) error { return admin.New(l).Namespaces.Purge(ctx, "alpha") }
	explore(1, func(swap func() bool) {
		st := memory.New(nil)
		id := fillNamespace(t, st, "alpha", 1)
		must(t, admin.New(limiterOn(t, st)).Namespaces.Delete(t.Context(), "alpha"))
		errs := race(t, st, [2]op{purge, purge}, swap)
		for _, err := range errs {
			if err != nil && !errors.Is(err, weir.ErrNotFound) {
				t.Error(err)
			}
		}
		if got := holds(t, st, id); got != 0 || orphans(t, limiterOn(t, st)) != nil {
			t.Errorf("%d are left", got)
		}
	})
}

// The provisioner keeps events for 3 years, weir namespace purge runs with the default of 1: the id of the purged
// namespace must outlive its events, or verify and archive pass them over. The chain's head must not outlive the id.
func TestPurgedIDOutlivesEvents(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	open := func(kept time.Duration) *weir.Limiter {
		lim, err := weir.New(weir.Config{Store: st, AuditRetention: kept})
		must(t, err)
		t.Cleanup(func() { _ = lim.Close() })
		return lim
	}
	long, short := open(3*365*24*time.Hour), open(0)
	ns, err := admin.New(long).Namespaces.Create(t.Context(), "acme")
	must(t, err)
	must(t, admin.New(long.In("acme")).Entities.Create(t.Context(), admin.Entity{ID: "e"}))
	must(t, admin.New(short).Namespaces.Delete(t.Context(), "acme"))
	must(t, admin.New(short).Namespaces.Purge(t.Context(), "acme"))
	got, err := st.Get(t.Context(), record.NamespaceIDKey(ns.ID))
	must(t, err)
	id := got.Records[0]
	page, err := st.List(t.Context(), store.Query{Namespace: ns.ID, Kind: store.KindAudit})
	if err != nil || len(page.Records) == 0 {
		t.Fatal(err, len(page.Records))
	}
	for _, r := range page.Records {
		if r.Expires.After(id.Expires) {
			t.Errorf("the id expires at %v, its event %s at %v", id.Expires, r.Key, r.Expires)
		}
	}
	head, err := st.Get(t.Context(), record.AuditHeadKey(ns.ID))
	must(t, err)
	if head.Records[0].Version > 0 && head.Records[0].Expires.IsZero() {
		t.Errorf("the head of the purged namespace's chain stays for ever")
	}
}
