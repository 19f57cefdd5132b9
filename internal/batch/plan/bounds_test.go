package plan_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/testkit/dynamotest/sizes"
	"github.com/weirlimits/weir/store"
)

// big is an item in a table, with what a process that writes to it remembers.
type big struct {
	rapid.TB

	item  expr.Attributes
	state plan.State
	at    time.Time
	texts expr.Expressions
	birth uint64
	most  int // limits of a write

	answer plan.Answer // of the last job that a write carried
}

func (b *big) forget() {
	b.state = plan.State{
		On: plan.Place{N: 1}, Latest: math.MinInt64, Rules: &plan.Rules{Guard: 0.01, RejectionTTL: time.Second, Retention: time.Hour},
	}
}

// write makes the next write for some jobs, and returns those that still wait.
func (b *big) write(jobs []*plan.Job) (later []*plan.Job) {
	var w *plan.Write
	b.state, w, later = plan.Plan(b.state, jobs, b.at)
	if w.Number == 0 {
		return later
	}
	b.birth++
	w.Birth = b.birth
	u := new(expr.Update)
	w.Update(u)
	if w.Creates() {
		plan.List(u, "index", "sort")
	}
	x := b.texts.Of(u)
	if err := sizes.CheckUpdate(x.Change, x.Condition, x.Names); err != nil {
		b.Fatalf("%d jobs, %d limits, seen %t: %v", len(w.Entries), len(w.Totals), w.Last != nil, err)
	}
	b.most = max(b.most, len(w.Totals))
	after, applied := u.Apply(b.item)
	b.item = after
	it, err := plan.Parse(after)
	if err != nil {
		b.Fatalf("%v", err)
	}
	var answers []plan.Answer
	b.state, answers = plan.Judge(b.state, w, plan.Got{Item: it, Applied: applied})
	for _, a := range answers {
		b.answer = a
		if a.Verdict == plan.Again {
			a.Job.Tries++
			later = append([]*plan.Job{a.Job}, later...)
		}
	}
	return later
}

// draw draws a job with up to as many limits as one may have, out of a few sets of limits and many overrides.
func (b *big) draw(t *rapid.T) *plan.Job {
	var charges []store.Charge
	j := &plan.Job{Kind: rapid.SampledFrom([]plan.Kind{plan.Take, plan.Take, plan.Settle}).Draw(t, "kind"), Epoch: 1}
	set := rapid.IntRange(0, 4).Draw(t, "set")
	own := rapid.SampledFrom([]int{0, 1, 40, store.MaxLimits}).Draw(t, "own")
	slots := rapid.IntRange(0, 2).Draw(t, "slots") == 0
	for i := range own {
		l := store.Limit{Name: fmt.Sprint(set, "-", i), Amount: 1000, Period: time.Second, Burst: 60_000}
		if slots {
			l = *store.Slots(l.Name, 60_000, rapid.SampledFrom([]time.Duration{30 * time.Second, 45 * time.Second}).Draw(t, "heal"))
		}
		charges = append(charges, store.Charge{Limit: &l})
	}
	first := rapid.IntRange(0, 40).Draw(t, "first override")
	for i := range rapid.SampledFrom([]int{0, 1, store.MaxOverrides}).Draw(t, "overrides") {
		l := store.Limit{Name: "o", Amount: 1000, Period: time.Second, Burst: int64(60_000 + first + i), Override: true}
		charges = append(charges, store.Charge{Limit: &l})
	}
	if len(charges) == 0 {
		l := store.Limit{Name: "lone", Amount: 1000, Period: time.Second, Burst: 60_000}
		charges = append(charges, store.Charge{Limit: &l})
	}
	v, err := plan.NewView(charges)
	if err != nil {
		b.Fatalf("%v", err)
	}
	j.View, j.Amounts = v, make([]int64, len(charges))
	j.Epoch += uint64(set)
	how := rapid.IntRange(0, 3).Draw(t, "amounts")
	for i := range j.Amounts {
		switch {
		case how == 0:
		case how == 1 && j.Kind == plan.Settle:
			j.Amounts[i] = -100
		case how < 3 || i%2 == 0:
			j.Amounts[i] = 100
		}
	}
	if j.Kind == plan.Settle && slots {
		j.Terms = b.holds(v)
	}
	if j.Kind == plan.Take && rapid.Bool().Draw(t, "forced") {
		j.Forced = make([]bool, len(charges))
		for i := range j.Forced {
			j.Forced[i] = true
		}
	}
	return j
}

// holds returns terms that renew or give back what the item was last seen to hold.
func (b *big) holds(v *plan.View) *plan.Terms {
	n := len(v.Names)
	y := &plan.Terms{MaxDebt: make([]int64, n), Strict: make([]bool, n), Holds: make([]*store.Hold, n)}
	for i, name := range v.Names {
		if it := b.state.Last; it != nil && it.Held != 0 && v.Limits[i].IsSlots() && it.Find(name) != nil {
			h := it.Find(name).Slots
			y.Holds[i] = &store.Hold{Birth: it.Held, End: clock.Time([]int64{h.End, h.PrevEnd}[i%2])}
		}
	}
	return y
}

