package manifest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
)

const prepaidText = "namespace: default\ntotal: {limits: [credits:balance]}\n"

// A plan shows which changes would hide a balance, and is not applied, not even in part.
func TestHiddenBalance(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		apply(t, lim, decodeOne(t, prepaidText))
		credit := admin.Credit{BalanceKey: admin.BalanceKey{Entity: "ann", Limit: "credits"}, Amount: 40, ID: "1"}
		_, _, err := admin.New(lim).Balances.Add(t.Context(), credit)
		must(t, err)
		const narrower = prepaidText + "resources: {r: {limits: [rpm:1/min]}}\n" +
			"entities: {ann: {total: {limits: [credits:5/min]}}, bob: {total: {limits: [credits:5/min]}}}\n"
		p := plan(t, lim, decodeOne(t, narrower))
		for _, c := range p.Changes {
			if hides := strings.HasPrefix(c.Refused, `would hide the balance "credits" of "ann"`); hides != (c.Entity == "ann") {
				t.Errorf("%s: refused: %q", c.Target, c.Refused)
			}
		}
		before := state(t, lim)
		var problems manifest.ProblemsError
		if _, err := manifest.Apply(t.Context(), lim, p, manifest.ApplyOptions{}); !errors.As(err, &problems) {
			t.Error(err)
		}
		if after := state(t, lim); after != before {
			t.Errorf("it was\n%sand is\n%s", before, after)
		}
		kept := strings.Replace(narrower, "credits:5/min", "credits:balance", 1)
		apply(t, lim, decodeOne(t, kept))
		p = plan(t, lim, decodeOne(t, "namespace: default\n"))
		if !slices.ContainsFunc(p.Changes, func(c manifest.Change) bool { return c.Refused != "" }) {
			t.Error("the balance can be removed")
		}
		res, err := manifest.Apply(t.Context(), lim, p, manifest.ApplyOptions{Keep: true})
		if must(t, err); res.Kept != 4 {
			t.Errorf("%+v", res)
		}
	})
}

// A plan warns where a percentage leaves the rest without the limit, and has the limits as numbers.
func TestPartialWarning(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		const text = "namespace: default\nresources: {r: {limits: {rpm: {capacity: 60}, tpm: {capacity: 5}}}}\n"
		partial := strings.Replace(text, "60", "60, enforce: 25%", 1)
		apply(t, lim, decodeOne(t, text))
		p := plan(t, lim, decodeOne(t, partial))
		const want = "rpm of resource r is enforced for 25% of the entities: the other 75% are without it, also where they had it"
		if !slices.Equal(p.Warnings, []string{want}) {
			t.Errorf("%q", p.Warnings)
		}
		if c := p.Changes[0]; len(c.Was) != 2 || c.Was[0].Amount != 60 || c.Set[0].Enforce != 25 || c.Set[1] != c.Was[1] {
			t.Errorf("%+v", c)
		}
		apply(t, lim, decodeOne(t, partial))
		if p := plan(t, lim, decodeOne(t, strings.Replace(partial, "5}", "6}", 1))); len(p.Warnings) > 0 {
			t.Errorf("of a limit that does not change: %q", p.Warnings)
		}
	})
}

// A plan shows each burst that changes, also one that only follows the amount.
func TestBurst(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		apply(t, lim, decodeOne(t, "namespace: default\nsystem: {limits: [rpm:60/min]}\n"))
		p := plan(t, lim, decodeOne(t, "namespace: default\nsystem: {limits: [rpm:3600/h]}\n"))
		fields := p.Changes[0].Fields
		if len(fields) != 2 || fields[0].Moves != "" || fields[1].Name != "burst" || fields[1].New != "3600" {
			t.Errorf("%+v", fields)
		}
	})
}
