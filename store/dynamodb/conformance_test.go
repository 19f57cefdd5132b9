package dynamodb_test

import (
	"strconv"
	"sync"
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

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(t, exact))
}

// TestConformanceOfDefaults checks that a single process is as exact with the default settings.
func TestConformanceOfDefaults(t *testing.T) {
	t.Parallel()
	h := harness(t, dynamodb.Config{CallTimeout: patient, WriteTimeout: patient}, tuned)
	h.Peer, h.BucketsOnly = nil, true
	storetest.Run(t, h)
}

func TestTorture(t *testing.T) {
	t.Parallel()
	storetest.Torture(t, harness(t, exact, tuned), storetest.TortureTime(t)/3)
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
		Caps: storetest.Caps{HandClock: true, Remote: true, LateUsage: true},
	}
}

// kept returns how much longer the table keeps the data of a bucket that was never split.
func kept(
	t testing.TB, client *sdk.Client, table string, s *dynamodb.Store, b store.Bucket,
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
	return time.Unix(n, 0).Sub(snap.At)
}
