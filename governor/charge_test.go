package governor_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/governor"
)

func put(ctx context.Context, c *dynamodb.Client) error {
	_, err := c.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("t"), Item: key})
	return err
}

func get(ctx context.Context, c *dynamodb.Client) error {
	_, err := c.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("t"), Key: key})
	return err
}

func putBig(ctx context.Context, c *dynamodb.Client) error {
	item := map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: strings.Repeat("x", 2500)}}
	_, err := c.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("t"), Item: item})
	return err
}

func transact(ctx context.Context, c *dynamodb.Client) error {
	_, err := c.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
		{Put: &types.Put{TableName: aws.String("t"), Item: key}},
		{ConditionCheck: &types.ConditionCheck{TableName: aws.String("u"), Key: key, ConditionExpression: aws.String("attribute_exists(pk)")}},
	}})
	return err
}

func statement(text string) func(context.Context, *dynamodb.Client) error {
	return func(ctx context.Context, c *dynamodb.Client) error {
		_, err := c.ExecuteStatement(ctx, &dynamodb.ExecuteStatementInput{Statement: &text})
		return err
	}
}

const (
	failedCondition = `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"no"}`
	cancelled       = `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"no",` +
		`"CancellationReasons":[{"Code":"None"},{"Code":"ConditionalCheckFailed","Message":"no"}]}`
	invalid  = `{"__type":"com.amazon.coral.validate#ValidationException","message":"no"}`
	conflict = `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionConflictException","message":"no"}`
)

func TestCharges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		call        func(context.Context, *dynamodb.Client) error
		status      int
		body        string
		fails       bool
		read, write float64
		estimated   float64 // of both
	}{
		{"as reported", get, 200, consumed("3.5"), false, 3.5, 0, 0},
		{"not reported", get, 200, `{}`, false, 0.5, 0, 0.5},
		{"not reported, write", putBig, 200, `{}`, false, 0, 3, 3},
		{"failed condition", put, 400, failedCondition, true, 0, 1, 1},
		{"failed condition of a large item", putBig, 400, failedCondition, true, 0, 3, 3},
		{
			"failed condition, with the item", put, 400, strings.Replace(failedCondition, `{`, `{"Item":{"pk":{"S":"`+strings.Repeat("x", 4000)+`"}},`, 1),
			true, 0, 4, 0,
		},
		{"failed condition in PartiQL", statement(`UPDATE "t" SET a=1 WHERE pk='a'`), 400, failedCondition, true, 0, 1, 1},
		{"cancelled transaction", transact, 400, cancelled, true, 0, 4, 4},
		{"conflict", put, 400, conflict, true, 0, 1, 1},
		{"transaction", transact, 200, `{"ConsumedCapacity":[{"TableName":"t","CapacityUnits":2,"WriteCapacityUnits":2},{"TableName":"u","CapacityUnits":2,"WriteCapacityUnits":2}]}`, false, 0, 4, 0},
		{"replayed transaction", transact, 200, `{"ConsumedCapacity":[{"TableName":"t","CapacityUnits":4,"ReadCapacityUnits":4}]}`, false, 4, 2, 2},
		{"replay that names both tables", transact, 200, `{"ConsumedCapacity":[{"TableName":"t","ReadCapacityUnits":2},{"TableName":"u","ReadCapacityUnits":2}]}`, false, 4, 0, 0},
		{"mistake", put, 400, invalid, true, 0, 0, 0},
		{"500, three attempts", put, 500, `{"__type":"InternalServerError"}`, true, 0, 3, 3},
		{"no answer, three attempts", put, 0, ``, true, 0, 3, 3},
		{"throttled", put, 400, throttling("ProvisionedThroughputExceededException"), true, 0, 0, 0},
		{"select", statement(`SELECT * FROM "t" WHERE pk='a'`), 200, consumed("2"), false, 2, 0, 0},
		{"insert", statement(`INSERT INTO "t" VALUE {'pk':'a'}`), 200, consumed("2"), false, 0, 2, 0},
		{"delete", statement(`delete from t where pk='a'`), 200, consumed("2"), false, 0, 2, 0},
		{"unknown verb", statement(`MERGE t`), 200, consumed("2"), false, 0, 2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &stub{answer: answering(tt.status, tt.body)}
				g := mustNew(t, governor.Config{ReadUnits: 100, WriteUnits: 100})
				if err := tt.call(t.Context(), s.client(g)); (err != nil) != tt.fails {
					t.Fatal(err)
				}
				r, w := budgetOf(g, "", "", governor.Read), budgetOf(g, "", "", governor.Write)
				if r.Consumed != tt.read || w.Consumed != tt.write || r.Estimated+w.Estimated != tt.estimated {
					t.Errorf("charged %v reads, %v writes, of which %v are estimates", r.Consumed, w.Consumed, r.Estimated+w.Estimated)
				}
				if r.Available != 100-tt.read || w.Available != 100-tt.write {
					t.Errorf("%v reads and %v writes are left of 100", r.Available, w.Available)
				}
			})
		})
	}
}

