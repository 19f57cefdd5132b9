package drift_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/drift"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/store/memory"
)

func plan(t *testing.T, lim *weir.Limiter, text string) *manifest.Plan {
	t.Helper()
	ms, err := manifest.Decode([]strictyaml.Source{{Name: "x", Text: []byte(text)}}, strictyaml.Options{})
	must(t, err)
	p, err := manifest.Make(t.Context(), lim, ms[0], manifest.PlanOptions{})
	must(t, err)
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A report names who changed a record by hand. A record that was removed by hand is not called unapplied, also when the
// manifest has changed since, but one that an earlier apply removed is.
func TestWho(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim, err := weir.New(weir.Config{Store: memory.New(nil)})
		must(t, err)
		defer func() { must(t, lim.Close()) }()
		limits := func(capacity int) string { return fmt.Sprintf("{limits: {rpm: {capacity: %d}}}", capacity) }
		text := "namespace: default\nresources: {edited: " + limits(1) + ", removed: " + limits(2) + ", dropped: " + limits(3) +
			"}\nentities: {ann: {name: Ann, resources: {r: " + limits(4) + ", s: " + limits(5) + "}}}\n"
		for _, applied := range []string{text, strings.Replace(text, ", dropped: "+limits(3), "", 1)} {
			_, err = manifest.Apply(t.Context(), lim, plan(t, lim, applied), manifest.ApplyOptions{})
			must(t, err)
		}
		time.Sleep(time.Second)
		ctx := admin.WithPrincipal(t.Context(), "bob")
		a := admin.New(lim)
		must(t, a.Limits.Set(ctx, admin.Scope{Resource: "edited"}, weir.PerMinute("rpm", 100)))
		must(t, a.Limits.Delete(ctx, admin.Scope{Resource: "removed"}))
		must(t, a.Limits.Delete(ctx, admin.Scope{Entity: "ann", Resource: "r"}))
		must(t, a.Limits.Set(admin.WithPrincipal(ctx, "eve"), admin.Scope{Resource: "by-hand"}, weir.PerMinute("rpm", 7)))
		text = strings.Replace(text, "{edited:", "{new: "+limits(9)+", by-hand: "+limits(8)+", edited:", 1)
		reports, err := drift.Reports(t.Context(), lim, []*manifest.Plan{plan(t, lim, text)})
		must(t, err)
		got := make(map[string]string)
		for _, r := range reports[0].Drift {
			if (r.By == "") != r.At.IsZero() {
				t.Errorf("%+v", r)
			}
			got[r.Target] = strings.TrimSpace(string(r.Why) + " " + r.By)
		}
		if d := cmp.Diff(map[string]string{
			"resource edited": "edited bob", "resource removed": "removed bob", "entity ann on r": "removed bob",
			"resource by-hand": "unmanaged eve", "resource dropped": "unapplied", "resource new": "unapplied",
		}, got); d != "" {
			t.Error(d)
		}
	})
}
