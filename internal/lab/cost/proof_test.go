package cost_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/fleet/configflow"
	"github.com/weirlimits/weir/internal/fleet/instances"
	"github.com/weirlimits/weir/internal/lab/cost"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// stage is an in-memory table that records its cost, its stream, and a limiter over it.
type stage struct {
	*testing.T

	fake    *dynamotest.Fake
	store   *dynamodb.Store
	lim     *weir.Limiter
	mu      sync.Mutex
	records []dynamodb.StreamRecord
	units   dynamotest.Units
	calls   int
}

type unscanned struct{ *dynamotest.Fake }

func (unscanned) Scan(context.Context, *sdk.ScanInput, ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	return new(sdk.ScanOutput), nil
}

func newStage(t *testing.T, limits ...weir.Limit) *stage {
	t.Helper()
	st := &stage{T: t}
	st.fake = &dynamotest.Fake{Changed: func(_ string, old, replaced map[string]types.AttributeValue) {
		keys := replaced
		if keys == nil {
			keys = old
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		st.records = append(st.records, dynamodb.StreamRecord{
			Keys: map[string]types.AttributeValue{"PK": keys["PK"], "SK": keys["SK"]}, Old: old, New: replaced, Created: time.Now(),
		})
	}}
	if _, err := dynamodb.Create(t.Context(), unscanned{st.fake}, "limits", dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	var err error
	if st.store, err = dynamodb.New(dynamodb.Config{Client: st.fake, Table: "limits", Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	if st.lim, err = weir.New(weir.Config{Store: st.store}); err != nil {
		t.Fatal(err)
	}
	if err := admin.New(st.lim).Limits.Set(t.Context(), admin.Scope{}, limits...); err != nil {
		t.Fatal(err)
	}
	return st
}

func (st *stage) close() {
	st.lim.Close()
	st.store.Close()
}

func (st *stage) acquire(entity string) {
	st.Helper()
	_, err := st.lim.Acquire(st.Context(), weir.Request{Entity: entity, Resource: "api", Tokens: weir.Tokens{"rpm": 1}})
	if err != nil && !errors.Is(err, weir.ErrExceeded) {
		st.Fatal(err)
	}
}

// spent compares the calls and consumed capacity since the previous check with the estimate.
func (st *stage) spent(what string, calls int, read, write float64) {
	st.Helper()
	n := 0
	for _, c := range st.fake.Calls() {
		n += c
	}
	u := st.fake.Capacity()
	if gotRead, gotWrite := u.Read-st.units.Read, u.Write-st.units.Write; n-st.calls != calls || gotRead != read || gotWrite != write {
		st.Errorf("%s: %d calls, %g RCU, %g WCU; want %d, %g, %g", what, n-st.calls, gotRead, gotWrite, calls, read, write)
	}
	st.units, st.calls = u, n
}

// since resets the totals.
func (st *stage) since() {
	synctest.Wait()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.calls = 0
	for _, c := range st.fake.Calls() {
		st.calls += c
	}
	st.units, st.records = st.fake.Capacity(), nil
}

// part returns one part of an estimate, for a single operation.
func part(t *testing.T, tr cost.Traffic, name string) cost.Part {
	t.Helper()
	e, err := tr.Of(prices(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range e.Parts {
		if p.Name == name {
			return cost.Part{Name: p.Name, Calls: p.Calls / p.Count, Read: p.Read / p.Count, Write: p.Write / p.Count}
		}
	}
	t.Fatalf("nothing is called %q: %+v", name, e.Parts)
	return cost.Part{}
}

// TestLookups: a limiter reads from a table as much as estimated, also for names that are refused because nobody created
// them: 1,000, and then 100 a second.
func TestLookups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, weir.PerMinute("rpm", 1000))
		defer st.close()
		st.acquire("a")
		st.since()
		miss, fresh := part(t, cost.Default(), "limit lookups"), cost.Of("acquire, brand-new bucket")
		for i := range 3 {
			st.acquire(fmt.Sprint("other", i))
			st.spent("another entity", int(miss.Calls)+fresh.Calls, miss.Read, fresh.Write)
		}
		st.acquire("a")
		st.spent("one that is remembered", 1, 0, 1)
		if err := admin.New(st.lim).Limits.SetEntities(t.Context(), admin.KnownEntities); err != nil {
			t.Fatal(err)
		}
		st.since()
		for i := range 1000 {
			_, err := st.lim.Acquire(t.Context(), weir.Request{Entity: fmt.Sprint("invented", i), Resource: "api"})
			if !errors.Is(err, weir.ErrUnknownEntity) {
				t.Fatal(err)
			}
			if i > 0 { // the first one reads the settings
				st.spent("a refused one", int(miss.Calls), miss.Read, 0)
			} else {
				st.since()
			}
		}
		_, err := st.lim.Acquire(t.Context(), weir.Request{Entity: "one more", Resource: "api"})
		if !errors.Is(err, weir.ErrOverloaded) {
			t.Fatal(err)
		}
		st.spent("too many", 0, 0, 0)
		money := estimate(t, cost.Default(), prices(t)).Money
		if !near(money.Invented, 4610, 1) || !near(money.InventedKnown, 100*730*3600*miss.Read*0.125/1e6, 0.01) || money.Names != 1000 {
			t.Errorf("%+v", money)
		}
	})
}

// TestGroups: a group and a total with limits cost a write each, for each entity, and reads of limits as estimated.
func TestGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, weir.PerMinute("rpm", 1000))
		defer st.close()
		a := admin.New(st.lim)
		for err := range map[error]bool{
			a.Limits.SetGroup(t.Context(), "api", "apis"):                                                             true,
			a.Limits.Set(t.Context(), admin.Scope{Resource: weir.GroupResource("apis")}, weir.PerMinute("rpm", 1000)): true,
			a.Limits.Set(t.Context(), admin.Scope{Resource: weir.TotalResource}, weir.PerMinute("rpm", 1000)):         true,
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		st.acquire("a")
		st.acquire("a")
		st.since()
		tr := cost.Default()
		tr.Groups = 2
		e, err := tr.Of(prices(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		st.acquire("a")
		st.spent("warm", int(e.Parts[0].Count/hour), 0, e.Parts[0].Write/hour)
		st.acquire("b")
		miss, fresh := part(t, tr, "limit lookups"), cost.Of("acquire, brand-new bucket")
		st.spent("another entity", int(miss.Calls)+3*fresh.Calls, miss.Read, 3*fresh.Write)
	})
}

// hour is how many requests the default has in an hour.
const hour = 3600

// TestBooking: the ledger writes for a batch as much as estimated, whatever windows are chosen.
func TestBooking(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"hourly", "daily", "monthly"}, {"daily", "monthly"}, {"daily"}} {
		testBooking(t, names)
	}
}

