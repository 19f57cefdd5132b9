package dynamodb_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// BenchmarkClients alternates takes from a bucket on the engine with the SDK's bare UpdateItem, and reads with its bare
// BatchGetItem, and reports the processor time of each. One operation is a hundred calls of each kind.
func BenchmarkClients(b *testing.B) {
	client := dynamotest.Client(b, dynamotest.Engine(b), tuned)
	table := dynamotest.Table(b)
	if _, err := dynamodb.Create(b.Context(), client, table, dynamodb.CreateConfig{}); err != nil {
		b.Fatal(err)
	}
	s, err := dynamodb.New(dynamodb.Config{Client: client, Table: table, CallTimeout: patient, WriteTimeout: patient})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	ctx := b.Context()
	take := store.Take{Debits: []store.Debit{of(bkt("e"), plenty, 1)}}
	update, read := bareCalls(table)
	b.Run("take", func(b *testing.B) {
		compare(b, func() error {
			_, err := s.Take(ctx, take)
			return err
		}, func() error {
			_, err := client.UpdateItem(ctx, update)
			return err
		})
	})
	b.Run("read", func(b *testing.B) {
		compare(b, func() error {
			_, err := s.Peek(ctx, bkt("e"))
			return err
		}, func() error {
			_, err := client.BatchGetItem(ctx, read)
			return err
		})
	})
}

// bareCalls returns a write of the size of a take's, and a read of the item that it writes.
func bareCalls(table string) (*sdk.UpdateItemInput, *sdk.BatchGetItemInput) {
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	one := &types.AttributeValueMemberN{Value: "1"}
	key := map[string]types.AttributeValue{"PK": text("_/BUCKET#bare"), "SK": text("#STATE")}
	update := &sdk.UpdateItemInput{
		TableName: &table, Key: key,
		ConditionExpression: aws.String("(attribute_not_exists(#0) OR #0 >= :0) AND (attribute_not_exists(#1) OR #1 >= :0)"),
		UpdateExpression:    aws.String("SET #2 = :1, #3 = :2, #4 = :2 ADD #0 :0, #1 :0, #5 :0, #6 :0"),
		ExpressionAttributeNames: map[string]string{
			"#0": "L_rps", "#1": "D_rps", "#2": "P_rps", "#3": "at", "#4": "ttl", "#5": "tc", "#6": "wc",
		},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":0": one, ":1": text("1000/31622400000000000/1000000000"), ":2": &types.AttributeValueMemberN{Value: "1700000000"},
		},
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	return update, &sdk.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
		table: {Keys: []map[string]types.AttributeValue{key}, ConsistentRead: aws.Bool(true)},
	}}
}

func compare(b *testing.B, calls ...func() error) {
	const turn = 100
	spent := make([]time.Duration, len(calls))
	for b.Loop() {
		for i, call := range calls {
			before := processorTime(b)
			for range turn {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
			spent[i] += processorTime(b) - before
		}
	}
	n := float64(b.N * turn)
	b.ReportMetric(float64(spent[0].Microseconds())/n, "cpu-µs/store")
	b.ReportMetric(float64(spent[1].Microseconds())/n, "cpu-µs/SDK")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
