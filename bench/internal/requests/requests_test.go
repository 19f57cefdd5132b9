package requests_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/bench/internal/requests"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestCount: every request is counted once, the SDK's however long and weir's.
func TestCount(t *testing.T) {
	t.Parallel()
	var got, n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(s.Close)
	c := sdk.New(sdk.Options{
		BaseEndpoint: &s.URL, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "x", SecretAccessKey: "x"}, nil
		}),
	}, requests.Count(&n), dynamodb.Tune)
	for range 3 {
		if _, err := c.PutItem(t.Context(), &sdk.PutItemInput{TableName: aws.String("t"), Item: map[string]types.AttributeValue{
			"x": &types.AttributeValueMemberS{Value: strings.Repeat("POST ", 20_000)},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	st, err := dynamodb.New(dynamodb.Config{Client: c, Table: "t", WriteTimeout: time.Minute, CallTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	limit := &store.Limit{Name: "rpm", Amount: 1000, Burst: 1000, Period: time.Minute}
	out, err := st.Take(t.Context(), store.Take{Debits: []store.Debit{{
		Bucket: store.Bucket{Namespace: "n", Entity: "e", Resource: "r"}, Charges: []store.Charge{{Limit: limit, Amount: 1}},
	}}})
	if err != nil || !out.Allowed {
		t.Error(out, err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if n.Load() != got.Load() || n.Load() < 4 {
		t.Errorf("%d counted of %d", n.Load(), got.Load())
	}
}
