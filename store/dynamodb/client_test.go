package dynamodb_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/faultproxy"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// behindProxy returns a client of the engine whose calls pass through a proxy, and a table.
func behindProxy(t *testing.T) (*faultproxy.Proxy, *sdk.Client, string) {
	t.Helper()
	p := faultproxy.New(t, dynamotest.Engine(t), faultproxy.Config{})
	client, table := dynamotest.Client(t, p.URL, tuned), dynamotest.Table(t)
	if _, err := dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	return p, client, table
}

// TestUnknown checks that a write that got no answer counts as one that may have been applied: its debit is made again, and
// no more is admitted than there is.
func TestUnknown(t *testing.T) {
	t.Parallel()
	p, client, table := behindProxy(t)
	s, err := dynamodb.New(dynamodb.Config{Client: client, Table: table, RejectionTTL: -1, CallTimeout: patient, WriteTimeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	p.Set(
		faultproxy.Rule{Kind: faultproxy.DropAfter, Operation: "UpdateItem", Probability: 0.25},
		faultproxy.Rule{Kind: faultproxy.DropBefore, Operation: "UpdateItem", Probability: 0.25},
		faultproxy.Rule{Kind: faultproxy.InternalError, Operation: "UpdateItem", Probability: 0.25},
	)
	admitted := 0
	for range 20 {
		out, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(bkt("alice"), per("rpd", 10, 24*time.Hour, 10), 1)}})
		if err != nil {
			t.Fatal(err)
		}
		if out.Allowed {
			admitted++
		}
	}
	lost := p.Counts()[faultproxy.DropAfter]
	if admitted == 0 || admitted+lost < 10 || admitted > 10 {
		t.Errorf("%d admitted, %d answers lost", admitted, lost)
	}
}

// TestDenied checks that an error without an answer has a hint.
func TestDenied(t *testing.T) {
	t.Parallel()
	none := func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errors.New("none found") }
	client := dynamotest.Client(t, "http://127.0.0.1:1", tuned, func(o *sdk.Options) { o.Credentials = aws.CredentialsProviderFunc(none) })
	s, err := dynamodb.New(dynamodb.Config{Client: client, Table: "t", CallTimeout: patient, WriteTimeout: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Take(t.Context(), store.Take{Debits: []store.Debit{of(bkt("e"), plenty, 1)}})
	if told, ok := errors.AsType[*store.Error](err); !ok || told.Hint == "" {
		t.Errorf("error %v", err)
	}
}

// writes returns how many writes to buckets were answered.
func writes(s *dynamodb.Store) (n float64) {
	for _, m := range s.Measures() {
		if m.Name == "writes_applied" || m.Name == "writes_denied" {
			n += m.Value
		}
	}
	return n
}

// TestLeft checks that a caller leaves a write when its time is up, and that what it is debited afterwards is returned.
func TestLeft(t *testing.T) {
	t.Parallel()
	p, client, table := behindProxy(t)
	open := func() *dynamodb.Store {
		s, err := dynamodb.New(dynamodb.Config{Client: client, Table: table, CallTimeout: patient, WriteTimeout: patient})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	take := func(ctx context.Context, s *dynamodb.Store, n int64) (bool, error) {
		out, err := s.Take(ctx, store.Take{Debits: []store.Debit{of(bkt("e"), per("rpd", 3, 24*time.Hour, 3), n)}})
		return out.Allowed, err
	}
	s := open()
	if ok, err := take(t.Context(), s, 1); !ok || err != nil { // there is a connection now
		t.Fatal(ok, err)
	}
	p.Set(faultproxy.Rule{Kind: faultproxy.Delay, Operation: "UpdateItem", Probability: 1, Delay: 3 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for p.Counts()[faultproxy.Delay] == 0 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond) // real time: the request's, until it is held back
		}
		cancel()
	}()
	if _, err := take(ctx, s, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	p.Set()
	if n := writes(s); n != 1 {
		t.Errorf("%v writes answered", n) // the debit is on its way
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := writes(s); n != 3 || p.Counts()[faultproxy.Delay] != 1 {
		t.Errorf("%v writes answered, %d held back", n, p.Counts()[faultproxy.Delay])
	}
	if ok, err := take(t.Context(), open(), 2); !ok || err != nil {
		t.Errorf("allowed %v, error %v", ok, err)
	}
}

// TestInvalidLeft checks that a caller does not wait for the read that finds out why its write was invalid.
func TestInvalidLeft(t *testing.T) {
	t.Parallel()
	p, client, table := behindProxy(t)
	s, err := dynamodb.New(dynamodb.Config{Client: client, Table: table, CallTimeout: patient, WriteTimeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	take := func(ctx context.Context) error {
		_, err := s.Take(ctx, store.Take{Debits: []store.Debit{of(bkt("e"), plenty, 1)}})
		return err
	}
	if err := take(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := client.Scan(t.Context(), &sdk.ScanInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range all.Items {
		if it["wc"] != nil { // the bucket: edited by hand, so that no write can add to it
			it["wc"] = &types.AttributeValueMemberS{Value: "many"}
			if _, err := client.PutItem(t.Context(), &sdk.PutItemInput{TableName: &table, Item: it}); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.Set(faultproxy.Rule{Kind: faultproxy.Delay, Operation: "BatchGetItem", Probability: 1, Delay: 2 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // real time: a socket's
	defer cancel()
	if err := take(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	p.Set()
	var damaged *store.Error
	if err := take(t.Context()); !errors.As(err, &damaged) || damaged.Op != "read" {
		t.Errorf("error %v", err)
	}
}