func testBooking(t *testing.T, names []string) {
	t.Helper()
	chosen, err := store.ParseWindows(strings.Join(names, ","))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, weir.PerMinute("rpm", 1000))
		defer st.close()
		ledger := st.store.Ledger(dynamodb.Metering{Windows: chosen})
		book := func() {
			if _, err := ledger.Book(t.Context(), slices.Values(st.records)); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range []int{1, 20, 22, 23, 50, 100} {
			for i := range n {
				st.acquire(fmt.Sprint("e", i))
			}
			book()
			st.since()
			for i := range n {
				st.acquire(fmt.Sprint("e", i))
			}
			synctest.Wait()
			st.calls, st.units = 0, st.fake.Capacity()
			book()
			tr := cost.Default() // every bucket is in every batch
			tr.Requests, tr.Entities, tr.Booking, tr.Batch = 1e7, float64(n), cost.Function, 10_000
			want := part(t, tr, "stream batches booked").Write
			tr.Windows = strings.Join(names, ",")
			for _, w := range names {
				want += part(t, tr, "  "+w+" windows").Write
			}
			got := st.fake.Capacity().Write - st.units.Write
			if got != want {
				t.Errorf("%s of %d buckets: %g WCU, estimated %g", names, n, got, want)
			}
		}
	})
}

// TestTold: refusals are handed over in as many writes as estimated.
func TestTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, weir.PerDay("rpm", 1))
		defer st.close()
		for i := range 200 {
			st.acquire(fmt.Sprint(i))
			st.acquire(fmt.Sprint(i))
		}
		st.since()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		tr := cost.Default()
		tr.Requests, tr.Refused, tr.Entities = 1e6, 1, 200
		want := part(t, tr, "refusal and adjustment counts")
		st.spent("told of 200 buckets", int(want.Calls+0.5), 0, float64(int(want.Write+0.5)))
	})
}

// TestHeartbeats: processes spend on heartbeats, and on counting each other, as much as estimated.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 32} {
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t, weir.PerDay("rpm", 1))
			defer st.close()
			ctx, stop := context.WithCancel(t.Context())
			for range processes {
				go func() { _ = instances.New(st.store, slog.New(slog.DiscardHandler)).Run(ctx) }()
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			st.since()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			tr := cost.Default()
			tr.Heartbeat, tr.Processes = true, float64(processes)
			beats := 2. * 60 / 5
			now := st.fake.Capacity()
			for what, got := range map[string][2]float64{
				"write": {now.Write - st.units.Write, beats * float64(processes+1) * part(t, tr, "heartbeats").Write},
				"read":  {now.Read - st.units.Read, beats * part(t, tr, "process counts").Read},
			} {
				if used, want := got[0], got[1]; used < 0.9*want || used > 1.1*want {
					t.Errorf("%d processes: %g %s units, estimated %g", processes, used, what, want)
				}
			}
			stop()
			synctest.Wait()
		})
	}
}

// TestPolls: an idle server reads as much as estimated.
func TestPolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, weir.PerDay("rpm", 1))
		defer st.close()
		st.acquire("a")
		ctx, stop := context.WithCancel(t.Context())
		flow := configflow.New(configflow.Config{Limiter: st.lim, Store: st.store, Poll: 5 * time.Second, Log: slog.New(slog.DiscardHandler)})
		go func() { _ = flow.Run(ctx) }()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		st.since()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		tr := cost.Default()
		tr.Poll = 5
		want := 10 * 60 / 5 * part(t, tr, "polls for changes").Read
		if got := st.fake.Capacity().Read - st.units.Read; got < 0.9*want || got > 1.1*want {
			t.Errorf("%g RCU, estimated %g", got, want)
		}
		stop()
		synctest.Wait()
	})
}
