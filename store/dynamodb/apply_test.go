package dynamodb_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// twin is an item in a table, and as [expr.Update.Apply] has it.
type twin struct {
	*rapid.T

	st    *stage
	s     *dynamodb.Store
	key   map[string]types.AttributeValue
	attrs expr.Attributes
	now   time.Time
}

// apply makes a write on both, and returns the item as it then is.
func (w *twin) apply(u *expr.Update) (it *plan.Item, applied bool) {
	_, err := w.st.fake.UpdateItem(w.st.Context(), w.s.Input(w.key, u))
	w.attrs, applied = u.Apply(w.attrs)
	if applied != (err == nil) {
		w.Fatalf("applied %t, the table: %v", applied, err)
	}
	var item map[string]types.AttributeValue
	for _, it := range w.st.fake.Items(stageTable) {
		if it["PK"].(*types.AttributeValueMemberS).Value == w.key["PK"].(*types.AttributeValueMemberS).Value {
			item = it
		}
	}
	have := make(expr.Attributes)
	for name, v := range item {
		switch v := v.(type) {
		case *types.AttributeValueMemberN:
			have[name] = expr.Value{Type: expr.Number, Text: v.Value}
		case *types.AttributeValueMemberS:
			have[name] = expr.Value{Type: expr.Text, Text: v.Value}
		}
	}
	delete(have, "PK")
	delete(have, "SK")
	want := maps.Clone(w.attrs)
	delete(want, "PK")
	if !maps.Equal(have, want) {
		w.Fatalf("the table has %v, want %v", have, want)
	}
	it, err = plan.Parse(w.attrs)
	if err != nil {
		w.Fatal(err)
	}
	return it, applied
}

// drawJob draws a job on some of three limits, one of them an override.
func drawJob(t *rapid.T, views map[string]*plan.View, s *plan.State) *plan.Job {
	names := slices.Sorted(maps.Keys(views))
	v := views[rapid.SampledFrom(names).Draw(t, "view")]
	kind := rapid.SampledFrom([]plan.Kind{plan.Take, plan.Take, plan.Take, plan.Settle}).Draw(t, "kind")
	j := &plan.Job{
		Kind: kind, View: v, Amounts: make([]int64, len(v.Limits)), Epoch: rapid.Uint64Range(1, 3).Draw(t, "epoch"),
		Arrival: plan.Arrival{
			Since: s.Sent - uint64(rapid.IntRange(0, min(1, int(s.Sent))).Draw(t, "waited")), Came: s.Latest,
		},
		Counts: kind == plan.Take,
	}
	for i := range j.Amounts {
		least := int64(0)
		if kind == plan.Settle {
			least = -5000
		}
		j.Amounts[i] = rapid.Int64Range(least, 20_000).Draw(t, "amount")
	}
	if kind == plan.Settle && v.Slots {
		n := len(v.Limits)
		j.Terms = &plan.Terms{MaxDebt: make([]int64, n), Strict: make([]bool, n), Holds: make([]*store.Hold, n)}
		if it := s.Last; it != nil && it.Find(v.Names[n-1]) != nil {
			h := it.Find(v.Names[n-1]).Slots
			j.Terms.Holds[n-1] = &store.Hold{
				Birth: it.Held, End: clock.Time(rapid.SampledFrom([]int64{h.End, h.PrevEnd}).Draw(t, "end")),
			}
		}
	}
	if kind == plan.Take && rapid.IntRange(0, 5).Draw(t, "forced") == 0 {
		j.Forced = make([]bool, len(j.Amounts))
		j.Forced[0] = true
	}
	if kind == plan.Take && rapid.IntRange(0, 5).Draw(t, "shadow") == 0 {
		j.Shadow = make([]bool, len(j.Amounts))
		j.Shadow[len(j.Amounts)-1] = true
	}
	return j
}

