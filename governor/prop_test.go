package governor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/governor"
)

// load describes what goroutines do to a governor with two tables, one of which has its own budget.
type load struct {
	account, table float64
	burst          time.Duration
	workers        int
	cost           float64 // at most
	constant       bool
	errors         float64 // by how much a call costs more than estimated, at most
	seed           uint64
}

// event is the start of a call.
type event struct {
	at    time.Duration
	units float64
	table string
}

// run returns the calls that began during the run, and how long it ran.
func (l load) run(t *testing.T) (events []event, took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		g := mustNew(t, governor.Config{
			ReadUnits: governor.Unlimited, WriteUnits: l.account, Burst: l.burst, Start: l.burst,
			Tables: map[string]governor.Limits{"narrow": {ReadUnits: governor.Unlimited, WriteUnits: l.table}},
		})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range l.workers {
			rng := rand.New(rand.NewPCG(l.seed, uint64(i)))
			table := []string{"narrow", "wide"}[i%2]
			wg.Go(func() {
				for ctx.Err() == nil {
					estimate := l.cost
					if !l.constant {
						estimate = max(0.5, float64(rng.IntN(int(l.cost*2)+1))/2)
					}
					settle, err := g.Begin(ctx, table, governor.Write, estimate)
					if err != nil {
						return
					}
					cost := estimate + float64(rng.IntN(int(l.errors*2)+1))/2
					mu.Lock()
					events = append(events, event{time.Since(began), cost, table})
					mu.Unlock()
					time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond) // virtual time
					settle(cost)
				}
			})
		}
		wg.Wait()
		took = 10 * time.Second
	})
	slices.SortFunc(events, func(a, b event) int { return int(a.at - b.at) })
	return events, took
}

// exceeds returns the first window in which more began than a rate and a burst allow, and the excess.
func exceeds(events []event, rate float64, burst time.Duration, more float64) error {
	for i := range events {
		var sum float64
		for _, e := range events[i:] {
			sum += e.units
			within := (e.at - events[i].at).Seconds()
			if allowed := rate*(within+burst.Seconds()) + more; sum > allowed+0.01 {
				return fmt.Errorf("%v units within %.3f s from %v on: %v are allowed", sum, within, events[i].at, allowed)
			}
		}
	}
	return nil
}

func of(events []event, table string) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.table != table })
}

// For any mix of calls, in any window: at most the rate times the time, one burst, and the estimation errors of calls in
// flight.
func TestBudgetHoldsInAnyWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		l := load{
			account:  rapid.Float64Range(5, 60).Draw(rt, "account"),
			table:    rapid.Float64Range(1, 60).Draw(rt, "table"),
			burst:    time.Duration(rapid.IntRange(20, 2000).Draw(rt, "burst")) * time.Millisecond,
			workers:  rapid.IntRange(1, 40).Draw(rt, "workers"),
			cost:     float64(rapid.IntRange(1, 8).Draw(rt, "cost")),
			constant: rapid.Bool().Draw(rt, "constant"),
			seed:     rapid.Uint64().Draw(rt, "seed"),
		}
		l.errors = float64(rapid.IntRange(0, 2).Draw(rt, "errors"))
		events, _ := l.run(t)
		more := l.errors * float64(l.workers)
		if err := exceeds(events, l.account, l.burst, more+max(0, l.cost-l.account*l.burst.Seconds())); err != nil {
			rt.Error("account: ", err)
		}
		if err := exceeds(of(events, "narrow"), l.table, l.burst, more+max(0, l.cost-l.table*l.burst.Seconds())); err != nil {
			rt.Error("table: ", err)
		}
	})
}

// Under demand the whole budget is used, to the unit.
func TestBudgetIsUsed(t *testing.T) {
	t.Parallel()
	for _, l := range []load{
		{account: 100, table: 1000, burst: 2 * time.Second, workers: 40, cost: 1, constant: true},
		{account: 100, table: 1000, burst: 2 * time.Second, workers: 40, cost: 7},
		{account: 100, table: 1000, burst: 50 * time.Millisecond, workers: 40, cost: 8},
		{account: 100, table: 10, burst: 50 * time.Millisecond, workers: 40, cost: 2},
	} {
		t.Run(fmt.Sprintf("%+v", l), func(t *testing.T) {
			t.Parallel()
			events, took := l.run(t)
			var sum float64
			for _, e := range events {
				sum += e.units
			}
			issued := l.account * (took + l.burst).Seconds()
			if part := sum / issued; part < 0.98 || part > 1.0001 {
				t.Errorf("%.4f of the budget was used", part)
			}
		})
	}
}
