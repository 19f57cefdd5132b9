package plan_test

import (
	"iter"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// TestWriteHasAnOrder checks that what a write makes of an item is what its jobs make of it one by one, in some order.
func TestWriteHasAnOrder(t *testing.T) {
	t.Parallel()
	var charges []store.Charge
	for _, name := range []string{"a", "b", "c"} {
		charges = append(charges, store.Charge{Limit: &store.Limit{Name: name, Amount: 1000, Period: time.Second, Burst: 100}})
	}
	together := 0
	rapid.Check(t, func(t *rapid.T) {
		v, err := plan.NewView(charges)
		if err != nil {
			t.Fatal(err)
		}
		at := clock.Epoch.Add(time.Hour)
		state := plan.State{On: plan.Place{N: 1}, Latest: math.MinInt64, Rules: new(plan.Rules)}
		var item expr.Attributes
		write := func(jobs ...*plan.Job) (*plan.Write, *plan.Item) {
			var w *plan.Write
			state, w, _ = plan.Plan(state, jobs, at)
			w.Birth = 7
			u := new(expr.Update)
			w.Update(u)
			after, applied := u.Apply(maps.Clone(item))
			it, err := plan.Parse(after)
			if !applied || err != nil {
				t.Fatalf("not applied: %v", err)
			}
			item = after
			state, _ = plan.Judge(state, w, plan.Got{Item: it, Applied: true})
			return w, it
		}
		amounts := func(least int64) []int64 {
			return rapid.SliceOfN(rapid.Int64Range(least, 20), len(charges), len(charges)).Draw(t, "amounts")
		}
		_, before := write(&plan.Job{View: v, Epoch: 1, Amounts: amounts(0), Forced: []bool{true, true, true}})
		at = at.Add(time.Duration(rapid.Int64Range(0, 25).Draw(t, "later")) * time.Millisecond)
		var jobs []*plan.Job
		for range rapid.IntRange(2, 4).Draw(t, "jobs") {
			j := &plan.Job{View: v, Epoch: 1, Kind: plan.Settle}
			if rapid.IntRange(0, 3).Draw(t, "take") == 0 {
				j.Kind, j.Amounts = plan.Take, amounts(0)
			} else {
				j.Amounts = amounts(-20)
			}
			jobs = append(jobs, j)
		}
		w, after := write(jobs...)
		together += len(w.Entries) - 1
		for order := range orders(w.Entries) {
			if same := one(before, order, clock.Nanos(at)); slices.Equal(same, one(after, nil, clock.Nanos(at))) {
				return
			}
		}
		var of [][]int64
		for _, e := range w.Entries {
			of = append(of, e.Job.Amounts)
		}
		t.Fatalf("from %v, %v made %v", one(before, nil, clock.Nanos(at)), of, one(after, nil, clock.Nanos(at)))
	})
	if together == 0 {
		t.Error("no write carried two jobs")
	}
}

// one returns what is outstanding of an item's limits after jobs, one by one.
func one(it *plan.Item, jobs []plan.Entry, now int64) (out []int64) {
	for i := range it.Limits {
		l := &it.Limits[i]
		reading := l.Params.Clock(now)
		level := max(l.Level, reading)
		for _, e := range jobs {
			level = max(level+e.Job.Amounts[i], reading)
		}
		out = append(out, level-reading)
	}
	return out
}

// orders yields the permutations of entries.
func orders(of []plan.Entry) iter.Seq[[]plan.Entry] {
	return func(yield func([]plan.Entry) bool) {
		var choose func(chosen, rest []plan.Entry) bool
		choose = func(chosen, rest []plan.Entry) bool {
			if len(rest) == 0 {
				return yield(chosen)
			}
			for i := range rest {
				if !choose(append(slices.Clone(chosen), rest[i]), slices.Concat(rest[:i], rest[i+1:])) {
					return false
				}
			}
			return true
		}
		choose(nil, of)
	}
}
