package dynamodb_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/storetest"
)

// stage is a table in memory, a clock that tests set, and stores on the table as different processes would have them.
type stage struct {
	testing.TB

	fake  *dynamotest.Fake
	clock *storetest.Clock
	hot   atomic.Pointer[store.Bucket] // see throttled
	calls atomic.Int64                 // see cut
}

// cut makes the n-th call fail with an error that may have been made, whether it was or not.
func (st *stage) cut(n int, made bool) (end func() int) {
	before := st.fake.Before
	st.calls.Store(0)
	fail := func() error {
		if st.calls.Add(1) == int64(n)+1 {
			return &types.InternalServerError{}
		}
		return nil
	}
	if made {
		st.fake.After = func(string, any, any) error { return fail() }
	} else {
		st.fake.Before = func(string, any) error { return fail() }
	}
	return func() int {
		st.fake.Before, st.fake.After = before, nil
		return int(st.calls.Load())
	}
}

// throttled throttles the writes to the items of a bucket, if one is hot.
func (st *stage) throttled(_ string, in any) error {
	write, _ := in.(*sdk.UpdateItemInput)
	b := st.hot.Load()
	if write == nil || b == nil {
		return nil
	}
	pk, _ := write.Key["PK"].(*types.AttributeValueMemberS)
	if pk != nil && strings.HasPrefix(pk.Value, b.Namespace+"/BUCKET#"+b.Entity+"#"+b.Resource+"#") {
		return errHot
	}
	return nil
}

const stageTable = "limits"

// unscanned is a fake on which a table can be created: a scan of it finds nothing.
type unscanned struct{ *dynamotest.Fake }

func (unscanned) Scan(context.Context, *sdk.ScanInput, ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	return new(sdk.ScanOutput), nil
}

func newStage(t testing.TB) *stage {
	t.Helper()
	st := &stage{TB: t, fake: new(dynamotest.Fake), clock: storetest.NewClock(noon)}
	if _, err := dynamodb.Create(t.Context(), unscanned{st.fake}, stageTable, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	return st
}

// open opens a store, as another process would.
func (st *stage) open(change ...func(*dynamodb.Config)) *dynamodb.Store {
	st.Helper()
	cfg := dynamodb.Config{Client: st.fake, Table: stageTable, Now: st.clock.Now}
	for _, c := range change {
		c(&cfg)
	}
	s, err := dynamodb.New(cfg)
	if err != nil {
		st.Fatal(err)
	}
	st.Cleanup(func() { s.Close() })
	return s
}

// noGuard is for tests of exact levels.
func noGuard(c *dynamodb.Config) { c.Guard = -1 }

// noMemory makes every refusal ask the table.
func noMemory(c *dynamodb.Config) { c.RejectionTTL = -1 }

// slow makes every call of the fake take about this long in each direction, in the bubble's time, which the stores must
// follow: see flow.
func (st *stage) slow(there time.Duration) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 2))
	nap := func() {
		mu.Lock()
		d := there/2 + time.Duration(rng.Int64N(int64(there)))
		mu.Unlock()
		time.Sleep(d) // real time: none, all who call it are in a bubble
	}
	st.fake.Before = func(string, any) error { nap(); return nil }
	st.fake.After = func(string, any, any) error { nap(); return nil }
}

// flow makes a store's clock follow the bubble's time.
func (st *stage) flow() func(*dynamodb.Config) {
	begun, at := time.Now(), st.clock.Now()
	return func(c *dynamodb.Config) { c.Now = func() time.Time { return at.Add(time.Since(begun)) } }
}

// writes returns the number of writes that were attempted.
func (st *stage) writes() int {
	c := st.fake.Calls()
	return c["UpdateItem"] + c["PutItem"] + c["DeleteItem"] + c["TransactWriteItems"]
}

// spent returns the number of calls that f makes.
func (st *stage) spent(f func()) int {
	sum := func() (n int) {
		for _, c := range st.fake.Calls() {
			n += c
		}
		return n
	}
	before := sum()
	f()
	return sum() - before
}

