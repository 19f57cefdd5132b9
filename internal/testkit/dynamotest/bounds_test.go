package dynamotest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// nested returns a value of some levels.
func nested(levels int) types.AttributeValue {
	v := str("x")
	for range levels - 1 {
		v = &types.AttributeValueMemberL{Value: []types.AttributeValue{v}}
	}
	return v
}

// padded returns a text of n bytes that is the given one with spaces after its first word.
func padded(text string, n int) *string {
	first, rest, _ := strings.Cut(text, " ")
	return new(first + strings.Repeat(" ", n-len(text)+1) + rest)
}

// repeated joins n copies of a text.
func repeated(n int, text, separator string) string {
	return strings.Join(slices.Repeat([]string{text}, n), separator)
}

// listed joins n texts, each with its number.
func listed(n int, format, separator string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(format, "#", fmt.Sprint(i))
	}
	return strings.Join(all, separator)
}

// TestBounds: at each bound a call is accepted, and beyond it refused, by the fake and by a client.
func TestBounds(t *testing.T) {
	t.Parallel()
	table := dynamotest.Table(t)
	key := item{"pk": str("p"), "sk": str("1")}
	one := item{":v": num("1")}
	update := func(update string, condition *string, values item) any {
		return &dynamodb.UpdateItemInput{
			TableName: &table, Key: key, UpdateExpression: &update, ConditionExpression: condition,
			ExpressionAttributeValues: values,
		}
	}
	named := func(alias, name string) any {
		return &dynamodb.UpdateItemInput{
			TableName: &table, Key: key, UpdateExpression: new("REMOVE " + alias), ExpressionAttributeNames: map[string]string{alias: name},
		}
	}
	set := func(n int, each string, first ...string) any {
		names, all := map[string]string{}, slices.Concat(first, slices.Repeat([]string{each}, n-len(first)))
		for i := range all {
			alias := fmt.Sprint("#", i)
			names[alias], all[i] = alias, alias+all[i]
		}
		return &dynamodb.UpdateItemInput{
			TableName: &table, Key: key, UpdateExpression: new("SET " + strings.Join(all, ",")), ExpressionAttributeNames: names,
			ExpressionAttributeValues: one,
		}
	}
	put := func(more item) any {
		it := maps.Clone(key)
		maps.Copy(it, more)
		return &dynamodb.PutItemInput{TableName: &table, Item: it}
	}
	puts := func(n, size int) (all []item) {
		for i := range n {
			all = append(all, item{"pk": str(fmt.Sprintf("%03d", i)), "sk": str("1"), "v": str(strings.Repeat("x", size-len("pk000sk1v")))})
		}
		return all
	}
	for _, tt := range []struct {
		name string
		most int
		call func(n int) any
	}{
		{"bytes of an update", 4096, func(n int) any { return update(*padded("SET a = :v", n), nil, one) }},
		{"bytes of a condition", 4096, func(n int) any { return update("SET a = :v", padded("attribute_exists(pk) AND a >= :v", n), one) }},
		{"bytes of a projection", 4096, func(n int) any {
			return &dynamodb.GetItemInput{TableName: &table, Key: key, ProjectionExpression: padded("a , b", n)}
		}},
		{"bytes of a filter", 4096, func(n int) any {
			return &dynamodb.QueryInput{
				TableName: &table, KeyConditionExpression: new("pk = :v"), FilterExpression: padded("a = :v", n), ExpressionAttributeValues: item{":v": str("p")},
			}
		}},
		{"bytes of a key condition", 4096, func(n int) any {
			return &dynamodb.QueryInput{TableName: &table, KeyConditionExpression: padded("pk = :v", n), ExpressionAttributeValues: item{":v": str("p")}}
		}},
		{"bytes in a transaction's condition", 4096, func(n int) any {
			return &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Update: &types.Update{
				TableName: &table, Key: key, UpdateExpression: new("SET a = :v"), ConditionExpression: padded("a = :v", n), ExpressionAttributeValues: one,
			}}}}
		}},
		{"operators of a condition", 300, func(n int) any {
			return update("SET a = :v", new(repeated(n%2, "NOT", "")+" "+repeated((n+1)/2, "a = :v", " AND ")), one)
		}},
		{"functions of a condition", 300, func(n int) any {
			return update("SET a = :v", new(repeated(n%2, "NOT", "")+" "+repeated((n+1)/2, "attribute_exists(a)", "OR ")), one)
		}},
		{"assignments", 300, func(n int) any { return set(n, "=:v") }},
		{"operators of an update", 300, func(n int) any { return set(n-10, "=:v", slices.Repeat([]string{"=:v+:v"}, 10)...) }},
		{"functions of an update", 300, func(n int) any {
			return set(n-10, "=:v", slices.Repeat([]string{"=if_not_exists(a,:v)"}, 10)...)
		}},
		{"operands of IN", 100, func(n int) any { return update("SET a = :v", new("a IN ("+repeated(n, ":v", ",")+")"), one) }},
		{"bytes of an alias", 255, func(n int) any { return named("#"+strings.Repeat("x", n-1), "a") }},
		{"bytes of a name", 65535, func(n int) any { return named("#a", strings.Repeat("x", n)) }},
		{"bytes of a put name", 65535, func(n int) any { return put(item{strings.Repeat("x", n): num("1")}) }},
		{"bytes of all values", 2 << 20, func(n int) any {
			values := item{}
			for i := range 7 { // most of them are in a condition: the item would be too large
				values[fmt.Sprint(":", i)] = str(strings.Repeat("x", 290_000))
			}
			values[":r"] = str(strings.Repeat("x", n-7*290_000-8*2))
			return update("SET a = :r", new(listed(7, "b <> :#", " AND ")), values)
		}},
		{"levels", 32, func(n int) any { return put(item{"v": nested(n)}) }},
		{"levels of a value", 32, func(n int) any { return update("SET a = :v", nil, item{":v": nested(n)}) }},
		{"bytes of a hash key", 2048, func(n int) any { return put(item{"pk": str(strings.Repeat("x", n))}) }},
		{"bytes of a range key", 1024, func(n int) any { return put(item{"sk": str(strings.Repeat("x", n))}) }},
		{"bytes of an index's hash key", 2048, func(n int) any { return put(item{"g": str(strings.Repeat("x", n))}) }},
		{"bytes of an item", 400 << 10, func(n int) any { return put(item{"v": str(strings.Repeat("x", n-len("pkpsk1v")))}) }},
		{"bytes of an updated item", 400 << 10, func(n int) any {
			return &dynamodb.UpdateItemInput{
				TableName: &table, Key: item{"pk": str("p"), "sk": str("2")}, UpdateExpression: new("SET v = :v"),
				ExpressionAttributeValues: item{":v": str(strings.Repeat("x", n-len("pkpsk2v")))},
			}
		}},
		{"bytes of a transaction", 4 << 20, func(n int) any {
			var all []types.TransactWriteItem
			for _, it := range puts(16, 4<<20/16) {
				all = append(all, types.TransactWriteItem{Put: &types.Put{TableName: &table, Item: it}})
			}
			all[0].Put.Item["v"] = str(strings.Repeat("x", n-4<<20+4<<20/16-len("pk000sk1v")))
			return &dynamodb.TransactWriteItemsInput{TransactItems: all}
		}},
		{"gets", 100, func(n int) any {
			var keys []item
			for i := range n {
				keys = append(keys, item{"pk": str("p"), "sk": str(fmt.Sprint(i))})
			}
			return &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{table: {Keys: keys}}}
		}},
		{"puts", 25, func(n int) any {
			var all []types.WriteRequest
			for _, it := range puts(n, 100) {
				all = append(all, types.WriteRequest{PutRequest: &types.PutRequest{Item: it}})
			}
			return &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: all}}
		}},
		{"writes of a transaction", 100, func(n int) any {
			var all []types.TransactWriteItem
			for _, it := range puts(n, 100) {
				all = append(all, types.TransactWriteItem{Put: &types.Put{TableName: &table, Item: it}})
			}
			return &dynamodb.TransactWriteItemsInput{TransactItems: all}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fake := &dynamotest.Fake{}
			if _, err := fake.CreateTable(t.Context(), schema(table)); err != nil {
				t.Fatal(err)
			}
			if got := answer(t.Context(), fake, tt.call(tt.most)); strings.HasPrefix(got, "ValidationException") {
				t.Errorf("%d: %s", tt.most, got)
			}
			if got := answer(t.Context(), fake, tt.call(tt.most+1)); !strings.HasPrefix(got, "ValidationException") {
				t.Errorf("%d: %s", tt.most+1, got)
			}
		})
	}
}

