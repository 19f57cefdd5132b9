package dynamotest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// stocked returns a fake and an engine with the same table and item.
func stocked(t *testing.T) (table string, fake *dynamotest.Fake, engine *dynamodb.Client) {
	t.Helper()
	table, fake, engine = dynamotest.Table(t), &dynamotest.Fake{}, dynamotest.Client(t, dynamotest.Engine(t))
	for _, db := range []api{fake, engine} {
		if _, err := db.CreateTable(t.Context(), schema(table)); err != nil {
			t.Fatal(err)
		}
		if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: first()}); err != nil {
			t.Fatal(err)
		}
	}
	return table, fake, engine
}

func first() item {
	return item{
		"pk": str("p"), "sk": str("1"), "a": num("1"), "b": str("x"), "g": str("g"), "r": num("1"),
		"m": &types.AttributeValueMemberM{Value: item{"x": num("1")}},
		"l": &types.AttributeValueMemberL{Value: []types.AttributeValue{num("1")}},
	}
}

// TestRefused: updates of the first item that are always refused. Where lax is set, the engine accepts the update, or did
// when last asked; DynamoDB does not.
func TestRefused(t *testing.T) {
	t.Parallel()
	table, fake, engine := stocked(t)
	for _, tt := range []struct {
		name, update, condition string
		names                   map[string]string
		values                  item
		lax                     bool
	}{
		{name: "unused name", update: "REMOVE a", names: map[string]string{"#a": "a"}},
		{name: "unused value", update: "REMOVE a", values: item{":a": num("1")}},
		{name: "undefined name", update: "REMOVE #a"},
		{name: "undefined value", update: "SET a = :a"},
		{name: "undefined value that does not matter", condition: "attribute_exists(a) OR a = :a", lax: true},
		{name: "no names", update: "REMOVE a", names: map[string]string{}},
		{name: "no values", update: "REMOVE a", values: item{}},
		{name: "empty update", update: " ", lax: true},
		{name: "empty condition", condition: " "},
		{name: "reserved word", update: "REMOVE level"},
		{name: "reserved word in upper case", condition: "attribute_exists(TTL)"},
		{name: "between upside down", condition: "a BETWEEN :a AND :b", values: item{":a": num("2"), ":b": num("1")}},
		{name: "between types", condition: "a BETWEEN :a AND :b", values: item{":a": num("1"), ":b": str("2")}},
		{name: "order of a boolean", condition: "a < :a", values: item{":a": &types.AttributeValueMemberBOOL{Value: true}}, lax: true},
		{name: "prefix that is a number", condition: "begins_with(b, :a)", values: item{":a": num("1")}},
		{name: "unknown type", condition: "attribute_type(b, :a)", values: item{":a": str("number")}, lax: true},
		{name: "a path and itself", condition: "a <> a", lax: true},
		{name: "existence of a value", condition: "attribute_exists(:a)", values: item{":a": num("1")}},
		{name: "unknown function", condition: "exists(a)"},
		{name: "no comparator", condition: "a"},
		{name: "open parenthesis", condition: "(a = b"},
		{name: "unknown section", update: "PUT a = b"},
		{name: "section twice", update: "SET a = b SET b = a"},
		{name: "one path twice", update: "SET a = b, a = b"},
		{name: "a path and one in it", update: "SET m = b, m.x = b"},
		{name: "key", update: "SET sk = b"},
		{name: "path into a number", update: "SET a.x = b"},
		{name: "path into nothing", update: "SET n.x = b"},
		{name: "remove from nothing", update: "REMOVE n.x", lax: true},
		{name: "missing operand", update: "SET a = nothing"},
		{name: "missing operand of a sum", update: "SET a = nothing + :a", values: item{":a": num("1")}},
		{name: "sum with a string", update: "SET a = b + :a", values: item{":a": num("1")}},
		{name: "sum with a constant string", update: "SET a = a + :a", values: item{":a": str("1")}},
		{name: "add to a string", update: "ADD b :a", values: item{":a": num("1")}},
		{name: "add a string", update: "ADD a :a", values: item{":a": str("1")}},
		{name: "key of an index of another type", update: "SET r = b"},
		{name: "empty key of an index", update: "SET g = :a", values: item{":a": str("")}},
		{name: "no number", update: "SET a = :a", values: item{":a": num("one")}},
		{name: "too many digits", update: "SET a = :a", values: item{":a": num(strings.Repeat("1", 39))}},
		{name: "too large", update: "SET a = :a", values: item{":a": num("1e126")}},
		{name: "too small", update: "SET a = :a", values: item{":a": num("1e-131")}},
		{name: "empty set", update: "SET a = :a", values: item{":a": &types.AttributeValueMemberSS{}}},
		{name: "twice in a set", update: "SET a = :a", values: item{":a": &types.AttributeValueMemberSS{Value: []string{"x", "x"}}}},
		{name: "too large an item", update: "SET a = :a", values: item{":a": str(strings.Repeat("x", 400<<10))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := &dynamodb.UpdateItemInput{
				TableName: &table, Key: item{"pk": str("p"), "sk": str("1")},
				ExpressionAttributeNames: tt.names, ExpressionAttributeValues: tt.values,
			}
			if tt.update != "" {
				in.UpdateExpression = &tt.update
			}
			if tt.condition != "" {
				in.ConditionExpression = &tt.condition
			}
			if got := answer(t.Context(), fake, in); got != "ValidationException" {
				t.Errorf("the fake answers %s", got)
			}
			if got := answer(t.Context(), engine, in); !tt.lax && got != "ValidationException" {
				t.Errorf("the engine answers %s", got)
			}
		})
	}
	t.Cleanup(func() {
		if got, want := spellItems(fake.Items(table)), spellItem(first())+"\n"; got != want {
			t.Errorf("left %s, want %s", got, want)
		}
	})
}

