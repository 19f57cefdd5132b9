package plan_test

import (
	"maps"
	"math"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/store"
)

func drawLimit(t *rapid.T, label string) *store.Limit {
	l := &store.Limit{Name: "l", Burst: rapid.SampledFrom([]int64{1, 1000, 10_000, 10_001, 60_000}).Draw(t, label)}
	l.Amount = l.Burst
	switch kind := rapid.SampledFrom([]string{"", "hour@UTC", "day@Europe/Berlin", "month+31@UTC", "balance"}).Draw(t, label+" kind"); kind {
	case "":
		l.Period = time.Minute
	case "balance":
		l.Amount, l.Burst = 0, clock.Balance.Burst
	default:
		w, err := calendar.Parse(kind)
		if err != nil {
			t.Fatal(err)
		}
		l.Window = w
	}
	return l
}

func take(t rapid.TB, l *store.Limit, epoch uint64, amount int64) *plan.Job {
	v, err := plan.NewView([]store.Charge{{Limit: l}})
	if err != nil {
		t.Fatal(err)
	}
	return &plan.Job{View: v, Amounts: []int64{amount}, Epoch: epoch}
}

// TestRebase checks that an item whose limit changes has the level that [clock.Rebase] gives, also if others move it
// before the write lands; or that the write does not land.
func TestRebase(t *testing.T) {
	t.Parallel()
	landed := 0
	rapid.Check(t, func(t *rapid.T) {
		at := clock.Epoch.Add(time.Duration(rapid.Int64Range(0, int64(3*366*24*time.Hour)).Draw(t, "at")))
		spent := rapid.Int64Range(1, 150_000).Draw(t, "spent")
		moved := rapid.SampledFrom([]int64{0, 0, 1, -1, 5000, -5000}).Draw(t, "moved")
		if rebased(t, drawLimit(t, "from"), drawLimit(t, "to"), at, spent, moved) {
			landed++
		}
	})
	if landed == 0 {
		t.Error("nothing landed")
	}
	rate := &store.Limit{Name: "l", Amount: 1000, Period: time.Minute, Burst: 1000}
	rebased(t, rate, &store.Limit{Name: "l", Burst: clock.Balance.Burst}, clock.Epoch, 1001, -500) // a debt that ends
}

// rebased checks one change of limits, and reports whether it landed.
func rebased(t rapid.TB, from, to *store.Limit, at time.Time, spent, moved int64) (landed bool) {
	t.Helper()
	state := plan.State{On: plan.Place{N: 1}, Latest: math.MinInt64, Rules: new(plan.Rules)}
	var item expr.Attributes
	write := func(jobs ...*plan.Job) (*plan.Write, *expr.Update) {
		var w *plan.Write
		state, w, _ = plan.Plan(state, jobs, at)
		w.Birth = 7
		u := new(expr.Update)
		w.Update(u)
		return w, u
	}
	forced := take(t, from, 1, spent)
	forced.Forced = []bool{true}
	w, u := write(forced)
	item, applied := u.Apply(item)
	it, err := plan.Parse(item)
	if !applied || err != nil {
		t.Fatalf("%v", err)
	}
	state, _ = plan.Judge(state, w, plan.Got{Item: it, Applied: true})
	w, u = write(take(t, to, 2, 0))
	if w.Upkeep == nil {
		if from.Params() != to.Params() && !from.IsBalance() {
			t.Fatalf("no change from %+v to %+v", from, to)
		}
		return false
	}
	item = maps.Clone(item)
	level, _ := it.Level("l", 0)
	level += moved
	item["L_l"] = expr.Value{Type: expr.Number, Text: strconv.FormatInt(level, 10)}
	after, applied := u.Apply(item)
	if !applied {
		if was, _ := it.Level("l", 0); level == was {
			t.Fatalf("from %+v at %d to %+v: refused", from, level, to)
		}
		return false
	}
	it, err = plan.Parse(after)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := it.Level("l", 0)
	if want := clock.Rebase(from.Params(), to.Params(), level, clock.Nanos(at)); max(got, to.Params().Clock(clock.Nanos(at))) != want {
		t.Fatalf("from %+v at %d to %+v: level %d, want %d", from, level, to, got, want)
	}
	return true
}
