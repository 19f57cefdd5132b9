package dynamodb_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"

	"github.com/weirlimits/weir/internal/dynamotest"
	"github.com/weirlimits/weir/internal/faultproxy"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestOwnWrites: with a client as users have it the store makes its writes itself, and reads the answers, be they yes
// or no; with a client that does anything else, nothing is kept from that.
func TestOwnWrites(t *testing.T) {
	t.Parallel()
	bare := dynamotest.Client(t, dynamotest.Engine(t))
	table := dynamotest.Table(t)
	if _, err := dynamodb.Create(t.Context(), bare, table, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	passed := 0
	middle := func(o *sdk.Options) {
		own(o)
		o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
			if s.ID() == "UpdateItem" {
				passed++
			}
			return nil
		})
	}
	owned := dynamotest.Client(t, dynamotest.Engine(t), own)
	for name, c := range map[string]struct {
		client dynamodb.API
		owned  bool
	}{
		"as users have it": {owned, true},
		"the SDK's":        {dynamotest.Client(t, dynamotest.Engine(t), func(o *sdk.Options) { o.HTTPClient = awshttp.NewBuildableClient() }), true},
		"wrapped":          {wrapped{owned}, false},
		"middleware":       {dynamotest.Client(t, dynamotest.Engine(t), middle), false},
		"HTTP client":      {bare, false},
	} {
		s, err := dynamodb.New(dynamodb.Config{Client: c.client, Table: table, RejectionTTL: -1, Guard: -1, CallTimeout: patient, WriteTimeout: patient})
		if err != nil {
			t.Fatal(err)
		}
		b, limit := bkt(name), per("rpd", 3, 24*time.Hour, 3)
		for i := range 5 {
			out, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(b, limit, 1)}})
			if err != nil || out.Allowed != (i < 3) {
				t.Errorf("%s: take %d: %+v, error %v", name, i, out, err)
			}
		}
		sent, judged := s.Wire()
		if c.owned != (sent == 5) || judged != 0 {
			t.Errorf("%s: %d sent by the store, %d answers read by the SDK", name, sent, judged)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if passed != 5 {
		t.Errorf("the middleware saw %d writes", passed)
	}
}

// TestOwnUnknown: a write of the store's own to which nothing was answered counts as one that may have been applied, as
// any other: its debit is made again, and no more is admitted than there is.
func TestOwnUnknown(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, dynamotest.Engine(t), faultproxy.Config{})
	client := dynamotest.Client(t, p.URL, own)
	table := dynamotest.Table(t)
	if _, err := dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
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

// TestOwnDenied: what went wrong is told as with the SDK.
func TestOwnDenied(t *testing.T) {
	t.Parallel()
	none := func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errors.New("none found") }
	client := dynamotest.Client(t, "http://127.0.0.1:1", own, func(o *sdk.Options) { o.Credentials = aws.CredentialsProviderFunc(none) })
	s, err := dynamodb.New(dynamodb.Config{Client: client, Table: "t", CallTimeout: patient, WriteTimeout: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Take(t.Context(), store.Take{Debits: []store.Debit{of(bkt("e"), plenty, 1)}})
	var told *store.Error
	if !errors.As(err, &told) || told.Hint == "" {
		t.Errorf("error %v", err)
	}
}