// TestApply checks that [expr.Update.Apply] makes of an item what the table makes of it, for what two planners write that
// do not see each other's writes, and for the steps of a split.
func TestApply(t *testing.T) {
	t.Parallel()
	top := t
	slow, fast, other := per("rpm", 60, time.Minute, 60), per("rpm", 120, time.Minute, 90), per("tpm", 600, time.Minute, 1000)
	over := *slow
	over.Override = true
	views := make(map[string]*plan.View)
	for name, limits := range map[string][]*store.Limit{
		"slow": {slow}, "fast": {fast}, "two": {slow, other}, "over": {&over}, "with over": {slow, &over},
		"slots": {store.Slots("rpm", 30_000, 16*time.Second)}, "with slots": {slow, store.Slots("tpm", 30_000, 16*time.Second)},
	} {
		var charges []store.Charge
		for _, l := range limits {
			charges = append(charges, store.Charge{Limit: l})
		}
		v, err := plan.NewView(charges)
		if err != nil {
			t.Fatal(err)
		}
		views[name] = v
	}
	forms := make(map[string]int)
	rapid.Check(t, func(t *rapid.T) {
		st := newStage(top)
		w := &twin{T: t, st: st, s: st.open(), key: dynamodb.BucketKey(bkt("a"), 0), now: noon}
		rules := &plan.Rules{Guard: 0.01, RejectionTTL: time.Second}
		planners := make([]plan.State, 2)
		for i := range planners {
			planners[i] = plan.State{On: plan.Place{N: 1}, Rules: rules, Latest: math.MinInt64}
		}
		var undos []*plan.Job
		var last *plan.Item
		births := uint64(0)
		for range rapid.IntRange(1, 25).Draw(t, "writes") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "after")) * time.Millisecond)
			births++
			if rapid.IntRange(0, 5).Draw(t, "long") == 0 {
				w.now = w.now.Add(10 * time.Second)
			}
			if last != nil && rapid.IntRange(0, 12).Draw(t, "step") == 0 {
				last = w.split(last, births, forms)
				continue
			}
			s := &planners[rapid.IntRange(0, 1).Draw(t, "planner")]
			if s.Last != nil && !s.Last.Frozen {
				s.On.N = s.Last.Shards
			}
			var jobs []*plan.Job
			for range rapid.IntRange(1, 3).Draw(t, "jobs") {
				jobs = append(jobs, drawJob(t, views, s))
			}
			if len(undos) > 0 && rapid.Bool().Draw(t, "undo") {
				jobs, undos = append(undos[:1:1], jobs...), undos[1:]
			}
			next, write, _ := plan.Plan(*s, jobs, w.now)
			*s = next
			if write.Number == 0 {
				continue
			}
			write.Birth = births
			u := new(expr.Update)
			write.Update(u)
			it, applied := w.apply(u)
			forms[fmt.Sprintf("%v %t", write.Entries[0].Job.Kind, applied)]++
			if write.Entries[0].Job.View.Slots {
				forms[fmt.Sprintf("slots %v %t", write.Entries[0].Job.Kind, applied)]++
			}
			next, answers := plan.Judge(*s, write, plan.Got{Item: it, Applied: applied})
			if *s, last = next, it; !applied {
				continue
			}
			for i := range answers {
				if a := &answers[i]; a.Verdict == plan.Allowed && a.Job.Kind == plan.Take {
					undos = append(undos, a.Undo())
				}
			}
		}
	})
	for _, form := range []string{
		"take true", "take false", "settle true", "settle false", "undo true", "undo false", "freeze", "convert", "refill",
		"slots take true", "slots take false", "slots settle true", "slots settle false", "slots undo true", "slots undo false",
	} {
		if !testing.Short() && forms[form] == 0 {
			t.Errorf("%s: not tried (%v)", form, forms)
		}
	}
}

// split makes the next step of a split of shard 0, or fills the shard anew.
func (w *twin) split(last *plan.Item, id uint64, forms map[string]int) *plan.Item {
	now := clock.Nanos(w.now)
	var u *expr.Update
	switch {
	case last.Frozen:
		u = last.Convert(0, now)
		forms["convert"]++
	case last.Shards < 4 && rapid.Bool().Draw(w.T, "freeze"):
		u = last.FreezeRoot(now)
		forms["freeze"]++
	default:
		u, _ = last.Refill(0, last, id, now)
		forms["refill"]++
	}
	it, _ := w.apply(u)
	return it
}
