package manifest_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/store/memory"
)

const classes = `namespace: default
resources:
  api:
    limits:
      rpm: {capacity: 10}
  login:
    on_unavailable: deny
entities:
  alice:
    resources:
      login:
        on_unavailable: local
        limits:
          rpm: {capacity: 5}
`

// on_unavailable can be declared with limits or on its own, and is applied, shown and exported.
func TestOnUnavailable(t *testing.T) {
	t.Parallel()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	must(t, err)
	defer lim.Close()
	must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{Resource: "login"}, weir.PerMinute("rpm", 7)))
	must(t, admin.New(lim).Limits.SetOnUnavailable(t.Context(), admin.Scope{Resource: "api"}, weir.OnUnavailableAllow))
	m := decodeOne(t, classes)
	p := plan(t, lim, m)
	got := make(map[string]string)
	for _, c := range p.Changes {
		for _, f := range c.Fields {
			if f.Name == "on_unavailable" {
				got[c.Target] = f.Old + ">" + f.New
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"resource api": "allow>", "resource login": ">deny", "entity alice on login": ">local"}, got); diff != "" {
		t.Error(diff)
	}
	apply(t, lim, m)
	if p := plan(t, lim, m); !p.Empty() {
		t.Errorf("planned again: %s", changes(p))
	}
	out, _, err := manifest.Export(t.Context(), lim, manifest.DefaultName)
	must(t, err)
	if diff := cmp.Diff(classes, string(out.Text())); diff != "" {
		t.Error(diff)
	}
	must(t, admin.New(lim).Limits.SetOnUnavailable(t.Context(), admin.Scope{Resource: "login"}, weir.OnUnavailableAllow))
	if p := plan(t, lim, m); len(p.Changes) != 1 || !p.Changes[0].Outside {
		t.Errorf("a change made elsewhere: %s", changes(p))
	}
}

// A setting cannot change for some entities only. It changes at the end of a rollout, with everything that is not rolled
// out.
func TestRolloutOnUnavailable(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rolled) {
		text := func(on string, capacity string) string {
			return "namespace: default\nresources: {api: {on_unavailable: " + on + ", limits: {rpm: {capacity: " + capacity + "}}}}\n"
		}
		apply(t, r.Limiter, decodeOne(t, text("deny", "100")))
		says := func() weir.OnUnavailable {
			sl, err := admin.New(r.Limiter).Limits.Get(t.Context(), admin.Scope{Resource: "api"})
			must(t, err)
			return sl.OnUnavailable
		}
		checks := 0
		r.gate.check = func(bool) error {
			checks++
			if got := says(); got != weir.OnUnavailableDeny {
				t.Errorf("in a stage: %s", got)
			}
			return nil
		}
		began := time.Now()
		_, err := r.rollout(text("allow", "50"))
		must(t, err)
		if got := says(); got != weir.OnUnavailableAllow || checks == 0 {
			t.Errorf("at the end, %v and %d checks later: %s", time.Since(began), checks, got)
		}
	})
}
