package dynamodb_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/lab/cost"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestCost checks the table of what each operation costs.
func TestCost(t *testing.T) {
	t.Parallel()
	rpm, small := per("rpm", 100, time.Hour, 100), per("rpm", 1, time.Hour, 1)
	alice, parent := bkt("alice"), bkt("parent")
	limits := store.Key{Kind: store.KindResourceLimits, Namespace: "n", ID: "api"}
	entity := store.Key{Kind: store.KindEntity, Namespace: "n", ID: "alice"}
	proved := make(map[string]bool)
	for _, tt := range []struct {
		name        string
		calls       int
		read, write float64
		first       func(st *stage, s *dynamodb.Store) // preparation, which is not counted
		then        func(st *stage, s *dynamodb.Store)
	}{
		{
			"acquire, warm", 1, 0, 1,
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 1)) },
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 1)) },
		},
		{
			"acquire, refilled", 1, 0, 1,
			func(st *stage, s *dynamodb.Store) {
				st.want(s, true, of(alice, rpm, 100))
				st.clock.Advance(2 * time.Hour)
			},
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 100)) },
		},
		{
			"acquire, another process's bucket", 1, 0, 1,
			func(st *stage, _ *dynamodb.Store) {
				st.want(st.open(), true, of(alice, rpm, 1))
				st.clock.Advance(time.Hour)
			},
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 1)) },
		},
		{
			"acquire, brand-new bucket", 1, 0, 2, nil,
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 1)) },
		},
		{
			"refused, first time", 1, 0, 1,
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 100)) },
			func(st *stage, s *dynamodb.Store) { st.want(s, false, of(alice, rpm, 1)) },
		},
		{
			"refused again", 0, 0, 0,
			func(st *stage, s *dynamodb.Store) {
				st.want(s, true, of(alice, rpm, 100))
				st.want(s, false, of(alice, rpm, 1))
			},
			func(st *stage, s *dynamodb.Store) { st.want(s, false, of(alice, rpm, 1)) },
		},
		{
			"cascade, two levels", 2, 0, 2,
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 1), of(parent, rpm, 1)) },
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 1), of(parent, rpm, 1)) },
		},
		{
			"cascade, the child refuses", 1, 0, 1,
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, small, 1), of(parent, rpm, 1)) },
			func(st *stage, s *dynamodb.Store) { st.want(s, false, of(alice, small, 1), of(parent, rpm, 1)) },
		},
		{ // another process has spent the parent; the child's debit is returned
			"cascade, the parent refuses", 3, 0, 3,
			func(st *stage, s *dynamodb.Store) {
				st.want(s, true, of(alice, rpm, 1))
				st.want(st.open(), true, of(parent, small, 1))
			},
			func(st *stage, s *dynamodb.Store) {
				st.want(s, false, of(alice, rpm, 1), of(parent, small, 1))
				s.Close()
			},
		},
		{
			"wrong guess", 2, 0, 2,
			func(st *stage, _ *dynamodb.Store) { st.want(st.open(), true, of(alice, rpm, 1)) },
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 1)) },
		},
		{
			"adjust", 1, 0, 1,
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 1)) },
			func(st *stage, s *dynamodb.Store) { st.settle(s, of(alice, rpm, 5)) },
		},
		{
			"rollback", 1, 0, 1,
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 1)) },
			func(st *stage, s *dynamodb.Store) { st.settle(s, of(alice, rpm, -1)) },
		},
		{
			"return of a lease held elsewhere", 2, 0, 2,
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 1)) },
			func(st *stage, s *dynamodb.Store) {
				if _, err := s.Settle(st.Context(), store.Settle{ID: "x", Expires: st.clock.Now().Add(time.Hour), Debits: []store.Debit{of(alice, rpm, -1)}}); err != nil {
					st.Fatal(err)
				}
			},
		},
		{ // read consistently, and with the namespace's epoch: a unit each
			"config miss, two records", 1, 3, 0,
			func(st *stage, s *dynamodb.Store) { st.get(s, limits) },
			func(st *stage, s *dynamodb.Store) { st.get(s, limits, entity) },
		},
		{
			"available", 1, 1, 0,
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 1)) },
			func(st *stage, s *dynamodb.Store) {
				if _, err := s.Peek(st.Context(), alice); err != nil {
					st.Fatal(err)
				}
			},
		},
		{
			"forget", 1, 0, 2,
			func(st *stage, s *dynamodb.Store) { st.want(s, true, of(alice, rpm, 1)) },
			func(st *stage, s *dynamodb.Store) {
				if err := s.Forget(st.Context(), alice); err != nil {
					st.Fatal(err)
				}
			},
		},
	} {
		st := newStage(t)
		s := st.open()
		if tt.first != nil {
			tt.first(st, s)
		}
		before := st.fake.Capacity()
		calls := st.spent(func() { tt.then(st, s) })
		after := st.fake.Capacity()
		if read, write := after.Read-before.Read, after.Write-before.Write; calls != tt.calls || read != tt.read || write != tt.write {
			t.Errorf("%s: %d calls, %g RCU, %g WCU; want %d, %g, %g", tt.name, calls, read, write, tt.calls, tt.read, tt.write)
		}
		proved[tt.name] = true
		if op := cost.Of(tt.name); op.Calls != tt.calls || op.Read != tt.read || op.Write != tt.write {
			t.Errorf("%s: weir cost reckons with %+v", tt.name, op)
		}
	}
	for _, op := range cost.Operations {
		if !proved[op.Name] {
			t.Errorf("weir cost reckons with %s, which nothing proves", op.Name)
		}
	}
}

