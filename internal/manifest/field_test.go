package manifest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/manifest/reach"
	"github.com/weirlimits/weir/store/memory"
)

// told writes what a plan contains about each change of limits: what it declares, then its effect on the limits that
// apply.
func told(p *manifest.Plan) string {
	var b strings.Builder
	show := func(sign string, fs []delta.Field) {
		for _, f := range fs {
			fmt.Fprintf(&b, " %s %s.%s %q > %q", sign, f.Limit, f.Name, f.Old, f.New)
			if f.Moves != "" {
				fmt.Fprintf(&b, " (%s)", f.Moves)
			}
			b.WriteString("\n")
		}
	}
	for _, c := range p.Changes {
		fmt.Fprintf(&b, "%s %s: %s", c.Action, c.Target, c.Moves)
		if c.From != "" {
			fmt.Fprintf(&b, "; from %s", c.From)
		}
		b.WriteString("\n")
		show("is", c.Fields)
		show("=>", c.Applies)
	}
	return b.String()
}

func TestFields(t *testing.T) {
	t.Parallel()
	limits := func(text string) string { return "namespace: default\nresources: {r: {limits: {" + text + "}}}\n" }
	const system = "namespace: default\nsystem: {limits: {rpm: {capacity: 10}, tpm: {capacity: 100}}}\n"
	const resources = system + "resources: {a: {limits: {rpm: {capacity: 5}}}, b: {limits: {rpm: {capacity: 10}, tpm: {capacity: 7, burst: 9}}}}\n"
	for name, tt := range map[string]struct{ before, after, want string }{
		"rate": {
			limits("rpm: {capacity: 5}"), limits("rpm: {capacity: 9}"),
			"update resource r: loosens\n is rpm.rate \"5 per minute\" > \"9 per minute\" (loosens)\n is rpm.burst \"5\" > \"9\" (loosens)\n",
		},
		"period": {
			limits("rpm: {capacity: 5}"), limits("rpm: {capacity: 5, refill_period: 1h}"),
			"update resource r: tightens\n is rpm.rate \"5 per minute\" > \"5 per hour\" (tightens)\n",
		},
		"refill_amount beside the same capacity": {
			limits("tpm: {capacity: 50K, burst: 75K}"),
			limits("tpm: {capacity: 50000, burst: 75000, refill_amount: 50000, refill_period: 60}"), "",
		},
		"refill_amount in place of capacity": {
			limits("rpm: {capacity: 100}"), limits("rpm: {capacity: 100, refill_amount: 50}"),
			"update resource r: tightens\n is rpm.rate \"100 per minute\" > \"50 per minute\" (tightens)\n",
		},
		"amount of a quota": {
			limits("usd: 5000/month@UTC"), limits("usd: {capacity: 9K, refill_period: month@UTC}"),
			"update resource r: loosens\n is usd.rate \"5000 per month@UTC\" > \"9000 per month@UTC\" (loosens)\n",
		},
		"zone of a quota": {
			limits("usd: 5000/month@UTC"), limits("usd: 5000/month@Europe/Berlin"),
			"update resource r: both\n is usd.rate \"5000 per month@UTC\" > \"5000 per month@Europe/Berlin\" (both)\n",
		},
		"the same rate by another period": {
			limits("rpm: {capacity: 1, burst: 60}"), limits("rpm: {capacity: 60, refill_period: 1h}"),
			"update resource r: \n is rpm.rate \"1 per minute\" > \"60 per hour\"\n",
		},
		"slots": {
			limits("parallel: 20slots"), limits("parallel: {slots: 10, heal: 1m}"),
			"update resource r: tightens\n is parallel.slots \"20\" > \"10\" (tightens)\n is parallel.heal \"30s\" > \"1m\"\n",
		},
		"a rate to slots": {
			limits("parallel: 20/min"), limits("parallel: 20slots"),
			"update resource r: both\n is parallel.rate \"20 per minute\" > \"20 slots, heal 30s\" (both)\n",
		},
		"near_limit": {
			"namespace: default\nsystem: {near_limit: [80]}\n", "namespace: default\nsystem: {near_limit: []}\n",
			"update system: \n is .near_limit \"80\" > \"none\"\n",
		},
		"near_limit back to the default": {
			"namespace: default\nsystem: {on_unavailable: deny, near_limit: []}\n", "namespace: default\nsystem: {on_unavailable: deny}\n",
			"update system: \n is .near_limit \"none\" > \"\"\n",
		},
		"max_debt": {
			limits("rpm: {capacity: 5}"), limits("rpm: {capacity: 5, max_debt: 60}"),
			"update resource r: tightens\n is rpm.max_debt \"50 (default)\" > \"60\" (tightens)\n",
		},
		"max_debt back to a smaller default": {
			limits("rpm: {capacity: 5, max_debt: 60}"), limits("rpm: {capacity: 5}"),
			"update resource r: loosens\n is rpm.max_debt \"60\" > \"50 (default)\" (loosens)\n",
		},
		"burst": {
			limits("rpm: {capacity: 5, burst: 9}"), limits("rpm: {capacity: 5}"),
			"update resource r: tightens\n is rpm.burst \"9\" > \"5\" (tightens)\n",
		},
		"both": {
			limits("rpm: {capacity: 5, burst: 9}"), limits("rpm: {capacity: 6, burst: 8}"),
			"update resource r: both\n is rpm.rate \"5 per minute\" > \"6 per minute\" (loosens)\n is rpm.burst \"9\" > \"8\" (tightens)\n",
		},
		"a limit more": {
			limits("rpm: {capacity: 5}"), limits("rpm: {capacity: 5}, tpm: {capacity: 1, burst: 2}"),
			"update resource r: tightens\n is tpm.limit \"\" > \"1 per minute, burst 2\" (tightens)\n",
		},
		"shadow to on": {
			limits("rpm: {capacity: 5, enforce: shadow}"), limits("rpm: {capacity: 5, enforce: on}"),
			"update resource r: tightens\n is rpm.enforce \"shadow\" > \"on\" (tightens)\n",
		},
		"on to a quarter": {
			limits("rpm: {capacity: 5}"), limits("rpm: {capacity: 5, enforce: 25%}"),
			"update resource r: loosens\n is rpm.enforce \"on\" > \"25%\" (loosens)\n",
		},
		"a quarter to a half": {
			limits("rpm: {capacity: 5, enforce: 25%}"), limits("rpm: {capacity: 9, enforce: 50%}"),
			"update resource r: both\n is rpm.rate \"5 per minute\" > \"9 per minute\" (loosens)\n is rpm.burst \"5\" > \"9\" (loosens)\n is rpm.enforce \"25%\" > \"50%\" (tightens)\n",
		},
		"the rest keep theirs": {
			limits("rpm: {capacity: 9}"), limits("rpm: {capacity: 5, enforce: 25%, former: 9/min}"),
			"update resource r: tightens\n is rpm.rate \"9 per minute\" > \"5 per minute\" (tightens)\n is rpm.burst \"9\" > \"5\" (tightens)\n" +
				" is rpm.enforce \"on\" > \"25%\" (tightens)\n is rpm.former \"\" > \"9 per minute\"\n",
		},
		"the rest lose theirs": {
			limits("rpm: {capacity: 5, enforce: 25%, former: 9/min:20}"), limits("rpm: {capacity: 5, enforce: 25%}"),
			"update resource r: loosens\n is rpm.former \"9 per minute, burst 20\" > \"\" (loosens)\n",
		},
		"the rest join": {
			limits("rpm: {capacity: 5, enforce: 25%, former: 9/min}"), limits("rpm: {capacity: 5}"),
			"update resource r: tightens\n is rpm.enforce \"25%\" > \"on\" (tightens)\n is rpm.former \"9 per minute\" > \"\"\n",
		},
		"in shadow": {
			limits("rpm: {capacity: 5, enforce: shadow}"), limits("rpm: {capacity: 1, enforce: shadow}"),
			"update resource r: \n is rpm.rate \"5 per minute\" > \"1 per minute\"\n is rpm.burst \"5\" > \"1\"\n",
		},
		"out of shadow": {
			limits("rpm: {capacity: 5, enforce: shadow}"), limits("rpm: {capacity: 9, enforce: 25%}"),
			"update resource r: tightens\n is rpm.rate \"5 per minute\" > \"9 per minute\"\n is rpm.burst \"5\" > \"9\"\n is rpm.enforce \"shadow\" > \"25%\" (tightens)\n",
		},
		"new, in shadow": {
			limits("rpm: {capacity: 5}"), limits("rpm: {capacity: 5}, tpm: {capacity: 1, enforce: shadow}"),
			"update resource r: \n is tpm.limit \"\" > \"1 per minute, enforce shadow\"\n",
		},
		"from nothing": {
			"namespace: default", limits("rpm: {capacity: 5}"),
			"create resource r: loosens\n is rpm.limit \"\" > \"5 per minute\"\n",
		},
		"to nothing": {
			limits("rpm: {capacity: 5}"), "namespace: default",
			"delete resource r: tightens\n is rpm.limit \"5 per minute\" > \"\"\n",
		},
		"instead of the system's": {
			system, system + "resources: {r: {limits: {rpm: {capacity: 20}}}}",
			"create resource r: loosens; from the system defaults\n is rpm.limit \"\" > \"20 per minute\"\n" +
				" => rpm.rate \"10 per minute\" > \"20 per minute\" (loosens)\n => rpm.burst \"10\" > \"20\" (loosens)\n => tpm.limit \"100 per minute\" > \"\" (loosens)\n",
		},
		"back to the system's": {
			system + "resources: {r: {limits: {rpm: {capacity: 20}}}}", system,
			"delete resource r: tightens; from the system defaults\n is rpm.limit \"20 per minute\" > \"\"\n" +
				" => rpm.rate \"20 per minute\" > \"10 per minute\" (tightens)\n => rpm.burst \"20\" > \"10\" (tightens)\n => tpm.limit \"\" > \"100 per minute\" (tightens)\n",
		},
		"instead of each resource's": {
			resources, resources + "entities: {ann: {resources: {_default_: {limits: {rpm: {capacity: 8}}}}}}",
			"create entity ann on other resources: both; from each resource that has limits, else the system defaults\n is rpm.limit \"\" > \"8 per minute\"\n" +
				" => rpm.limit \"10 per minute or 5 per minute\" > \"8 per minute\" (both)\n" +
				" => tpm.limit \"100 per minute or 7 per minute, burst 9 or no limit\" > \"\" (loosens)\n",
		},
		"back to each resource's": {
			resources + "entities: {ann: {resources: {_default_: {limits: {tpm: {capacity: 100}}}}}}", resources,
			"delete entity ann on other resources: both; from each resource that has limits, else the system defaults\n is tpm.limit \"100 per minute\" > \"\"\n" +
				" => rpm.limit \"\" > \"10 per minute or 5 per minute\" (tightens)\n" +
				" => tpm.limit \"100 per minute\" > \"100 per minute or 7 per minute, burst 9 or no limit\" (both)\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lim, err := weir.New(weir.Config{Store: memory.New(nil)})
			must(t, err)
			defer lim.Close()
			apply(t, lim, decodeOne(t, tt.before))
			if diff := cmp.Diff(tt.want, told(plan(t, lim, decodeOne(t, tt.after)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOver checks that entities over their new limits are named, together with the limits that refuse them.
func TestOver(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerDay("rpm", 100), weir.PerDay("tpm", 100)))
		var quarter []string
		smaller := weir.PerDay("rpm", 5).WithEnforce(25)
		for i := range 20 {
			id := fmt.Sprintf("e%02d", i)
			_, err := lim.Acquire(t.Context(), weir.Request{Entity: id, Resource: "r", Tokens: weir.Tokens{"rpm": 10, "tpm": int64(i)}})
			must(t, err)
			if smaller.EnforcedFor(id) {
				quarter = append(quarter, id)
			}
		}
		over := func(limits string) *reach.Touches {
			m := decodeOne(t, "namespace: default\nresources: {r: {limits: {"+limits+"}}}\n")
			return plan(t, lim, m).Changes[0].Touches
		}
		const day = "capacity: 5, refill_period: 1d"
		tt := over("rpm: {" + day + "}, tpm: {" + day + ", burst: 18}")
		if tt.Over != 20 || !slices.Equal(tt.OverLimits, []string{"rpm", "tpm"}) || len(tt.OverSome) != 5 || tt.OverSome[0].Resource != "r" || !slices.Equal(tt.OverSome[0].Limits, []string{"rpm"}) {
			t.Errorf("%+v", tt)
		}
		if tt = over("rpm: {" + day + ", enforce: shadow}"); tt.Buckets != 20 || tt.Over != 0 {
			t.Errorf("in shadow: %+v", tt)
		}
		if tt = over("rpm: {" + day + ", enforce: 25%}"); tt.Over != len(quarter) || tt.OverSome[0].Entity != quarter[0] {
			t.Errorf("for %v: %+v", quarter, tt)
		}
	})
}