// The cost of a call is learned for each operation on each table.
func TestEstimatesFollowCosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		g := mustNew(t, governor.Config{ReadUnits: 1000, WriteUnits: governor.Unlimited})
		c := s.client(g)
		s.answer = answering(200, consumed("7"))
		if err := get(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for _, units := range []string{"7", "7"} {
			before := budgetOf(g, "", "", governor.Read).Available
			s.answer = func(request) (int, string) {
				if taken := before - budgetOf(g, "", "", governor.Read).Available; taken != 7 {
					t.Errorf("%v were estimated", taken)
				}
				return 200, consumed(units)
			}
			if err := get(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		s.answer = func(request) (int, string) {
			if taken := 979 - budgetOf(g, "", "", governor.Read).Available; taken != 128 {
				t.Errorf("%v were estimated for a page of a scan", taken)
			}
			return 200, consumed("1")
		}
		if _, err := c.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("t")}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestIndexesHaveTheirOwnBudgets(t *testing.T) {
	t.Parallel()
	limits := governor.Limits{ReadUnits: 100, WriteUnits: 100, Indexes: map[string]governor.Limits{"byUser": {ReadUnits: 50, WriteUnits: 50}}}
	const written = `{"ConsumedCapacity":{"TableName":"t","CapacityUnits":6,"Table":{"CapacityUnits":1},` +
		`"GlobalSecondaryIndexes":{"byUser":{"CapacityUnits":3},"byDay":{"CapacityUnits":2}}}}`
	const queried = `{"ConsumedCapacity":{"TableName":"t","CapacityUnits":4,"Table":{"CapacityUnits":0},"GlobalSecondaryIndexes":{"byUser":{"CapacityUnits":4}}}}`
	synctest.Test(t, func(t *testing.T) {
		s := &stub{answer: answering(200, written)}
		g := mustNew(t, governor.Config{ReadUnits: 1000, WriteUnits: 1000, Tables: map[string]governor.Limits{"t": limits}})
		c := s.client(g)
		if err := put(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		s.answer = answering(200, queried)
		if _, err := c.Query(t.Context(), &dynamodb.QueryInput{
			TableName: aws.String("arn:aws:dynamodb:eu-west-1:123456789012:table/t"), IndexName: aws.String("byUser"), Limit: aws.Int32(5),
			KeyConditionExpression: aws.String("u = :u"),
		}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			table, index string
			dir          governor.Direction
			consumed     float64
		}{
			{"", "", governor.Write, 6},
			{"t", "", governor.Write, 3},
			{"t", "byUser", governor.Write, 3},
			{"", "", governor.Read, 4},
			{"t", "", governor.Read, 0},
			{"t", "byUser", governor.Read, 4},
		} {
			if b := budgetOf(g, want.table, want.index, want.dir); b.Consumed != want.consumed || b.Estimated != 0 {
				t.Errorf("%s/%s %s: %v consumed, %v estimated, want %v", want.table, want.index, want.dir, b.Consumed, b.Estimated, want.consumed)
			}
		}
	})
}
