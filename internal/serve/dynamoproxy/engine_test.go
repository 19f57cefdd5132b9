package dynamoproxy_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/document"
	"github.com/aws/smithy-go/middleware"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlimits/weir/governor"
	"github.com/weirlimits/weir/internal/serve/dynamoproxy"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// step is a call, with what it returned.
type step struct {
	name string
	do   func(ctx context.Context, c *dynamodb.Client) (any, error)
}

func call[In, Out any](
	name string, do func(*dynamodb.Client, context.Context, *In, ...func(*dynamodb.Options)) (*Out, error), in In,
) step {
	return step{name, func(ctx context.Context, c *dynamodb.Client) (any, error) { return do(c, ctx, &in) }}
}

func text(s string) *types.AttributeValueMemberS { return &types.AttributeValueMemberS{Value: s} }

func itemOf(i int) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"pk": text(fmt.Sprintf("k%03d", i)), "n": &types.AttributeValueMemberN{Value: strconv.Itoa(i)},
		"b": &types.AttributeValueMemberB{Value: []byte{0, 255, byte(i)}}, "pad": text(strings.Repeat("é", 300)),
	}
}

func keyOf(i int) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": itemOf(i)["pk"]}
}

// steps call every governed operation, with every level of the report, and fail in every way.
func steps() (all []step) {
	table := aws.String("orders")
	all = append(all, call("CreateTable", (*dynamodb.Client).CreateTable, dynamodb.CreateTableInput{
		TableName: table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
	}))
	for _, level := range []types.ReturnConsumedCapacity{"", "NONE", "TOTAL", "INDEXES"} {
		var writes []types.WriteRequest
		for i := range 25 {
			writes = append(writes, types.WriteRequest{PutRequest: &types.PutRequest{Item: itemOf(i)}})
		}
		missing := aws.String("attribute_not_exists(pk)")
		select1 := aws.String("SELECT * FROM orders WHERE pk = 'k001'")
		all = append(all,
			call("BatchWriteItem", (*dynamodb.Client).BatchWriteItem, dynamodb.BatchWriteItemInput{ReturnConsumedCapacity: level, RequestItems: map[string][]types.WriteRequest{"orders": writes}}),
			call("PutItem", (*dynamodb.Client).PutItem, dynamodb.PutItemInput{ReturnConsumedCapacity: level, TableName: table, Item: itemOf(1), ReturnValues: types.ReturnValueAllOld}),
			call("PutItem, condition", (*dynamodb.Client).PutItem, dynamodb.PutItemInput{ReturnConsumedCapacity: level, TableName: table, Item: itemOf(1), ConditionExpression: missing, ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}),
			call("UpdateItem", (*dynamodb.Client).UpdateItem, dynamodb.UpdateItemInput{ReturnConsumedCapacity: level, TableName: table, Key: keyOf(2), UpdateExpression: aws.String("ADD n :one"), ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}}, ReturnValues: types.ReturnValueAllNew}),
			call("DeleteItem", (*dynamodb.Client).DeleteItem, dynamodb.DeleteItemInput{ReturnConsumedCapacity: level, TableName: table, Key: keyOf(3), ReturnValues: types.ReturnValueAllOld}),
			call("GetItem", (*dynamodb.Client).GetItem, dynamodb.GetItemInput{ReturnConsumedCapacity: level, TableName: table, Key: keyOf(2), ConsistentRead: aws.Bool(true)}),
			call("GetItem, no table", (*dynamodb.Client).GetItem, dynamodb.GetItemInput{ReturnConsumedCapacity: level, TableName: aws.String("none"), Key: keyOf(2)}),
			call("BatchGetItem", (*dynamodb.Client).BatchGetItem, dynamodb.BatchGetItemInput{ReturnConsumedCapacity: level, RequestItems: map[string]types.KeysAndAttributes{"orders": {Keys: []map[string]types.AttributeValue{keyOf(4)}}}}),
			call("Query", (*dynamodb.Client).Query, dynamodb.QueryInput{ReturnConsumedCapacity: level, TableName: table, KeyConditionExpression: aws.String("pk = :k"), ExpressionAttributeValues: map[string]types.AttributeValue{":k": text("k005")}}),
			call("Scan", (*dynamodb.Client).Scan, dynamodb.ScanInput{ReturnConsumedCapacity: level, TableName: table, Limit: aws.Int32(7)}),
			call("TransactGetItems", (*dynamodb.Client).TransactGetItems, dynamodb.TransactGetItemsInput{ReturnConsumedCapacity: level, TransactItems: []types.TransactGetItem{{Get: &types.Get{TableName: table, Key: keyOf(6)}}}}),
			call("TransactWriteItems", (*dynamodb.Client).TransactWriteItems, dynamodb.TransactWriteItemsInput{ReturnConsumedCapacity: level, ClientRequestToken: aws.String("a" + string(level)), TransactItems: []types.TransactWriteItem{{Put: &types.Put{TableName: table, Item: itemOf(7)}}, {Delete: &types.Delete{TableName: table, Key: keyOf(8)}}}}),
			call("TransactWriteItems, condition", (*dynamodb.Client).TransactWriteItems, dynamodb.TransactWriteItemsInput{ReturnConsumedCapacity: level, ClientRequestToken: aws.String("b" + string(level)), TransactItems: []types.TransactWriteItem{{Put: &types.Put{TableName: table, Item: itemOf(7), ConditionExpression: missing}}}}),
			call("ExecuteStatement", (*dynamodb.Client).ExecuteStatement, dynamodb.ExecuteStatementInput{ReturnConsumedCapacity: level, Statement: select1}),
			call("BatchExecuteStatement", (*dynamodb.Client).BatchExecuteStatement, dynamodb.BatchExecuteStatementInput{ReturnConsumedCapacity: level, Statements: []types.BatchStatementRequest{{Statement: select1}}}),
			call("ExecuteTransaction", (*dynamodb.Client).ExecuteTransaction, dynamodb.ExecuteTransactionInput{ReturnConsumedCapacity: level, ClientRequestToken: aws.String("c" + string(level)), TransactStatements: []types.ParameterizedStatement{{Statement: aws.String("UPDATE orders SET n = 5 WHERE pk = 'k009'")}}}),
		)
	}
	return append(all, call("ListTables", (*dynamodb.Client).ListTables, dynamodb.ListTablesInput{}))
}