// TestQueryRefused: queries that DynamoDB refuses, and the engine does not always.
func TestQueryRefused(t *testing.T) {
	t.Parallel()
	fake := lone(t)
	values := item{":v": str("p")}
	for _, tt := range []struct {
		name string
		in   dynamodb.QueryInput
	}{
		{"no condition", dynamodb.QueryInput{}},
		{"no hash", dynamodb.QueryInput{KeyConditionExpression: new("sk = :v")}},
		{"range of hashes", dynamodb.QueryInput{KeyConditionExpression: new("pk > :v")}},
		{"range unequal", dynamodb.QueryInput{KeyConditionExpression: new("pk = :v AND sk <> :v")}},
		{"either", dynamodb.QueryInput{KeyConditionExpression: new("pk = :v OR sk = :v")}},
		{"another attribute", dynamodb.QueryInput{KeyConditionExpression: new("pk = :v AND b = :v")}},
		{"three terms", dynamodb.QueryInput{KeyConditionExpression: new("pk = :v AND sk > :v AND sk < :v")}},
		{"filter of the key", dynamodb.QueryInput{KeyConditionExpression: new("pk = :v"), FilterExpression: new("sk = :v")}},
		{"no such index", dynamodb.QueryInput{KeyConditionExpression: new("pk = :v"), IndexName: new("none")}},
		{"consistent index", dynamodb.QueryInput{KeyConditionExpression: new("g = :v"), IndexName: new("byg"), ConsistentRead: new(true)}},
		{"filter past the index", dynamodb.QueryInput{KeyConditionExpression: new("g = :v"), IndexName: new("byg"), FilterExpression: new("b = :v")}},
		{"projection past the index", dynamodb.QueryInput{KeyConditionExpression: new("g = :v"), IndexName: new("byg"), ProjectionExpression: new("b")}},
		{"range of another type", dynamodb.QueryInput{KeyConditionExpression: new("g = :v AND r > :v"), IndexName: new("byg")}},
		{"limit of none", dynamodb.QueryInput{KeyConditionExpression: new("pk = :v"), Limit: new(int32(0))}},
		{"start without a range", dynamodb.QueryInput{KeyConditionExpression: new("pk = :v"), ExclusiveStartKey: item{"pk": str("p")}}},
		{"start in another partition", dynamodb.QueryInput{KeyConditionExpression: new("pk = :v"), ExclusiveStartKey: item{"pk": str("q"), "sk": str("1")}}},
		{"start out of range", dynamodb.QueryInput{KeyConditionExpression: new("pk = :v AND sk > :v"), ExclusiveStartKey: item{"pk": str("p"), "sk": str("a")}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.in.TableName = new("t")
			if tt.in.KeyConditionExpression != nil {
				tt.in.ExpressionAttributeValues = values
			}
			if got := answer(t.Context(), fake, &tt.in); got != "ValidationException" {
				t.Errorf("answered %s", got)
			}
		})
	}
}

