package governor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/governor"
)

// tables describes tables by name.
type tables map[string]*types.TableDescription

func (d tables) DescribeTable(_ context.Context, in *dynamodb.DescribeTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	if t := d[*in.TableName]; t != nil {
		return &dynamodb.DescribeTableOutput{Table: t}, nil
	}
	return nil, &types.ResourceNotFoundException{Message: aws.String("no such table")}
}

func TestDiscover(t *testing.T) {
	t.Parallel()
	n := aws.Int64
	d := tables{
		"provisioned": {
			TableName:             aws.String("provisioned"),
			ProvisionedThroughput: &types.ProvisionedThroughputDescription{ReadCapacityUnits: n(100), WriteCapacityUnits: n(50)},
			WarmThroughput:        &types.TableWarmThroughputDescription{ReadUnitsPerSecond: n(12000), WriteUnitsPerSecond: n(4000)},
			GlobalSecondaryIndexes: []types.GlobalSecondaryIndexDescription{{
				IndexName: aws.String("x"), ProvisionedThroughput: &types.ProvisionedThroughputDescription{ReadCapacityUnits: n(10), WriteCapacityUnits: n(20)},
			}},
		},
		"maximum": {
			TableName: aws.String("maximum"), ProvisionedThroughput: &types.ProvisionedThroughputDescription{ReadCapacityUnits: n(0), WriteCapacityUnits: n(0)},
			OnDemandThroughput: &types.OnDemandThroughput{MaxReadRequestUnits: n(-1), MaxWriteRequestUnits: n(700)},
			WarmThroughput:     &types.TableWarmThroughputDescription{ReadUnitsPerSecond: n(24000), WriteUnitsPerSecond: n(8000)},
		},
		"bare":                {TableName: aws.String("bare")},
		"arn:aws:x:table/arn": {TableName: aws.String("arn")},
	}
	got, err := governor.Discover(t.Context(), d, 0.5, "provisioned", "maximum", "bare", "arn:aws:x:table/arn")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]governor.Limits{
		"provisioned": {ReadUnits: 50, WriteUnits: 25, Indexes: map[string]governor.Limits{"x": {ReadUnits: 5, WriteUnits: 10}}},
		"maximum":     {ReadUnits: 12000, WriteUnits: 350},
		"bare":        {ReadUnits: 6000, WriteUnits: 2000},
		"arn":         {ReadUnits: 6000, WriteUnits: 2000},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := governor.New(governor.Config{Tables: got}); err != nil {
		t.Error(err)
	}

	_, err = governor.Discover(t.Context(), d, 0.5, "bare", "missing")
	var bad *governor.ConfigError
	var missing *types.ResourceNotFoundException
	if !errors.As(err, &bad) || bad.Field != "tables" || !errors.As(err, &missing) {
		t.Errorf("a table that does not exist: %v", err)
	}
	for _, share := range []float64{0, -1, 1.01, math.NaN(), math.Inf(1)} {
		if _, err := governor.Discover(t.Context(), d, share, "bare"); !errors.As(err, &bad) || bad.Field != "share" {
			t.Errorf("a share of %v: %v", share, err)
		}
	}
	if _, err := governor.Discover(t.Context(), d, 1); !errors.As(err, &bad) {
		t.Errorf("no tables: %v", err)
	}
}

func TestStatementsAreUnderstood(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{`SELECT * FROM "orders" WHERE pk = 'a'`, "orders/ read"},
		{"select a, 'from x' from\n orders", "orders/ read"},
		{`SELECT * FROM "orders"."byUser" WHERE u = ?`, "orders/byUser read"},
		{`INSERT INTO "orders" VALUE {'pk': 'a'}`, "orders/ write"},
		{`  update orders set a = 1 where pk = 'a'`, "orders/ write"},
		{`DELETE FROM "orders" WHERE pk = 'a'`, "orders/ write"},
		{`EXISTS(SELECT * FROM "orders" WHERE pk = 'a')`, "orders/ write"},
		{`SELECT`, "/ read"},
		{`SELECT 'x`, "/ read"},
		{`DROP TABLE orders`, "/ write"},
		{``, "/ write"},
	} {
		table, index, dir := governor.Parse(tt.text)
		if got := fmt.Sprintf("%s/%s %s", table, index, dir); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
}
