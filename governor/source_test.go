package governor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"github.com/weirlimits/weir/governor"
)

// change is a rate that applies from a time on.
type change struct {
	at   time.Duration
	rate float64
}

// issued returns what changing rates issue from one time to another.
func issued(changes []change, from, to time.Duration) (units float64) {
	for i, c := range changes {
		end := to
		if i+1 < len(changes) {
			end = min(to, changes[i+1].at)
		}
		units += c.rate * max(0, end-max(from, c.at)).Seconds()
	}
	return units
}

// While rates change, calls begin at most as fast as the rates issue, plus one burst of the highest.
func TestSetHoldsInAnyWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.Float64Range(1, 60)
		burst := time.Duration(rapid.IntRange(20, 2000).Draw(rt, "burst")) * time.Millisecond
		changes := []change{{0, rate.Draw(rt, "at first")}}
		for i := range rapid.IntRange(1, 12).Draw(rt, "changes") {
			after := time.Duration(rapid.IntRange(1, 3000).Draw(rt, "ms")) * time.Millisecond
			changes = append(changes, change{changes[i].at + after, rate.Draw(rt, "rate")})
		}
		workers, seed := rapid.IntRange(1, 20).Draw(rt, "workers"), rapid.Uint64().Draw(rt, "seed")
		var events []event
		highest := 0.0
		for _, c := range changes {
			highest = max(highest, c.rate)
		}
		long := changes[len(changes)-1].at + 5*time.Second
		synctest.Test(t, func(t *testing.T) {
			g := mustNew(t, governor.Config{ReadUnits: governor.Unlimited, WriteUnits: changes[0].rate, Burst: burst, Start: burst})
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			var mu sync.Mutex
			var wg sync.WaitGroup
			for i := range workers {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				wg.Go(func() {
					for ctx.Err() == nil {
						units := float64(rng.IntN(4) + 1)
						if g.Spend(ctx, governor.Write, units) != nil {
							return
						}
						mu.Lock()
						events = append(events, event{time.Since(began), units, ""})
						mu.Unlock()
						time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond) // virtual time
					}
				})
			}
			for _, c := range changes[1:] {
				time.Sleep(c.at - time.Since(began))
				if err := g.Set(governor.Rates{WriteUnits: c.rate}); err != nil {
					t.Error(err)
				}
			}
			wg.Wait()
		})
		var all float64
		for i := range events {
			var sum float64
			for _, e := range events[i:] {
				sum += e.units
				most := issued(changes, events[i].at, e.at) + highest*burst.Seconds() + max(0, 4-changes[0].rate*burst.Seconds())
				if sum > most+0.01 {
					rt.Fatalf("%v units from %v to %v: at most %v", sum, events[i].at, e.at, most)
				}
			}
			all += events[i].units
		}
		if want := issued(changes, 0, long); workers == 20 && all < 0.9*want-4*20 {
			rt.Errorf("%v units began; the rates issue %v", all, want)
		}
	})
}

// A call that waits by the old rate waits by the new one as soon as it is set.
func TestSetWakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := mustNew(t, governor.Config{ReadUnits: governor.Unlimited, WriteUnits: 1, Burst: time.Second})
		began := time.Now()
		done := make(chan error)
		go func() { done <- g.Spend(t.Context(), governor.Write, 101) }()
		time.Sleep(10 * time.Second)
		if err := g.Set(governor.Rates{WriteUnits: 90}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || time.Since(began).Round(time.Millisecond) != 11*time.Second {
			t.Errorf("%v after %v: 10 units in 10 s, then 90 in a second", err, time.Since(began))
		}
		if b := budgetOf(g, "", "", governor.Write); b.Limit != 90 || b.Rate != 90 {
			t.Errorf("%+v", b)
		}
	})
}

// In a fleet the lowest rate that a process states applies: a lower one soon, a higher one once all have stated it.
func TestSetInAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &governor.Memory{}
		var fleet []*governor.Governor
		for range 4 {
			fleet = append(fleet, mustNew(t, governor.Config{ReadUnits: 1000, WriteUnits: 1000, Coordinator: m, Refresh: time.Second}))
		}
		sum := func() (rate float64) {
			for _, g := range fleet {
				rate += budgetOf(g, "", "", governor.Write).Rate
			}
			return rate
		}
		set := func(rate float64, all ...*governor.Governor) {
			for _, g := range all {
				if err := g.Set(governor.Rates{WriteUnits: rate}); err != nil {
					t.Fatal(err)
				}
			}
		}
		within := func(wait time.Duration, low, high float64) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if rate := sum(); rate < low || rate > high {
				t.Errorf("the fleet has %v, want from %v to %v", rate, low, high)
			}
		}
		within(10*time.Second, 990, 1000)
		set(200, fleet[0])
		within(3300*time.Millisecond, 190, 200)
		set(2000, fleet[1:]...)
		within(10*time.Second, 190, 200)
		set(2000, fleet[0])
		within(10*time.Second, 1980, 2000)
		if rate := budgetOf(fleet[0], "", "", governor.Read).Rate; math.Abs(rate-250) > 1 {
			t.Errorf("the reads, which did not change, are %v", rate)
		}
	})
}

