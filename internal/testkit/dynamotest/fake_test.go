package dynamotest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// lone returns a fake with the first item in a table "t".
func lone(t *testing.T) *dynamotest.Fake {
	t.Helper()
	fake := &dynamotest.Fake{}
	if _, err := fake.CreateTable(t.Context(), schema("t")); err != nil {
		t.Fatal(err)
	}
	if _, err := fake.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: new("t"), Item: first()}); err != nil {
		t.Fatal(err)
	}
	return fake
}

func add() *dynamodb.UpdateItemInput {
	return &dynamodb.UpdateItemInput{
		TableName: new("t"), Key: item{"pk": str("p"), "sk": str("1")}, UpdateExpression: new("ADD a :one"),
		ConditionExpression: new("a < :three"), ExpressionAttributeValues: item{":one": num("1"), ":three": num("3")},
	}
}

func level(fake *dynamotest.Fake) string {
	return fake.Items("t")[0]["a"].(*types.AttributeValueMemberN).Value
}

func TestHooks(t *testing.T) {
	t.Parallel()
	fake, lost := lone(t), errors.New("lost")
	fake.Before = func(op string, in any) error {
		if op != "UpdateItem" || *in.(*dynamodb.UpdateItemInput).TableName != "t" {
			t.Errorf("before: %s %T", op, in)
		}
		return lost
	}
	if _, err := fake.UpdateItem(t.Context(), add()); !errors.Is(err, lost) || level(fake) != "1" {
		t.Errorf("stopped before: %v, level %s", err, level(fake))
	}
	fake.Before = nil
	fake.After = func(_ string, _, out any) error {
		if _, ok := out.(*dynamodb.UpdateItemOutput); !ok {
			t.Errorf("after: %T", out)
		}
		return lost
	}
	if _, err := fake.UpdateItem(t.Context(), add()); !errors.Is(err, lost) || level(fake) != "2" {
		t.Errorf("stopped after: %v, level %s", err, level(fake))
	}
	fake.After = func(_ string, _, out any) error {
		if err, ok := out.(error); ok {
			_, failed := errors.AsType[*types.ConditionalCheckFailedException](err)
			if !failed {
				t.Errorf("after a failed condition: %v", err)
			}
		}
		return nil
	}
	for _, want := range []bool{true, false} {
		if _, err := fake.UpdateItem(t.Context(), add()); (err == nil) != want {
			t.Errorf("answered %v, want success: %v", err, want)
		}
	}
	if diff := cmp.Diff(map[string]int{"CreateTable": 1, "PutItem": 1, "UpdateItem": 4}, fake.Calls()); diff != "" {
		t.Errorf("calls -want +got\n%s", diff)
	}
}

func TestHooksMayCall(t *testing.T) {
	t.Parallel()
	fake := lone(t)
	fake.Before = func(string, any) error {
		fake.Before = nil
		_, err := fake.UpdateItem(t.Context(), add())
		return err
	}
	if _, err := fake.UpdateItem(t.Context(), add()); err != nil || level(fake) != "3" {
		t.Errorf("%v, level %s, want 3", err, level(fake))
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	fake := lone(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fake.UpdateItem(ctx, add()); !errors.Is(err, context.Canceled) || level(fake) != "1" {
		t.Errorf("%v, level %s", err, level(fake))
	}
}

// TestAnswersAreCopies modifies inputs and outputs of calls, which must not change the fake.
func TestAnswersAreCopies(t *testing.T) {
	t.Parallel()
	fake := lone(t)
	in := first()
	for range 2 {
		out, err := fake.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: new("t"), Item: in, ReturnValues: types.ReturnValueAllOld})
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range []item{in, out.Attributes, fake.Items("t")[0]} {
			it["m"].(*types.AttributeValueMemberM).Value["x"] = str("changed")
			it["a"].(*types.AttributeValueMemberN).Value = "99"
		}
		if got, want := spellItem(fake.Items("t")[0]), spellItem(first()); got != want {
			t.Fatalf("stored %s, want %s", got, want)
		}
		in = first()
	}
}