// TestClientIsBounded: a client refuses what DynamoDB refuses, whatever the engine does.
func TestClientIsBounded(t *testing.T) {
	t.Parallel()
	client := dynamotest.Client(t, "http://127.0.0.1:1") // nothing listens there
	_, err := client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: new("t"), Key: item{"pk": str("p")}, UpdateExpression: padded("SET a = :v", 4097), ExpressionAttributeValues: item{":v": num("1")},
	})
	if err == nil || spellError(err) != "ValidationException" {
		t.Errorf("answered %v", err)
	}
}

// TestKeyNames: the name of a key has at most 255 bytes.
func TestKeyNames(t *testing.T) {
	t.Parallel()
	for n, good := range map[int]bool{255: true, 256: false} {
		name := strings.Repeat("x", n)
		in := schema("t")
		in.KeySchema[0].AttributeName, in.AttributeDefinitions[0].AttributeName = &name, &name
		if _, err := new(dynamotest.Fake).CreateTable(t.Context(), in); (err == nil) != good {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// TestBatchGetLeaves: what exceeds 16 MB is left unprocessed.
func TestBatchGetLeaves(t *testing.T) {
	t.Parallel()
	fake := lone(t)
	var keys []item
	for i := range 42 { // 41 of them have 16 MB
		it := item{"pk": str("q"), "sk": str(fmt.Sprintf("%02d", i)), "v": str(strings.Repeat("x", 400<<10-8))}
		if got := answer(t.Context(), fake, &dynamodb.PutItemInput{TableName: new("t"), Item: it}); strings.HasPrefix(got, "Val") {
			t.Fatal(got)
		}
		keys = append(keys, item{"pk": it["pk"], "sk": it["sk"]})
	}
	out, err := fake.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"t": {Keys: keys}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, left := len(out.Responses["t"]), len(out.UnprocessedKeys["t"].Keys); got != 40 || left != 2 {
		t.Errorf("%d items, %d keys left, want 40 and 2", got, left)
	}
}
