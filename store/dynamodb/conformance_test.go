package dynamodb_test

import (
	"context"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/storetest"
)

// patient leaves time for calls on a busy machine: a debit whose answer did not arrive is made again, and both count.
const patient = time.Minute

// exact turns off what trades exactness between processes for fewer calls: see ADR 0009.
var exact = dynamodb.Config{RejectionTTL: -1, Guard: -1, CallTimeout: patient, WriteTimeout: patient}

var caps = storetest.Caps{
	HandClock: true, Remote: true, LateUsage: true, Quotas: true, Credits: true, Slots: true, OwnClocks: true,
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(t, exact))
}

// TestConformanceOfDefaults checks that a single process is as exact with the default settings.
func TestConformanceOfDefaults(t *testing.T) {
	t.Parallel()
	unraced(t)
	h := harness(t, dynamodb.Config{CallTimeout: patient, WriteTimeout: patient}, tuned)
	h.Peer, h.BucketsOnly = nil, true
	storetest.Run(t, h)
}

// TestConformanceOfFake runs the suite on the fake that other tests use in place of an engine.
func TestConformanceOfFake(t *testing.T) {
	t.Parallel()
	unraced(t)
	var stages sync.Map // by store
	open := func(st *stage) store.Store {
		s := st.open(func(c *dynamodb.Config) {
			c.RejectionTTL, c.Guard, c.CallTimeout, c.WriteTimeout = exact.RejectionTTL, exact.Guard, patient, patient
		})
		stages.Store(s, st)
		return s
	}
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB, clock *storetest.Clock) store.Store {
			t.Helper()
			st := newStage(t)
			st.clock = clock
			st.fake.Before = st.throttled
			return open(st)
		},
		Throttle: func(_ testing.TB, s store.Store, b store.Bucket) func() {
			st, _ := stages.Load(s)
			st.(*stage).hot.Store(&b)
			return func() { st.(*stage).hot.Store(nil) }
		},
		Cut: func(_ testing.TB, s store.Store, n int, made bool) func() int {
			st, _ := stages.Load(s)
			end := st.(*stage).cut(n, made)
			return func() int {
				s.(*dynamodb.Store).Flush()
				return end()
			}
		},
		Peer: func(_ testing.TB, s store.Store, _ *storetest.Clock) store.Store {
			st, _ := stages.Load(s)
			return open(st.(*stage))
		},
		Quiesce: func(_ testing.TB, s store.Store) { s.(*dynamodb.Store).Flush() },
		Kept: func(t testing.TB, s store.Store, b store.Bucket) time.Duration {
			t.Helper()
			st, _ := stages.Load(s)
			return kept(t, st.(*stage).fake, stageTable, s.(*dynamodb.Store), b)
		},
		Harm: func(t testing.TB, s store.Store, b store.Bucket) {
			t.Helper()
			st, _ := stages.Load(s)
			harm(t, st.(*stage).fake, stageTable, b)
		},
		Caps: caps,
	})
}

func TestTorture(t *testing.T) {
	t.Parallel()
	storetest.Torture(t, harness(t, exact, tuned), storetest.TortureTime(t)/3)
}

// TestTortureOfDefaults tortures the store as users have it, with prefetch, and buckets that are split meanwhile.
func TestTortureOfDefaults(t *testing.T) {
	t.Parallel()
	cfg := dynamodb.Config{CallTimeout: patient, WriteTimeout: patient}
	cfg.Prefetch.Share = 0.1
	h := harness(t, cfg, tuned)
	open, peer := h.Open, h.Peer
	h.Open = func(t testing.TB, clock *storetest.Clock) store.Store {
		t.Helper()
		return &splitting{Store: open(t, clock).(*dynamodb.Store)}
	}
	h.Peer = func(t testing.TB, s store.Store, clock *storetest.Clock) store.Store {
		t.Helper()
		return &splitting{Store: peer(t, s.(*splitting).Store, clock).(*dynamodb.Store)}
	}
	h.Quiesce = func(_ testing.TB, s store.Store) { s.(*splitting).Rest() }
	h.Caps.Ahead = true
	storetest.Torture(t, h, storetest.TortureTime(t)/6)
}

// splitting is a store that splits a bucket every thousand takes.
type splitting struct {
	*dynamodb.Store

	takes atomic.Int64
}