// Answers and errors through a proxy are those of the engine itself, and what the proxy charges is what a governed
// client of Go's does.
func TestAsWithoutProxy(t *testing.T) {
	t.Parallel()
	behind, without, governed := dynamotest.FreshEngine(t), dynamotest.FreshEngine(t), dynamotest.FreshEngine(t)
	if behind == without {
		t.Skip("needs engines that start empty, and one is given")
	}
	cfg := governor.Config{ReadUnits: 1e5, WriteUnits: 1e5}
	charged, expected := govern(t, cfg), govern(t, cfg)
	at, err := url.Parse(behind)
	if err != nil {
		t.Fatal(err)
	}
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	p := httptest.NewServer(proxy(t, charged, nil, func(c *dynamoproxy.Config) { c.Endpoint, c.Transport = at, transport }))
	t.Cleanup(p.Close)
	through, direct := dynamotest.Client(t, p.URL, checking), dynamotest.Client(t, without, checking)
	reference := dynamotest.Client(t, governed, func(o *dynamodb.Options) {
		o.APIOptions = append(o.APIOptions, expected.Middleware())
	})
	ignored := cmpopts.IgnoreTypes(middleware.Metadata{}, document.NoSerde{}, &types.TableDescription{})
	for _, s := range steps() {
		got, err := s.do(t.Context(), through)
		want, wantErr := s.do(t.Context(), direct)
		if codeOf(err) != codeOf(wantErr) {
			t.Errorf("%s: error %v, not %v", s.name, err, wantErr)
		}
		if diff := cmp.Diff(want, got, ignored); err == nil && diff != "" {
			t.Errorf("%s: %s", s.name, diff)
		}
		_, _ = s.do(t.Context(), reference) // for its charge
		if got, want := spent(charged), spent(expected); got != want {
			t.Errorf("%s: charged until now %s, and without the proxy %s", s.name, got, want)
		}
	}
	t.Log(spent(charged))
}

// checking makes a client verify the checksums of answers.
func checking(o *dynamodb.Options) { o.DisableValidateResponseChecksum = false }

func spent(g *governor.Governor) string {
	all := g.Status().Budgets
	return fmt.Sprintf("%v reads, %v writes, %v and %v of them estimated",
		all[0].Consumed, all[1].Consumed, all[0].Estimated, all[1].Estimated)
}
