package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/store/memory"
)

// told is the part of an event that tests compare, with the times removed from before and after.
type told struct{ principal, action, subject, before, after string }

func tell(tb testing.TB, e *admin.AuditEvent) told {
	tb.Helper()
	plain := func(raw json.RawMessage) string {
		if raw == nil {
			return ""
		}
		var v map[string]any
		must(tb, json.Unmarshal(raw, &v))
		for _, k := range []string{"created", "at", "id"} {
			if s, ok := v[k].(string); !ok || k != "id" || strings.HasPrefix(s, "n") || strings.Trim(s, "0123456789") == "" {
				delete(v, k)
			}
		}
		if v["deleted"] != nil {
			v["deleted"] = true
		}
		out, err := json.Marshal(v)
		must(tb, err)
		return string(out)
	}
	return told{e.Principal, e.Action, e.Subject, plain(e.Before), plain(e.After)}
}

// events returns all events of a subject, oldest first.
func events(tb testing.TB, lim *weir.Limiter, subject string) []told {
	tb.Helper()
	var out []told
	q := admin.AuditQuery{Subject: subject, Max: 3}
	for {
		page, err := admin.New(lim).Audit.List(tb.Context(), q)
		must(tb, err)
		for i := range page.Items {
			e := &page.Items[i]
			out = append(out, tell(tb, e))
			if len(e.ID) != 26 || e.At.IsZero() {
				tb.Errorf("event %+v has no id or time", e)
			}
		}
		if q.After = page.Next; q.After == "" {
			slices.Reverse(out)
			return out
		}
	}
}

