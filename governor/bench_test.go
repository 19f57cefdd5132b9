package governor_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/weirlimits/weir/governor"
)

// The overhead of governing a call: warm, and within budget.
func BenchmarkOverhead(b *testing.B) {
	item := map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "customer#1234"}, "sk": &types.AttributeValueMemberS{Value: "order#2026-11-21"},
		"total": &types.AttributeValueMemberN{Value: "129.90"},
	}
	units := aws.Float64(1)
	for _, bm := range []struct {
		name    string
		in, out any
	}{
		{"GetItem", &dynamodb.GetItemInput{TableName: aws.String("t"), Key: key}, &dynamodb.GetItemOutput{ConsumedCapacity: &types.ConsumedCapacity{TableName: aws.String("t"), CapacityUnits: units}}},
		{"PutItem", &dynamodb.PutItemInput{TableName: aws.String("t"), Item: item}, &dynamodb.PutItemOutput{ConsumedCapacity: &types.ConsumedCapacity{TableName: aws.String("t"), CapacityUnits: units}}},
		{"DescribeTable", &dynamodb.DescribeTableInput{TableName: aws.String("t")}, &dynamodb.DescribeTableOutput{}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			limits := governor.Limits{ReadUnits: 3_000_000, WriteUnits: 3_000_000}
			g := mustNew(b, governor.Config{ReadUnits: 3_000_000, WriteUnits: 3_000_000, Tables: map[string]governor.Limits{"t": limits}})
			stack := middleware.NewStack("bench", smithyhttp.NewStackRequest)
			if err := g.Middleware()(stack); err != nil {
				b.Fatal(err)
			}
			next := middleware.HandlerFunc(func(context.Context, any) (any, middleware.Metadata, error) {
				return bm.out, middleware.Metadata{}, nil
			})
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := stack.Initialize.HandleMiddleware(ctx, bm.in, next); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The overhead budget is three allocations; the benchmark measures time.
func TestOverheadAllocations(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts allocations of all goroutines
	out := &dynamodb.GetItemOutput{ConsumedCapacity: &types.ConsumedCapacity{TableName: aws.String("t"), CapacityUnits: aws.Float64(1)}}
	in := &dynamodb.GetItemInput{TableName: aws.String("t"), Key: key}
	next := middleware.HandlerFunc(func(context.Context, any) (any, middleware.Metadata, error) { return out, middleware.Metadata{}, nil })
	bare, governed := middleware.NewStack("bare", smithyhttp.NewStackRequest), middleware.NewStack("governed", smithyhttp.NewStackRequest)
	g := mustNew(t, governor.Config{ReadUnits: 3_000_000, WriteUnits: governor.Unlimited})
	if err := g.Middleware()(governed); err != nil {
		t.Fatal(err)
	}
	allocs := func(s *middleware.Stack) float64 {
		return testing.AllocsPerRun(1000, func() { _, _, _ = s.Initialize.HandleMiddleware(t.Context(), in, next) })
	}
	if n := allocs(governed) - allocs(bare); n > 3 {
		t.Errorf("%v allocations a call", n)
	}
}