// TestTooMany: calls with too many parts, or the same part twice.
func TestTooMany(t *testing.T) {
	t.Parallel()
	table, fake, engine := stocked(t)
	var gets []item
	var puts []types.WriteRequest
	var writes []types.TransactWriteItem
	for i := range 101 {
		it := item{"pk": str("p"), "sk": str(fmt.Sprint("many", i))}
		gets = append(gets, it)
		puts = append(puts, types.WriteRequest{PutRequest: &types.PutRequest{Item: it}})
		writes = append(writes, types.TransactWriteItem{Put: &types.Put{TableName: &table, Item: it}})
	}
	get := func(keys ...item) any {
		return &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{table: {Keys: keys}}}
	}
	put := func(puts ...types.WriteRequest) any {
		return &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: puts}}
	}
	transact := func(writes ...types.TransactWriteItem) any {
		return &dynamodb.TransactWriteItemsInput{TransactItems: writes}
	}
	remove := types.TransactWriteItem{Delete: &types.Delete{TableName: &table, Key: gets[0]}}
	for _, tt := range []struct {
		name string
		call any
		want string
	}{
		{"101 gets", get(gets...), "ValidationException"},
		{"100 gets", get(gets[:100]...), "0"},
		{"a get twice", get(gets[0], gets[0]), "ValidationException"},
		{"26 puts", put(puts[:26]...), "ValidationException"},
		{"25 puts", put(puts[:25]...), "0"},
		{"a put twice", put(puts[0], puts[0]), "ValidationException"},
		{"101 writes", transact(writes...), "ValidationException"},
		{"100 writes", transact(writes[:100]...), "done"},
		{"two writes to one item", transact(writes[0], remove), "ValidationException"},
		{"missing table", &dynamodb.GetItemInput{TableName: new("missing"), Key: gets[0]}, "ResourceNotFoundException"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for name, db := range map[string]api{"fake": fake, "engine": engine} {
				if got := strings.TrimSpace(answer(t.Context(), db, tt.call)); !strings.HasSuffix(got, tt.want) {
					t.Errorf("%s answers %s, want %s", name, got, tt.want)
				}
			}
		})
	}
}

func TestTokenIsForOneRequest(t *testing.T) {
	t.Parallel()
	table, fake, engine := stocked(t)
	call := func(by string) any {
		return &dynamodb.TransactWriteItemsInput{
			ClientRequestToken: new(table), ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
			TransactItems: []types.TransactWriteItem{{Update: &types.Update{
				TableName: &table, Key: item{"pk": str("p"), "sk": str("1")},
				UpdateExpression: new("ADD a :by"), ExpressionAttributeValues: item{":by": num(by)},
			}}},
		}
	}
	for _, db := range []api{fake, engine} {
		for i, want := range []string{"done\ncapacity 2, read -, written 2", "done\ncapacity 2, read 2, written -"} {
			if got := answer(t.Context(), db, call("1")); got != want {
				t.Errorf("%T, time %d: %s, want %s", db, i+1, got, want)
			}
		}
		if got := answer(t.Context(), db, call("2")); got != "IdempotentParameterMismatchException" {
			t.Errorf("%T, another request: %s", db, got)
		}
	}
	if got := fake.Items(table)[0]["a"].(*types.AttributeValueMemberN).Value; got != "2" {
		t.Errorf("a = %s, want 2: applied once", got)
	}
}
