package admin_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// TestEndedLimits checks that limits which have ended stay for a week, and that the next change of the scope then removes
// them, with an audit event of their own, also if nothing else is left.
func TestEndedLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim, ctx := memoryLimiter(t), t.Context()
		limits, rpm := admin.New(lim).Limits, weir.PerMinute("rpm", 5)
		until := admin.InstantOf(time.Now().Add(time.Hour))
		kept, alone := admin.Scope{Entity: "kept"}, admin.Scope{Entity: "alone"}
		must(t, limits.Set(ctx, kept, rpm))
		for _, sc := range []admin.Scope{kept, alone} {
			must(t, limits.SetBounded(ctx, sc, admin.Bounded{Until: until, Limits: []weir.Limit{weir.PerMinute("rpm", 7)}}))
		}
		sets := func(sc admin.Scope) int {
			t.Helper()
			sl, err := limits.Get(ctx, sc)
			must(t, err)
			return len(sl.Bounded)
		}
		time.Sleep(time.Hour + 7*24*time.Hour - time.Second)
		must(t, limits.SetOnUnavailable(ctx, kept, weir.OnUnavailableDeny))
		if n := sets(kept); n != 1 {
			t.Errorf("within the week: %d sets", n)
		}
		time.Sleep(time.Second)
		if n := sets(kept); n != 1 {
			t.Errorf("a read has removed them: %d sets", n)
		}
		must(t, limits.Set(ctx, kept, weir.PerMinute("rpm", 6)))
		if n := sets(kept); n != 0 {
			t.Errorf("after a change: %d sets", n)
		}
		must(t, limits.DeleteBounded(ctx, alone))
		if _, err := limits.Get(ctx, alone); err == nil {
			t.Error("a scope of which all limits have ended is still there")
		}
		for subject, want := range map[string][]string{
			"entity:kept":  {"limits.set", "limits.ended"},
			"entity:alone": {"limits.ended", "limits.bounded"},
		} {
			page, err := admin.New(lim).Audit.List(ctx, admin.AuditQuery{Subject: subject})
			must(t, err)
			for i, action := range want {
				if got := page.Items[i]; got.Action != action || action == "limits.ended" && (got.Before == nil || got.After == nil != (subject == "entity:alone")) {
					t.Errorf("%s, event %d is %s: %s -> %s, want %s", subject, i, got.Action, got.Before, got.After, action)
				}
			}
		}
	})
}