// TestCapacityCountsFailures: failed writes consume capacity, here for an item of over 1 KB with an index.
func TestCapacityCountsFailures(t *testing.T) {
	t.Parallel()
	fake := lone(t)
	if got, want := fake.Capacity(), (dynamotest.Units{Write: 2}); got != want {
		t.Errorf("an item and its entry: %v, want %v", got, want)
	}
	before := fake.Capacity().Write
	grow := add()
	grow.UpdateExpression, grow.ConditionExpression = new("SET b = :one"), nil
	grow.ExpressionAttributeValues = item{":one": str(strings.Repeat("x", 1100))}
	move := add()
	move.UpdateExpression, move.ConditionExpression = new("SET r = :one"), nil
	move.ExpressionAttributeValues = item{":one": num("7")}
	fail := add()
	fail.ExpressionAttributeValues[":three"] = num("-3")
	for _, tt := range []struct {
		name string
		in   *dynamodb.UpdateItemInput
		want float64
	}{{"grow", grow, 2}, {"add", add(), 2}, {"fail", fail, 2}, {"move", move, 4}} {
		_, _ = fake.UpdateItem(t.Context(), tt.in)
		if got := fake.Capacity().Write - before; got != tt.want {
			t.Errorf("%s: %v units, want %v", tt.name, got, tt.want)
		}
		before = fake.Capacity().Write
	}
}

func TestItemSize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value types.AttributeValue
		want  int
	}{
		{num("0"), 1},
		{num("7"), 2},
		{num("-7"), 3},
		{num("100"), 2},
		{num("9223372036854775807"), 11},
		{num("-9223372036854775808"), 12},
		{str("abc"), 3},
		{str("ä"), 2},
		{&types.AttributeValueMemberBOOL{}, 1},
		{&types.AttributeValueMemberL{Value: []types.AttributeValue{str("a")}}, 5},
		{&types.AttributeValueMemberM{Value: item{"k": str("a")}}, 6},
	} {
		if got := dynamotest.ItemSize(item{"n": tt.value}); got != tt.want+1 {
			t.Errorf("%s: %d bytes, want %d and the name", spellValue(tt.value), got, tt.want)
		}
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	fake := lone(t)
	for sk, expiry := range map[string]types.AttributeValue{"past": num("99"), "now": num("100"), "text": str("99")} {
		if _, err := fake.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: new("t"), Item: item{"pk": str("p"), "sk": str(sk), "expiry": expiry}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := fake.Sweep(time.Unix(100, 0)); n != 0 {
		t.Errorf("swept %d items of a table without a time to live", n)
	}
	if _, err := fake.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{
		TableName: new("t"), TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: new("expiry"), Enabled: new(true)},
	}); err != nil {
		t.Fatal(err)
	}
	if n := fake.Sweep(time.Unix(100, 0)); n != 1 || len(fake.Items("t")) != 3 {
		t.Errorf("swept %d, left %d; want 1, 3", n, len(fake.Items("t")))
	}
}

// TestTables sets up a table in the fake and in the engine, and compares their descriptions.
func TestTables(t *testing.T) {
	t.Parallel()
	table, fake, engine := stocked(t)
	for _, db := range []api{fake, engine} {
		var inUse *types.ResourceInUseException
		if _, err := db.CreateTable(t.Context(), schema(table)); !errors.As(err, &inUse) {
			t.Errorf("%T: create again: %v", db, err)
		}
		var missing *types.ResourceNotFoundException
		if _, err := db.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: new("missing")}); !errors.As(err, &missing) {
			t.Errorf("%T: describe what is missing: %v", db, err)
		}
		desc, err := db.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
		if err != nil {
			t.Fatal(err)
		}
		if d := desc.Table; d.TableStatus != types.TableStatusActive || len(d.KeySchema) != 2 || *d.GlobalSecondaryIndexes[0].IndexName != "byg" {
			t.Errorf("%T: described as %v", db, d)
		}
		for _, enabled := range []bool{false, true} {
			if enabled {
				if _, err := db.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{
					TableName: &table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: new("ttl"), Enabled: new(true)},
				}); err != nil {
					t.Errorf("%T: time to live: %v", db, err)
				}
			}
			out, err := db.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &table})
			if err != nil || (out.TimeToLiveDescription.AttributeName != nil) != enabled {
				t.Errorf("%T: time to live enabled %v: %v %v", db, enabled, out, err)
			}
		}
		if _, err := db.UpdateContinuousBackups(t.Context(), &dynamodb.UpdateContinuousBackupsInput{
			TableName: &table, PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: new(true)},
		}); err != nil && !(db == api(engine) && strings.Contains(err.Error(), "UnknownOperationException")) { // the engine does not have the operation
			t.Errorf("%T: backups: %v", db, err)
		}
	}
}