// Each action is recorded with its principal and the values before and after.
func TestAudit(t *testing.T) {
	t.Parallel()
	lim := memoryLimiter(t)
	ctx := admin.WithPrincipal(t.Context(), "alice")

	must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "org", Name: "The <Org>"}))
	must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "key", Metadata: map[string]string{"team": "a"}}))
	_, err := admin.New(lim).Entities.Update(admin.WithPrincipal(ctx, "bob"), "key", admin.EntityUpdate{Parent: new("org"), Cascade: new(true)})
	must(t, err)
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "key", Resource: "gpt-4"}, weir.PerMinute("rpm", 10)))
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "key", Resource: "gpt-4"}, weir.PerMinute("rpm", 20).WithBurst(5)))
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "key"}, weir.PerDay("rpd", 7)))
	must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{Resource: "gpt-4"}, weir.PerHour("rph", 1)))
	must(t, admin.New(lim).Limits.Delete(ctx, admin.Scope{Resource: "gpt-4"}))
	must(t, admin.New(lim).Limits.SetOnUnavailable(ctx, admin.Scope{}, weir.OnUnavailableAllow))
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerSecond("rps", 3)))
	must(t, admin.New(lim).Limits.Delete(ctx, admin.Scope{}))
	must(t, admin.New(lim).Limits.SetOnUnavailable(ctx, admin.Scope{}, weir.OnUnavailableDefault))
	_, err = lim.Acquire(ctx, weir.Request{Entity: "key", Resource: "gpt-4", Tokens: weir.Tokens{"rpm": 2}})
	must(t, err)
	must(t, admin.New(lim).Buckets.Reset(ctx, "key", "gpt-4"))
	must(t, admin.New(lim).Entities.Delete(ctx, "key", admin.DeleteOptions{}))
	_, err = admin.New(lim).Namespaces.Create(ctx, "alpha")
	must(t, err)
	must(t, admin.New(lim).Namespaces.Delete(ctx, "alpha"))
	_, err = admin.New(lim).Namespaces.Recover(ctx, "alpha")
	must(t, err)
	must(t, admin.New(lim).Namespaces.Delete(ctx, "alpha"))
	must(t, admin.New(lim).Namespaces.Purge(ctx, "alpha"))
	_, err = leaseid.StoredKey(ctx, lim)
	must(t, err)

	const (
		keyBorn  = `{"cascade":false,"id":"key","metadata":{"team":"a"}}`
		keyMoved = `{"cascade":true,"id":"key","metadata":{"team":"a"},"parent":"org"}`
		own10    = `{"entity":"key","limits":[{"amount":10,"burst":10,"name":"rpm","period":"min"}],"resource":"gpt-4","source":"entity"}`
		own20    = `{"entity":"key","limits":[{"amount":20,"burst":5,"name":"rpm","period":"min"}],"resource":"gpt-4","source":"entity"}`
		def      = `{"entity":"key","limits":[{"amount":7,"burst":7,"name":"rpd","period":"day"}],"source":"entity-default"}`
		res      = `{"limits":[{"amount":1,"burst":1,"name":"rph","period":"hour"}],"resource":"gpt-4","source":"resource"}`
		sysAllow = `{"on_unavailable":"allow","source":"system"}`
		sysBoth  = `{"limits":[{"amount":3,"burst":3,"name":"rps","period":"s"}],"on_unavailable":"allow","source":"system"}`
		spent    = `{"entity":"key","limits":[{"available":3,"debited":2,"limit":{"amount":20,"burst":5,"name":"rpm","period":"min"},"returned":0}],"resource":"gpt-4"}`
		live     = `{"name":"alpha"}`
		dead     = `{"deleted":true,"name":"alpha"}`
	)
	for subject, want := range map[string][]told{
		"entity:org": {{"alice", "entity.create", "entity:org", "", `{"cascade":false,"id":"org","name":"The \u003cOrg\u003e"}`}},
		"entity:key": {
			{"alice", "entity.create", "entity:key", "", keyBorn},
			{"bob", "entity.update", "entity:key", keyBorn, keyMoved},
			{"alice", "limits.set", "entity:key", "", own10},
			{"alice", "limits.set", "entity:key", own10, own20},
			{"alice", "limits.set", "entity:key", "", def},
			{"alice", "limits.delete", "entity:key", def, ""},
			{"alice", "limits.delete", "entity:key", own20, ""},
			{"alice", "entity.delete", "entity:key", keyMoved, ""},
		},
		"resource:gpt-4": {
			{"unknown", "limits.set", "resource:gpt-4", "", res},
			{"alice", "limits.delete", "resource:gpt-4", res, ""},
		},
		"system": {
			{"alice", "system.on_unavailable", "system", "", sysAllow},
			{"alice", "limits.set", "system", sysAllow, sysBoth},
			{"alice", "limits.delete", "system", sysBoth, sysAllow},
			{"alice", "system.on_unavailable", "system", sysAllow, ""},
		},
		admin.BucketSubject("key", "gpt-4"): {{"alice", "bucket.reset", "bucket:key#gpt-4", spent, ""}},
		"namespace:alpha": {
			{"alice", "namespace.create", "namespace:alpha", "", live},
			{"alice", "namespace.delete", "namespace:alpha", live, dead},
			{"alice", "namespace.recover", "namespace:alpha", dead, live},
			{"alice", "namespace.delete", "namespace:alpha", live, dead},
			{"alice", "namespace.purge", "namespace:alpha", dead, live},
			{"alice", "namespace.purge", "namespace:alpha", live, ""},
		},
		"secret:leases":  {{"alice", "secret.create", "secret:leases", "", ""}},
		"entity:nobody":  nil,
		"namespace:beta": nil,
	} {
		if diff := cmp.Diff(want, events(t, lim, subject), cmp.AllowUnexported(told{})); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", subject, diff)
		}
	}
	if got := len(events(t, lim, "")); got != 1+8+2+4+1 {
		t.Errorf("%d events in the namespace", got)
	}
	if got := len(events(t, lim, "namespace:")); got != 6 {
		t.Errorf("%d events of namespaces", got)
	}
	if got := len(events(t, lim.In("default"), "system")); got != 4 {
		t.Errorf("%d events of the system", got)
	}
}

