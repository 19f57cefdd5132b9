package governor_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/governor"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// newTable makes a table, with an ungoverned client.
func newTable(t *testing.T, endpoint string) string {
	t.Helper()
	name := dynamotest.Table(t)
	c := dynamotest.Client(t, endpoint)
	if _, err := c.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := dynamodb.NewTableExistsWaiter(c).Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: &name}, time.Minute); err != nil {
		t.Fatal(err)
	}
	return name
}

func itemOf(i int) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: strconv.Itoa(i)}, "n": &types.AttributeValueMemberN{Value: strconv.Itoa(i)}}
}

// Against an engine: the cost of every kind of operation is what the engine reports, and concurrent goroutines stay
// within the budget.
func TestAgainstAnEngine(t *testing.T) {
	t.Parallel()
	endpoint := dynamotest.Engine(t)
	table := newTable(t, endpoint)
	g := mustNew(t, governor.Config{ReadUnits: 1000, WriteUnits: 1000})
	c := dynamotest.Client(t, endpoint, func(o *dynamodb.Options) { o.APIOptions = append(o.APIOptions, g.Middleware()) })
	ctx := t.Context()
	put := func(i int) types.WriteRequest {
		return types.WriteRequest{PutRequest: &types.PutRequest{Item: itemOf(i)}}
	}
	transaction := &dynamodb.TransactWriteItemsInput{ClientRequestToken: &table, TransactItems: []types.TransactWriteItem{{Put: &types.Put{TableName: &table, Item: itemOf(7)}}}}
	for _, step := range []struct {
		name        string
		do          func() error
		read, write float64
		fails       bool
	}{
		{"DescribeTable", func() error {
			_, err := c.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
			return err
		}, 0, 0, false},
		{"BatchWriteItem", func() error {
			_, err := c.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: {put(1), put(2), put(3)}}})
			return err
		}, 0, 3, false},
		{"GetItem, consistent", func() error {
			_, err := c.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: map[string]types.AttributeValue{"pk": itemOf(1)["pk"]}, ConsistentRead: aws.Bool(true)})
			return err
		}, 1, 0, false},
		{"Scan", func() error {
			pages := dynamodb.NewScanPaginator(c, &dynamodb.ScanInput{TableName: &table, Limit: aws.Int32(1)})
			n := 0
			for pages.HasMorePages() {
				page, err := pages.NextPage(ctx)
				if err != nil {
					return err
				}
				n += len(page.Items)
			}
			if n != 3 {
				t.Errorf("%d items", n)
			}
			return nil
		}, 2, 0, false}, // three pages with an item and an empty one, 0.5 each
		{"failed condition", func() error {
			_, err := c.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: &table, Item: itemOf(1), ConditionExpression: aws.String("attribute_not_exists(pk)"), ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
			})
			return err
		}, 0, 1, true},
		{"TransactWriteItems", func() error { _, err := c.TransactWriteItems(ctx, transaction); return err }, 0, 2, false},
		{"its replay", func() error { _, err := c.TransactWriteItems(ctx, transaction); return err }, 2, 0, false},
		{"PartiQL", func() error {
			_, err := c.ExecuteStatement(ctx, &dynamodb.ExecuteStatementInput{Statement: aws.String(`UPDATE "` + table + `" SET n = 8 WHERE pk = '7'`)})
			return err
		}, 0, 1, false},
	} {
		r, w := budgetOf(g, "", "", governor.Read).Consumed, budgetOf(g, "", "", governor.Write).Consumed
		if err := step.do(); (err != nil) != step.fails {
			t.Fatalf("%s: %v", step.name, err)
		}
		r, w = budgetOf(g, "", "", governor.Read).Consumed-r, budgetOf(g, "", "", governor.Write).Consumed-w
		if r != step.read || w != step.write {
			t.Errorf("%s: %v reads and %v writes were charged, want %v and %v", step.name, r, w, step.read, step.write)
		}
	}
}

func TestGoroutinesKeepToTheBudget(t *testing.T) {
	t.Parallel()
	endpoint := dynamotest.Engine(t)
	table := newTable(t, endpoint)
	g := mustNew(t, governor.Config{ReadUnits: governor.Unlimited, WriteUnits: 100})
	c := dynamotest.Client(t, endpoint, func(o *dynamodb.Options) { o.APIOptions = append(o.APIOptions, g.Middleware()) })
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range 8 {
		wg.Go(func() {
			for i := next.Add(1); i <= 250; i = next.Add(1) {
				if _, err := c.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: &table, Item: itemOf(int(i))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait() // real time: the engine has no other clock
	took := time.Since(began)
	if took < 1500*time.Millisecond {
		t.Errorf("250 units at 100 a second, of which 100 were there, took %v", took)
	}
	if b := budgetOf(g, "", "", governor.Write); b.Consumed != 250 || b.Estimated != 0 {
		t.Errorf("%+v", b)
	}
	t.Logf("250 writes at 100 a second took %v", took)
}