func TestSetRefuses(t *testing.T) {
	t.Parallel()
	g := mustNew(t, governor.Config{ReadUnits: governor.Unlimited, WriteUnits: 10, Tables: map[string]governor.Limits{
		"orders": {ReadUnits: 5, WriteUnits: 5, Indexes: map[string]governor.Limits{"x": {ReadUnits: 5, WriteUnits: governor.Unlimited}}},
	}})
	if _, err := g.Begin(t.Context(), "seen", governor.Write, 1); err != nil { // a table that has the account's limits
		t.Fatal(err)
	}
	table := func(l governor.Limits) governor.Rates {
		return governor.Rates{WriteUnits: 20, Tables: map[string]governor.Limits{"orders": l}}
	}
	for field, r := range map[string]governor.Rates{
		"ReadUnits":                            {WriteUnits: 20, ReadUnits: 20},
		"WriteUnits":                           {WriteUnits: governor.Unlimited},
		"Tables[orders].ReadUnits":             table(governor.Limits{ReadUnits: -1}),
		"Tables[orders].WriteUnits":            table(governor.Limits{WriteUnits: math.NaN()}),
		"Tables[orders].Indexes[x].WriteUnits": table(governor.Limits{Indexes: map[string]governor.Limits{"x": {WriteUnits: 1}}}),
		"Tables[orders].Indexes[y].ReadUnits":  table(governor.Limits{Indexes: map[string]governor.Limits{"y": {ReadUnits: 1}}}),
		"Tables[seen].WriteUnits":              {WriteUnits: 20, Tables: map[string]governor.Limits{"seen": {WriteUnits: 1}}},
		"Tables[none].WriteUnits":              {WriteUnits: 20, Tables: map[string]governor.Limits{"none": {WriteUnits: 1}}},
	} {
		var bad *governor.ConfigError
		if err := g.Set(r); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
		if b := budgetOf(g, "", "", governor.Write); b.Limit != 10 {
			t.Fatalf("%s: a part was set: %+v", field, b)
		}
	}
	if err := g.Set(table(governor.Limits{WriteUnits: 7, Indexes: map[string]governor.Limits{"x": {ReadUnits: 8}}})); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(budgetOf(g, "", "", governor.Write).Limit, budgetOf(g, "orders", "", governor.Read).Limit,
		budgetOf(g, "orders", "", governor.Write).Limit, budgetOf(g, "orders", "x", governor.Read).Limit)
	if got != "20 5 7 8" {
		t.Errorf("the limits are %s", got)
	}
}

// The rates follow what a table has. What fails, or is new, leaves the other rates in force.
func TestFollowDiscovered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := &types.TableDescription{
			TableName:             aws.String("orders"),
			ProvisionedThroughput: &types.ProvisionedThroughputDescription{ReadCapacityUnits: aws.Int64(100), WriteCapacityUnits: aws.Int64(50)},
		}
		d := tables{"orders": table}
		limits, err := governor.Discover(t.Context(), d, 0.5, "orders")
		if err != nil {
			t.Fatal(err)
		}
		g := mustNew(t, governor.Config{Tables: limits})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var failures []error
		var mu sync.Mutex
		discovered := governor.Discovered(d, 0.5, "orders")
		source := func(ctx context.Context) (governor.Rates, error) {
			mu.Lock()
			defer mu.Unlock()
			return discovered(ctx)
		}
		go g.Follow(ctx, time.Minute, source, func(err error) { failures = append(failures, err) })
		change := func(f func()) {
			mu.Lock()
			defer mu.Unlock()
			f()
		}
		after := func(want float64) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			if b := budgetOf(g, "orders", "", governor.Write); b.Limit != want {
				t.Errorf("the limit is %v, want %v", b.Limit, want)
			}
		}
		after(25)
		change(func() {
			table.ProvisionedThroughput.WriteCapacityUnits = aws.Int64(400)
			table.GlobalSecondaryIndexes = []types.GlobalSecondaryIndexDescription{{IndexName: aws.String("new")}}
		})
		after(200)
		change(func() {
			table.ProvisionedThroughput = nil
			table.OnDemandThroughput = &types.OnDemandThroughput{MaxWriteRequestUnits: aws.Int64(30)}
		})
		after(15)
		change(func() { delete(d, "orders") })
		after(15)
		var missing *types.ResourceNotFoundException
		if len(failures) != 1 || !errors.As(failures[0], &missing) {
			t.Errorf("failures: %v", failures)
		}
	})
}

func TestDaily(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // begins at midnight UTC of 2000-01-01, which is 01:00 in Berlin
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		daily, err := governor.Daily(berlin,
			governor.Hours{From: 22 * time.Hour, Rates: governor.Rates{ReadUnits: 900}},
			governor.Hours{From: 8 * time.Hour, Rates: governor.Rates{ReadUnits: 100}},
			governor.Hours{From: 19*time.Hour + 30*time.Minute, Rates: governor.Rates{ReadUnits: 500}})
		if err != nil {
			t.Fatal(err)
		}
		g := mustNew(t, governor.Config{ReadUnits: 1, WriteUnits: governor.Unlimited})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go g.Follow(ctx, 10*time.Second, daily, func(err error) { t.Error(err) })
		for _, at := range []struct{ after, limit float64 }{ // hours since midnight UTC
			{0.01, 900}, {6.99, 900}, {7.01, 100}, {18.49, 100}, {18.51, 500}, {20.99, 500}, {21.01, 900}, {24.5, 900}, {31.01, 100},
		} {
			now := time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
			time.Sleep(time.Duration(at.after*float64(time.Hour)) - now)
			synctest.Wait()
			if b := budgetOf(g, "", "", governor.Read); b.Limit != at.limit {
				t.Errorf("%v h after midnight UTC the limit is %v, want %v", at.after, b.Limit, at.limit)
			}
		}
	})
	for _, hours := range [][]governor.Hours{nil, {{From: -1}}, {{From: 24 * time.Hour}}} {
		var bad *governor.ConfigError
		if _, err := governor.Daily(time.UTC, hours...); !errors.As(err, &bad) || bad.Field != "hours" {
			t.Errorf("%v: %v", hours, err)
		}
	}
}