func TestNoChangeNoEvent(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	rpm := weir.PerMinute("rpm", 10)
	do := func() {
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "e"}, rpm))
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "r"}, rpm, weir.PerDay("rpd", 1)))
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.Limit{Name: "rpm", Amount: 10, Period: time.Minute}))
		must(t, admin.New(lim).Limits.SetOnUnavailable(ctx, admin.Scope{}, weir.OnUnavailableDeny))
		_, err := admin.New(lim).Namespaces.Recover(ctx, "n")
		must(t, err)
	}
	_, err := admin.New(lim).Namespaces.Create(ctx, "n")
	must(t, err)
	must(t, admin.New(lim).Limits.SetOnUnavailable(ctx, admin.Scope{}, weir.OnUnavailableDefault))
	if got := events(t, lim, ""); got != nil {
		t.Errorf("taking away what is not there: %v", got)
	}
	do()
	before := len(events(t, lim, "")) + len(events(t, lim, "namespace:"))
	if before != 4+1 {
		t.Errorf("%d events", before)
	}
	do()
	if after := len(events(t, lim, "")) + len(events(t, lim, "namespace:")); after != before {
		t.Errorf("%d events, then %d", before, after)
	}
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "r"}, weir.PerDay("rpd", 1), rpm))
	if after := len(events(t, lim, "resource:r")); after != 2 {
		t.Errorf("another order: %d events", after)
	}
}

func TestPrincipal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, principal, want string }{
		{"none", "", "unknown"},
		{"odd", "<a\x00b>", "<a\x00b>"},
		{"invalid UTF-8", "a\xffb", "ab"},
		{"long", strings.Repeat("ä", 200), strings.Repeat("ä", 128)},
		{"long, cut in a letter", "x" + strings.Repeat("ä", 200), "x" + strings.Repeat("ä", 127)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			lim := memoryLimiter(t)
			must(t, admin.New(lim).Limits.SetOnUnavailable(admin.WithPrincipal(t.Context(), tt.principal), admin.Scope{}, weir.OnUnavailableAllow))
			if got := events(t, lim, "")[0].principal; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestAuditExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim, err := weir.New(weir.Config{Store: memory.New(nil), AuditRetention: time.Hour})
		must(t, err)
		must(t, admin.New(lim).Limits.SetOnUnavailable(t.Context(), admin.Scope{}, weir.OnUnavailableAllow))
		time.Sleep(time.Hour - time.Second)
		must(t, admin.New(lim).Limits.SetOnUnavailable(t.Context(), admin.Scope{}, weir.OnUnavailableDeny))
		if got := len(events(t, lim, "")); got != 2 {
			t.Errorf("%d events before the hour is over", got)
		}
		time.Sleep(time.Second)
		if got := len(events(t, lim, "")); got != 1 {
			t.Errorf("%d events after", got)
		}
	})
}

func TestAuditErrors(t *testing.T) {
	t.Parallel()
	lim, ctx := memoryLimiter(t), t.Context()
	_, err := admin.New(lim.In("nowhere")).Audit.List(ctx, admin.AuditQuery{})
	if !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("no namespace: %v", err)
	}
	_, err = admin.New(lim.In("nowhere")).Audit.List(ctx, admin.AuditQuery{Subject: "namespace:nowhere"})
	must(t, err)
	_, err = admin.New(lim).Audit.List(ctx, admin.AuditQuery{After: "x"})
	if !errors.Is(err, weir.ErrBadCursor) {
		t.Errorf("cursor: %v", err)
	}
	_, err = admin.New(lim).Audit.List(ctx, admin.AuditQuery{Max: -1})
	wantConfigError(t, err, "max")
	must(t, lim.Close())
	if _, err = admin.New(lim).Audit.List(ctx, admin.AuditQuery{}); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := admin.New(lim).Limits.SetOnUnavailable(context.Background(), admin.Scope{}, weir.OnUnavailableAllow); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestBucketSubject(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	ids := append(slices.Clone(oddIDs), "a", "b", "a#", "#b", "%", "#", "%23")
	for _, e := range ids {
		for _, r := range ids {
			s, pair := admin.BucketSubject(e, r), e+"\x00"+r
			if old, ok := seen[s]; ok && old != pair {
				t.Errorf("%q is both %q and %q", s, old, pair)
			}
			seen[s] = pair
		}
	}
	if got := admin.BucketSubject("k", "openai/gpt-4o"); got != "bucket:k#openai/gpt-4o" {
		t.Errorf("got %q", got)
	}
}
