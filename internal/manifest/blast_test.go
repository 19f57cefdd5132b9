package manifest_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/testkit/raced"
)

func spend(t *testing.T, lim *weir.Limiter, entity, resource string, rpm int64) {
	t.Helper()
	_, err := lim.Acquire(t.Context(), weir.Request{Entity: entity, Resource: resource, Tokens: weir.Tokens{"rpm": rpm}})
	must(t, err)
}

// touches writes what each change touches as "entities/buckets/over".
func touches(p *manifest.Plan) (all []string) {
	for _, c := range p.Changes {
		if tt := c.Touches; tt != nil {
			least := ""
			if tt.AtLeast {
				least = ">="
			}
			var over []string
			for _, o := range tt.OverSome {
				over = append(over, o.Entity)
			}
			all = append(all, fmt.Sprintf("%s %s%d/%d/%d%v", c.Target, least, tt.Entities, tt.Buckets, tt.Over, over))
		}
	}
	return all
}

func TestTouches(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		ctx := t.Context()
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerDay("rpm", 100)))
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "own", Resource: "gpt-4"}, weir.PerDay("rpm", 100)))
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "general"}, weir.PerDay("rpm", 100)))
		spend(t, lim, "ann", "gpt-4", 50)
		spend(t, lim, "ann", "gpt-5", 50)
		spend(t, lim, "bob", "gpt-4", 10)
		spend(t, lim, "own", "gpt-4", 90)
		spend(t, lim, "general", "gpt-4", 90)
		m := decodeOne(t, "namespace: default\nresources: {gpt-4: {limits: {rpm: {capacity: 20, refill_period: 1d}}}}\n")
		p := plan(t, lim, m)
		// Entities with limits of their own, for this resource or for all, are not counted, nor is ann on gpt-5.
		if got := touches(p); !slices.Equal(got, []string{"resource gpt-4 2/2/1[ann]"}) {
			t.Errorf("%q", got)
		}
		apply(t, lim, m)
		if _, err := lim.Acquire(ctx, weir.Request{Entity: "ann", Resource: "gpt-4", Tokens: weir.Tokens{"rpm": 1}}); err == nil {
			t.Error("who is over is admitted")
		}
		if _, err := lim.Acquire(ctx, weir.Request{Entity: "bob", Resource: "gpt-4", Tokens: weir.Tokens{"rpm": 1}}); err != nil {
			t.Errorf("who is not over: %v", err)
		}
		// An entity that falls back when its own limits are removed is touched by the removal.
		m = decodeOne(t, "namespace: default\nentities: {bob: {resources: {gpt-4: {limits: {rpm: {capacity: 5, refill_period: 1d}}}}}}\n")
		want := []string{"entity bob on gpt-4 1/1/1[bob]", "resource gpt-4 2/2/0[]"}
		if got := touches(plan(t, lim, m)); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}

// Another plan of an entity touches its buckets, and those of its descendants that inherit it.
func TestTouchesOfPlans(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		const plans = "namespace: default\nplans:\n  pro: {default: {limits: {rpm: 100/day}}}\n" +
			"  free: {default: {limits: {rpm: 20/day}}, total: {limits: {rpm: 5/day}}}\n"
		apply(t, lim, decodeOne(t, plans+"entities: {team: {plan: pro}, ann: {parent: team}, bob: {plan: pro}, own: {parent: team, plan: pro}}"))
		for _, id := range []string{"team", "ann", "bob", "own"} {
			spend(t, lim, id, "gpt", 50)
		}
		spend(t, lim, "ann", "o3", 10)
		moved := "entities: {team: {plan: free}, ann: {parent: team}, bob: {plan: pro}, own: {parent: team, plan: pro}}"
		if got := touches(plan(t, lim, decodeOne(t, plans+moved))); !slices.Equal(got, []string{"entity team 2/3/2[ann team]"}) {
			t.Errorf("%q", got)
		}
		alone := "entities: {team: {plan: pro}, ann: {parent: team}, bob: {plan: free}, own: {parent: team, plan: pro}}"
		if got := touches(plan(t, lim, decodeOne(t, plans+alone))); !slices.Equal(got, []string{"entity bob 1/1/1[bob]"}) {
			t.Errorf("%q", got)
		}
	})
}

func TestTouchesMany(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	onStores(t, func(t *testing.T, lim *weir.Limiter, _ *faulty) {
		must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerDay("rpm", 100)))
		for i := range 1200 {
			spend(t, lim, fmt.Sprintf("e%04d", i), "r", 10)
		}
		m := decodeOne(t, "namespace: default\nresources: {r: {limits: {rpm: {capacity: 5, refill_period: 1d}}}}\n")
		if got := touches(plan(t, lim, m)); !slices.Equal(got, []string{"resource r >=1000/1000/1000[e0000 e0001 e0002 e0003 e0004]"}) {
			t.Errorf("%q", got)
		}
		p, err := manifest.Make(t.Context(), lim, m, manifest.PlanOptions{Exact: true})
		must(t, err)
		if got := touches(p); !slices.Equal(got, []string{"resource r 1200/1200/1200[e0000 e0001 e0002 e0003 e0004]"}) {
			t.Errorf("%q", got)
		}
	})
}