// TestWritesFit: whatever jobs come together, each write is within DynamoDB's bounds on expressions, and every job is
// answered.
func TestWritesFit(t *testing.T) {
	t.Parallel()
	most := 0
	rapid.Check(t, func(rt *rapid.T) {
		b := &big{TB: rt, at: now, birth: 1}
		b.forget()
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			if rapid.Bool().Draw(rt, "another process") {
				b.forget()
			}
			b.at = b.at.Add(rapid.SampledFrom([]time.Duration{0, time.Millisecond, 20 * time.Second, time.Hour}).Draw(rt, "pause"))
			var jobs []*plan.Job
			for range rapid.IntRange(1, 6).Draw(rt, "jobs") {
				j := b.draw(rt)
				j.Since, j.Came = b.state.Sent, b.state.Tick(b.at)
				jobs = append(jobs, j)
			}
			for tries := 0; len(jobs) > 0; tries++ {
				if jobs = b.write(jobs); tries > 60 {
					rt.Fatalf("%d jobs have no answer", len(jobs))
				}
			}
		}
		most = max(most, b.most)
	})
	if !testing.Short() && most < store.MaxLimits+store.MaxOverrides {
		t.Errorf("no write had more than %d limits", most)
	}
}

// TestSlotsWritesFit: a job may have as many limits of slots and overrides as a bucket may have, whatever is held.
func TestSlotsWritesFit(t *testing.T) {
	t.Parallel()
	b := &big{TB: t, at: now, birth: 1}
	b.forget()
	view := func(heal time.Duration, overrides int) *plan.View {
		var charges []store.Charge
		for i := range store.MaxLimits {
			charges = append(charges, store.Charge{Limit: store.Slots(fmt.Sprint(i), 60_000, heal)})
		}
		for i := range int64(overrides) {
			l := store.Limit{Name: "o", Amount: 1000, Period: time.Second, Burst: 60_000 + i, Override: true}
			charges = append(charges, store.Charge{Limit: &l})
		}
		v, err := plan.NewView(charges)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	do := func(j *plan.Job, cur, prev int64) plan.Answer {
		t.Helper()
		b.at, j.Epoch = b.at.Add(time.Second), uint64(b.at.Unix())
		j.Since, j.Came = b.state.Sent, b.state.Tick(b.at)
		for jobs := []*plan.Job{j}; len(jobs) > 0 && j.Tries < 9; {
			jobs = b.write(jobs)
		}
		for i, l := range b.state.Last.Limits {
			if h := l.Slots; l.Params.Heal > 0 && (h.Cur != cur || h.Prev != prev) {
				t.Fatalf("%d: %+v, want %d and %d", i, h, cur, prev)
			}
		}
		return b.answer
	}
	take := func(v *plan.View, amount, cur, prev int64) plan.Answer {
		j := &plan.Job{View: v, Amounts: make([]int64, len(v.Names))}
		for i := range store.MaxLimits {
			j.Amounts[i] = amount
		}
		return do(j, cur, prev)
	}
	const heal = 30 * time.Second
	v := view(heal, 0)
	first := take(v, 100, 100, 0)
	take(view(heal, store.MaxOverrides), 0, 100, 0)
	b.at = b.at.Add(heal)
	take(v, 50, 50, 100)
	undo := first.Undo()
	do(&plan.Job{Kind: plan.Settle, View: v, Amounts: slices.Repeat([]int64{60}, len(v.Names)), Terms: undo.Terms}, 110, 40)
	do(undo, 50, 0)
	b.at = b.at.Add(heal)
	take(v, 1, 1, 50)
	take(view(2*heal, 0), 2, 2, 51)
	take(view(2*heal, 0), 60_000, 2, 51)
	if b.answer.Verdict == plan.Allowed {
		t.Error("more was taken than is free")
	}
}

// TestOverrideCountedOnce: an override that one job of a write only names and another one debits is counted.
func TestOverrideCountedOnce(t *testing.T) {
	t.Parallel()
	v, err := plan.NewView([]store.Charge{{Limit: &store.Limit{
		Name: "o", Amount: 1000, Period: time.Second, Burst: 60_000, Override: true,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		b := &big{TB: rt, at: now, birth: 1}
		b.forget()
		var jobs []*plan.Job
		for _, amount := range rapid.Permutation([]int64{0, 100, 200}).Draw(rt, "amounts") {
			jobs = append(jobs, &plan.Job{View: v, Amounts: []int64{amount}})
		}
		for len(jobs) > 0 {
			jobs = b.write(jobs)
		}
		if got := b.state.Last.Overrides; got != 1 {
			rt.Fatalf("%d overrides are counted", got)
		}
	})
}