func (st *stage) take(s store.Store, debits ...store.Debit) store.Outcome {
	st.Helper()
	out, err := s.Take(st.Context(), store.Take{Debits: debits})
	if err != nil {
		st.Error(err) // it may not be the test's goroutine
	}
	return out
}

// want makes a take and checks the answer.
func (st *stage) want(s store.Store, allowed bool, debits ...store.Debit) store.Outcome {
	st.Helper()
	out := st.take(s, debits...)
	if out.Allowed != allowed {
		st.Errorf("allowed %t, levels %+v", out.Allowed, out.Levels)
	}
	return out
}

func (st *stage) settle(s store.Store, debits ...store.Debit) {
	st.Helper()
	if _, err := s.Settle(st.Context(), store.Settle{Debits: debits}); err != nil {
		st.Fatal(err)
	}
}

// state reads a bucket.
func (st *stage) state(b store.Bucket) store.State {
	st.Helper()
	s := st.open()
	snap, err := s.Peek(st.Context(), b)
	if err != nil {
		st.Fatal(err)
	}
	return snap.States[0]
}

// outstanding returns the millitokens that a limit of a bucket has outstanding at the clock's time.
func (st *stage) outstanding(b store.Bucket, name string) int64 {
	st.Helper()
	for _, l := range st.state(b).Limits {
		if l.Limit.Name == name && !l.Limit.Override {
			return clock.Outstanding(l.Level, st.reading(l.Limit))
		}
	}
	return 0
}

// reading returns the limit's clock.
func (st *stage) reading(l *store.Limit) int64 {
	return readingAt(l, st.clock.Now())
}

// item returns the item of a bucket's shard as it is in the table, or nil.
func (st *stage) item(b store.Bucket) map[string]types.AttributeValue {
	pk := b.Namespace + "/BUCKET#" + b.Entity + "#" + b.Resource + "#0"
	for _, it := range st.fake.Items(stageTable) {
		if it["PK"].(*types.AttributeValueMemberS).Value == pk {
			return it
		}
	}
	return nil
}

// number returns a number of a bucket's item, and whether it is there.
func (st *stage) number(b store.Bucket, attr string) (string, bool) {
	n, ok := st.item(b)[attr].(*types.AttributeValueMemberN)
	if !ok {
		return "", false
	}
	return n.Value, true
}

func bkt(entity string) store.Bucket {
	return store.Bucket{Namespace: "n", Entity: entity, Resource: "api"}
}

// per is a limit of whole tokens.
func per(name string, amount int64, period time.Duration, burst int64) *store.Limit {
	return &store.Limit{Name: name, Amount: 1000 * amount, Period: period, Burst: 1000 * burst}
}

// of is a debit of whole tokens of one limit.
func of(b store.Bucket, l *store.Limit, tokens int64) store.Debit {
	return store.Debit{Bucket: b, Charges: []store.Charge{{Limit: l, Amount: 1000 * tokens}}}
}

// counting counts the writes to the bucket of an entity.
func (st *stage) counting(entity string) *atomic.Int64 {
	var n atomic.Int64
	st.fake.Before = func(_ string, in any) error {
		if u, ok := in.(*sdk.UpdateItemInput); ok && strings.Contains(u.Key["PK"].(*types.AttributeValueMemberS).Value, "#"+entity+"#") {
			n.Add(1)
		}
		return nil
	}
	return &n
}

func readingAt(l *store.Limit, at time.Time) int64 {
	return l.Params().Clock(clock.Nanos(at))
}

func whole(t testing.TB, s string) int64 {
	t.Helper()
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Error(err)
	}
	return n
}

// deaf makes calls end with their context, as calls over a network do.
type deaf struct{ dynamodb.API }

func (d deaf) UpdateItem(ctx context.Context, in *sdk.UpdateItemInput, fns ...func(*sdk.Options)) (*sdk.UpdateItemOutput, error) {
	type answer struct {
		out *sdk.UpdateItemOutput
		err error
	}
	done := make(chan answer, 1)
	go func() {
		out, err := d.API.UpdateItem(ctx, in, fns...)
		done <- answer{out, err}
	}()
	select {
	case a := <-done:
		return a.out, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