func (st *stage) get(s *dynamodb.Store, keys ...store.Key) {
	st.Helper()
	if _, err := s.Get(st.Context(), keys...); err != nil {
		st.Fatal(err)
	}
}

// TestCostShared checks that callers that arrive while a write is under way share the next.
func TestCostShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open()
		rpm, alice, parent := per("rpm", 1000, time.Hour, 1000), bkt("alice"), bkt("parent")
		st.slow(50 * time.Millisecond)
		var group sync.WaitGroup
		group.Go(func() { st.want(s, true, of(alice, rpm, 1)) })
		synctest.Wait()
		for range 200 {
			group.Go(func() { st.want(s, true, of(alice, rpm, 1)) })
		}
		if n := st.spent(group.Wait); n != 1 {
			t.Errorf("200 callers made %d calls", n)
		}
		// Children of one parent share the parent's write, too.
		parents := st.counting("parent")
		hook := st.fake.Before
		st.fake.Before = func(op string, in any) error {
			time.Sleep(50 * time.Millisecond)
			return hook(op, in)
		}
		for i := range 50 {
			group.Go(func() { st.want(s, true, of(bkt(fmt.Sprint("child-", i)), rpm, 1), of(parent, rpm, 1)) })
		}
		group.Wait()
		if n := parents.Load(); n > 3 {
			t.Errorf("50 children made %d writes to their parent", n)
		}
	})
}

// TestChainInOneTrip checks that the writes of a chain are on their way together.
func TestChainInOneTrip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open(noGuard)
		rpm := per("rpm", 100, time.Hour, 100)
		chain := []store.Debit{of(bkt("key"), rpm, 1), of(bkt("team"), rpm, 1), of(bkt("company"), rpm, 1)}
		st.want(s, true, chain...)
		const trip = 30 * time.Millisecond
		st.fake.Before = func(string, any) error {
			time.Sleep(trip)
			return nil
		}
		began := time.Now()
		st.want(s, true, chain...)
		if took := time.Since(began); took != trip {
			t.Errorf("three buckets took %s, want one round trip of %s", took, trip)
		}
	})
}

// TestItemSize checks that writing a bucket with ten limits costs one unit.
func TestItemSize(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(noGuard)
	b := store.Bucket{Namespace: "n7f3k2q9", Entity: "customer-48213-eu", Resource: "chat-completions"}
	d := store.Debit{Bucket: b, Epoch: 1234}
	for i, name := range []string{"rps", "rpm", "rph", "rpd", "tpm", "tph", "tpd", "input-tpm", "images", "batch"} {
		period := []time.Duration{time.Second, time.Minute, time.Hour, day}[i%4]
		d.Charges = append(d.Charges, store.Charge{Limit: per(name, 100_000, period, 150_000), Amount: 12_345_678})
	}
	for range 12 {
		st.clock.Advance(time.Hour)
		st.take(s, d)
	}
	back := store.Debit{Bucket: b, Epoch: 1234}
	for _, c := range d.Charges {
		back.Charges = append(back.Charges, store.Charge{Limit: c.Limit, Amount: -1_234_567})
	}
	st.settle(s, back)
	for _, it := range st.fake.Items(stageTable) {
		if it["id"] == nil {
			continue
		}
		n := dynamotest.ItemSize(it)
		t.Logf("%d bytes", n)
		if n > 1024 {
			t.Errorf("%d bytes: %v", n, it)
		}
	}
	before := st.fake.Capacity().Write
	st.take(s, d)
	if units := st.fake.Capacity().Write - before; units != 1 {
		t.Errorf("%g units", units)
	}
}

// metered asks DynamoDB what each update consumes.
type metered struct {
	dynamodb.API

	mu    sync.Mutex
	units float64
}

func (m *metered) UpdateItem(ctx context.Context, in *sdk.UpdateItemInput, fns ...func(*sdk.Options)) (*sdk.UpdateItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.API.UpdateItem(ctx, in, fns...)
	if err == nil && out.ConsumedCapacity != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.units += *out.ConsumedCapacity.CapacityUnits
	}
	return out, err
}

// TestCostReported checks that the costs that an engine reports are those of the table.
func TestCostReported(t *testing.T) {
	t.Parallel()
	client := dynamotest.Client(t, dynamotest.Engine(t))
	table := dynamotest.Table(t)
	if _, err := dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	m := &metered{API: client}
	s, err := dynamodb.New(dynamodb.Config{Client: m, Table: table, CallTimeout: patient, WriteTimeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rpm, alice := per("rpm", 100, time.Hour, 100), bkt("alice")
	for _, tt := range []struct {
		name  string
		units float64
		do    func() error
	}{
		{"brand-new", 2, func() error {
			_, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(alice, rpm, 1)}})
			return err
		}},
		{"warm", 1, func() error {
			_, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(alice, rpm, 1)}})
			return err
		}},
		{"rollback", 1, func() error {
			_, err := s.Settle(t.Context(), store.Settle{Debits: []store.Debit{of(alice, rpm, -1)}})
			return err
		}},
	} {
		m.units = 0
		if err := tt.do(); err != nil {
			t.Fatal(err)
		}
		if m.units == 0 {
			t.Skip("the engine reports nothing")
		}
		if m.units != tt.units {
			t.Errorf("%s: %g units, want %g", tt.name, m.units, tt.units)
		}
	}
}