func (s *splitting) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if n := s.takes.Add(1); n%1000 == 0 {
		if _, err := s.Split(ctx, t.Debits[0].Bucket, 2<<(n/1000%3)); err != nil {
			return store.Outcome{}, err
		}
	}
	return s.Store.Take(ctx, t)
}

// told logs, for a test that failed, how many calls had no answer: their debits may count twice.
func told(t testing.TB, s *dynamodb.Store) {
	t.Helper()
	for _, m := range s.Measures() {
		if t.Failed() && m.Name == "writes_failed" && m.Value > 0 {
			t.Logf("%.0f writes had no answer", m.Value)
		}
	}
}

// tuned turns a test's client into one as users have it.
func tuned(o *sdk.Options) {
	o.HTTPClient = nil
	dynamodb.Tune(o)
}

// harness opens stores on tables of the shared engine.
func harness(t *testing.T, cfg dynamodb.Config, change ...func(*sdk.Options)) storetest.Harness {
	t.Helper()
	client := dynamotest.Client(t, dynamotest.Engine(t), change...)
	var tables sync.Map // by store
	open := func(t testing.TB, table string, clock *storetest.Clock) store.Store {
		t.Helper()
		cfg := cfg
		cfg.Client, cfg.Table, cfg.Now = client, table, clock.Now
		s, err := dynamodb.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		tables.Store(s, table)
		t.Cleanup(func() { told(t, s) })
		return s
	}
	return storetest.Harness{
		Open: func(t testing.TB, clock *storetest.Clock) store.Store {
			t.Helper()
			table := dynamotest.Table(t)
			if _, err := dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{}); err != nil {
				t.Fatal(err)
			}
			return open(t, table, clock)
		},
		Peer: func(t testing.TB, s store.Store, clock *storetest.Clock) store.Store {
			t.Helper()
			table, _ := tables.Load(s)
			return open(t, table.(string), clock)
		},
		Quiesce: func(t testing.TB, s store.Store) {
			t.Helper()
			s.(*dynamodb.Store).Flush()
		},
		Kept: func(t testing.TB, s store.Store, b store.Bucket) time.Duration {
			t.Helper()
			table, _ := tables.Load(s)
			return kept(t, client, table.(string), s.(*dynamodb.Store), b)
		},
		Harm: func(t testing.TB, s store.Store, b store.Bucket) {
			t.Helper()
			table, _ := tables.Load(s)
			harm(t, client, table.(string), b)
		},
		Caps: caps,
	}
}

// harm makes an attribute of a bucket one of another type.
func harm(t testing.TB, client dynamodb.API, table string, b store.Bucket) {
	t.Helper()
	_, err := client.UpdateItem(t.Context(), &sdk.UpdateItemInput{
		TableName: &table, UpdateExpression: aws.String("SET #l = :x"), ExpressionAttributeNames: map[string]string{"#l": "L_rpm"},
		Key: map[string]types.AttributeValue{
			"PK": &types.AttributeValueMemberS{Value: b.Namespace + "/BUCKET#" + b.Entity + "#" + b.Resource + "#0"},
			"SK": &types.AttributeValueMemberS{Value: "#STATE"},
		},
		ExpressionAttributeValues: map[string]types.AttributeValue{":x": &types.AttributeValueMemberS{Value: "x"}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// kept returns how much longer the table keeps the data of a bucket that was never split.
func kept(
	t testing.TB, client dynamodb.API, table string, s *dynamodb.Store, b store.Bucket,
) time.Duration {
	t.Helper()
	pk := b.Namespace + "/BUCKET#" + b.Entity + "#" + b.Resource + "#0"
	got, err := client.Query(t.Context(), &sdk.QueryInput{
		TableName: &table, KeyConditionExpression: aws.String("PK = :pk"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":pk": &types.AttributeValueMemberS{Value: pk}},
	})
	if err != nil || len(got.Items) != 1 {
		t.Fatalf("%d items of %v, error %v", len(got.Items), b, err)
	}
	ttl, ok := got.Items[0]["ttl"].(*types.AttributeValueMemberN)
	if !ok {
		t.Fatalf("%v has no ttl", b)
	}
	n, err := strconv.ParseInt(ttl.Value, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := s.Peek(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if at := time.Unix(n, 0); at.Year() < 2316 {
		return at.Sub(snap.At)
	}
	return math.MaxInt64
}
