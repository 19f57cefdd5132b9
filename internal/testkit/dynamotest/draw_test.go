package dynamotest_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"
)

var keys = []string{"p", "q"}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }

// request draws the expressions of one request, and collects the names and values that they use.
type request struct {
	*rapid.T

	names  map[string]string
	values item
	// within is whether the engine evaluates the expressions late: what it does not always refuse then is not drawn.
	within bool
}

func (r *request) pick(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(r.T, label)
}

func (r *request) maybe(percent int) bool { return rapid.IntRange(1, 100).Draw(r.T, "%") <= percent }

func (r *request) number() string {
	return r.pick("number", "0", "1", "2", "-1", "10", "1.0", "0.5", "007", "1e3", "9223372036854775807", "-9223372036854775808", "12345678901234567890.5")
}

// plain draws a value, most often a number.
func (r *request) plain() types.AttributeValue {
	switch rapid.IntRange(0, 12).Draw(r.T, "kind") {
	case 0, 1, 2:
		if r.maybe(20) {
			return str(strings.Repeat("z", rapid.SampledFrom([]int{900, 1000, 1020, 5000}).Draw(r.T, "length")))
		}
		return str(r.pick("string", "", "x", "xy", "y"))
	case 3:
		return &types.AttributeValueMemberBOOL{Value: r.maybe(50)}
	case 4:
		return &types.AttributeValueMemberSS{Value: []string{"x", "y"}}
	case 5:
		return &types.AttributeValueMemberM{Value: item{"x": num(r.number()), "y": str("x")}}
	case 6:
		return &types.AttributeValueMemberL{Value: []types.AttributeValue{num("1"), str("x")}}
	default:
		return num(r.number())
	}
}

func (r *request) value(v types.AttributeValue) string {
	alias := fmt.Sprintf(":v%d", len(r.values))
	r.values[alias] = v
	return alias
}

func (r *request) path() string {
	if !r.within && r.maybe(1) {
		return r.pick("bad path", "name", "ttl", "1a", "a..b")
	}
	path := r.pick("path", "a", "a", "a", "b", "b", "c", "g", "r", "m.x", "m.y", "l[0]", "l[1]", "sk")
	if first, rest, nested := strings.Cut(path, "."); r.maybe(40) && !strings.Contains(path, "[") {
		r.names["#"+first] = first
		path = "#" + first
		if nested {
			path += "." + rest
		}
	}
	return path
}

func (r *request) condition(depth int) string {
	if depth > 0 && r.maybe(40) {
		left, right := r.condition(depth-1), r.condition(depth-1)
		switch r.pick("combine", "AND", "or", "NOT", "(") {
		case "AND":
			return left + " AND (" + right + ")"
		case "or":
			return left + " or " + right
		case "NOT":
			return "NOT " + left + " AND " + right
		default:
			return "(" + left + ") AND NOT (" + right + ")"
		}
	}
	switch op := r.pick("op", "=", "<>", "<", "<=", ">", ">=", "BETWEEN", "BETWEEN", "IN", "exists", "not exists", "type", "begins", "contains"); op {
	case "BETWEEN":
		low, high := r.number(), r.number()
		if r.within {
			low, high = r.pick("low", "-1", "0", "1"), r.pick("high", "1.0", "10", "1e3")
		}
		return r.path() + " BETWEEN " + r.value(num(low)) + " AND " + r.value(num(high))
	case "IN":
		return r.path() + " IN (" + r.value(r.plain()) + ", " + r.value(r.plain()) + ")"
	case "exists":
		return "attribute_exists(" + r.path() + ")"
	case "not exists":
		return "attribute_not_exists(" + r.path() + ")"
	case "type":
		return "attribute_type(" + r.path() + ", " + r.value(str(r.pick("type", "N", "S", "M", "BOOL"))) + ")"
	case "begins":
		return "begins_with(" + r.path() + ", " + r.value(str(r.pick("prefix", "", "x", "xy"))) + ")"
	case "contains":
		return "contains(" + r.path() + ", " + r.value(r.plain()) + ")"
	case "=", "<>":
		return "c " + op + " " + r.operand()
	default:
		if r.maybe(30) {
			return "a " + op + " " + r.pick("other", "b", "c", "m.x", "r") // the engine lets a path be compared with itself
		}
		return r.path() + " " + op + " " + r.value(r.ordered()) // the engine accepts other constants, DynamoDB does not
	}
}

func (r *request) operand() string {
	if r.maybe(60) {
		return r.value(r.plain())
	}
	return r.pick("operand", "a", "m.y", "size(b)", "size(m)", "size(l)", "size(a)")
}

// ordered draws a number or a string.
func (r *request) ordered() types.AttributeValue {
	if r.maybe(70) {
		return num(r.number())
	}
	return str(r.pick("string", "x", "xy"))
}

func (r *request) update() string {
	if r.within { // the engine lets paths overlap there
		text := r.pick("set", "SET a", "SET m.x", "SET g") + " = " + r.sum()
		return text + r.pick("remove", "", " REMOVE b", " REMOVE r") + " ADD c " + r.value(num(r.number()))
	}
	var sections []string
	for _, verb := range []string{"SET", "ADD", "REMOVE"} {
		if !r.maybe(50) {
			continue
		}
		var actions []string
		for range rapid.IntRange(1, 2).Draw(r.T, "actions") {
			switch verb {
			case "SET":
				actions = append(actions, r.target()+" = "+r.sum())
			case "ADD":
				actions = append(actions, r.target()+" "+r.value(num(r.number())))
			case "REMOVE":
				// The engine ignores a path that does not exist, which DynamoDB refuses.
				actions = append(actions, r.pick("removed", "a", "b", "c", "g", "r", "m", "l"))
			}
		}
		sections = append(sections, verb+" "+strings.Join(actions, ", "))
	}
	return strings.Join(sections, " ")
}

// target draws a path to write to. It is never in the key, which the engine refuses only if the condition holds, nor in a
// list, which the fake does not support.
func (r *request) target() string {
	if path := r.path(); !strings.Contains(path, "sk") && !strings.Contains(path, "[") {
		return path
	}
	delete(r.names, "#sk")
	return "a"
}

func (r *request) sum() string {
	addend := func() string {
		switch r.pick("addend", "value", "value", "path", "if_not_exists") {
		case "value":
			return r.value(r.plain())
		case "path":
			return r.path()
		default:
			return "if_not_exists(" + r.path() + ", " + r.value(r.plain()) + ")"
		}
	}
	switch r.pick("sum", "one", "one", "+", "-") {
	case "+":
		return addend() + " + " + addend()
	case "-":
		return addend() + " - " + addend()
	default:
		return addend()
	}
}

func (r *request) key() item {
	k := item{"pk": str(r.pick("pk", keys...)), "sk": str(r.pick("sk", "1", "2", "3"))}
	if r.maybe(2) {
		switch r.pick("bad key", "empty", "type", "more", "less") {
		case "empty":
			k["pk"] = str("")
		case "type":
			k["sk"] = num("1")
		case "more":
			k["x"] = num("1")
		case "less":
			delete(k, "sk")
		}
	}
	return k
}

func (r *request) item() item {
	it := r.key()
	for _, name := range []string{"a", "b", "c"} {
		if r.maybe(60) {
			it[name] = r.plain()
		}
	}
	if r.maybe(50) {
		it["m"] = &types.AttributeValueMemberM{Value: item{"x": r.plain(), "y": num("2")}}
		it["l"] = &types.AttributeValueMemberL{Value: []types.AttributeValue{r.plain()}}
	}
	if r.maybe(60) {
		it["g"], it["r"] = str(r.pick("g", "g", "h")), num(r.number())
	}
	return it
}

// expressions returns a condition or nothing, with the names and values that all expressions used.
func (r *request) expressions(percent int) (condition *string, names map[string]string, values item) {
	if r.maybe(percent) {
		condition = new(r.condition(2))
	}
	if len(r.names) > 0 {
		names = r.names
	}
	if len(r.values) > 0 {
		values = r.values
	}
	return condition, names, values
}

func (r *request) onFail() types.ReturnValuesOnConditionCheckFailure {
	return types.ReturnValuesOnConditionCheckFailure(r.pick("on failure", "ALL_OLD", "NONE"))
}

// draw draws a call.
func draw(t *rapid.T, table string) any {
	r := &request{t, make(map[string]string), make(item), false}
	capacity := types.ReturnConsumedCapacity(r.pick("capacity", "INDEXES", "TOTAL", "NONE"))
	switch op := r.pick("call", "update", "update", "update", "update", "put", "put", "delete", "get", "batch get", "batch write", "query", "query", "transact", "transact"); op {
	case "update":
		in := &dynamodb.UpdateItemInput{TableName: &table, Key: r.key(), ReturnConsumedCapacity: capacity, ReturnValuesOnConditionCheckFailure: r.onFail()}
		in.ReturnValues = types.ReturnValue(r.pick("return", "NONE", "ALL_NEW", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW")) // for ALL_OLD the engine returns the key of an item that did not exist
		if u := r.update(); u != "" {
			in.UpdateExpression = &u
		}
		in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues = r.expressions(60)
		return in
	case "put":
		in := &dynamodb.PutItemInput{TableName: &table, Item: r.item(), ReturnConsumedCapacity: capacity, ReturnValuesOnConditionCheckFailure: r.onFail()}
		in.ReturnValues = types.ReturnValue(r.pick("return", "NONE", "ALL_OLD", "ALL_OLD", "ALL_NEW"))
		in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues = r.expressions(30)
		return in
	case "delete":
		in := &dynamodb.DeleteItemInput{TableName: &table, Key: r.key(), ReturnConsumedCapacity: capacity, ReturnValuesOnConditionCheckFailure: r.onFail()}
		in.ReturnValues = types.ReturnValue(r.pick("return", "NONE", "ALL_OLD"))
		in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues = r.expressions(50)
		return in
	case "get":
		in := &dynamodb.GetItemInput{TableName: &table, Key: r.key(), ReturnConsumedCapacity: capacity, ConsistentRead: new(r.maybe(50))}
		if r.maybe(40) {
			in.ProjectionExpression = new("a, m.x, #b")
			in.ExpressionAttributeNames = map[string]string{"#b": "b"}
			in.ReturnConsumedCapacity = "" // the engine charges for the projection, DynamoDB for the item
		}
		return in
	case "batch get":
		asked := types.KeysAndAttributes{ConsistentRead: new(r.maybe(50))}
		for range rapid.IntRange(1, 3).Draw(t, "keys") {
			asked.Keys = append(asked.Keys, r.key())
		}
		return &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{table: asked}, ReturnConsumedCapacity: capacity}
	case "batch write":
		var writes []types.WriteRequest
		for range rapid.IntRange(1, 3).Draw(t, "writes") {
			if r.maybe(50) {
				writes = append(writes, types.WriteRequest{PutRequest: &types.PutRequest{Item: r.item()}})
			} else {
				writes = append(writes, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: r.key()}})
			}
		}
		return &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: writes}, ReturnConsumedCapacity: capacity}
	case "query":
		return r.query(table, capacity)
	default:
		in := &dynamodb.TransactWriteItemsInput{ReturnConsumedCapacity: capacity}
		if r.maybe(30) {
			in.ClientRequestToken = new(r.pick("token", "t1", "t2") + table[len(table)-20:])
		}
		for range rapid.IntRange(1, 3).Draw(t, "items") {
			in.TransactItems = append(in.TransactItems, (&request{t, make(map[string]string), make(item), true}).transactItem(table))
		}
		return in
	}
}

func (r *request) transactItem(table string) types.TransactWriteItem {
	key, onFail := r.key(), r.onFail()
	switch r.pick("write", "check", "put", "delete", "update", "update") {
	case "check":
		condition, names, values := r.expressions(100)
		return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: &table, Key: key, ConditionExpression: condition, ExpressionAttributeNames: names, ExpressionAttributeValues: values, ReturnValuesOnConditionCheckFailure: onFail}}
	case "put":
		condition, names, values := r.expressions(50)
		return types.TransactWriteItem{Put: &types.Put{TableName: &table, Item: r.item(), ConditionExpression: condition, ExpressionAttributeNames: names, ExpressionAttributeValues: values, ReturnValuesOnConditionCheckFailure: onFail}}
	case "delete":
		condition, names, values := r.expressions(50)
		return types.TransactWriteItem{Delete: &types.Delete{TableName: &table, Key: key, ConditionExpression: condition, ExpressionAttributeNames: names, ExpressionAttributeValues: values, ReturnValuesOnConditionCheckFailure: onFail}}
	default:
		update := r.update()
		condition, names, values := r.expressions(50)
		return types.TransactWriteItem{Update: &types.Update{TableName: &table, Key: key, UpdateExpression: &update, ConditionExpression: condition, ExpressionAttributeNames: names, ExpressionAttributeValues: values, ReturnValuesOnConditionCheckFailure: onFail}}
	}
}

func (r *request) query(table string, capacity types.ReturnConsumedCapacity) any {
	in := &dynamodb.QueryInput{TableName: &table, ReturnConsumedCapacity: capacity, ScanIndexForward: new(r.maybe(60)), ConsistentRead: new(r.maybe(20))}
	first := str(r.pick("pk", keys...))
	hash, sort := "pk = "+r.value(first), "sk"
	bound := func() types.AttributeValue { return str(r.pick("bound", "1", "2", "3")) }
	if r.maybe(40) {
		in.IndexName, sort = new("byg"), "r"
		r.values = item{}
		first = str(r.pick("g", "g", "h"))
		hash = "g = " + r.value(first)
		bound = func() types.AttributeValue { return num(r.number()) }
	}
	switch op := r.pick("range", "none", "none", "=", "<", ">=", "BETWEEN", "begins_with", "<>"); op {
	case "none":
	case "BETWEEN":
		hash += " AND " + sort + " BETWEEN " + r.value(bound()) + " AND " + r.value(bound())
	case "begins_with":
		if in.IndexName != nil {
			break // the engine checks numbers only if there are items
		}
		hash += " AND begins_with(" + sort + ", " + r.value(bound()) + ")"
	default:
		hash += " AND " + sort + " " + op + " " + r.value(bound())
	}
	in.KeyConditionExpression = &hash
	if r.maybe(40) {
		in.Limit = new(int32(rapid.IntRange(1, 3).Draw(r.T, "limit")))
	}
	if r.maybe(20) {
		in.Select = types.SelectCount
	}
	if r.maybe(30) && !strings.Contains(hash, sort+" ") && !strings.Contains(hash, "begins") {
		in.ExclusiveStartKey = r.key() // a key that the query can reach: the engine accepts others
		in.ExclusiveStartKey["pk"] = first
		if in.IndexName != nil {
			in.ExclusiveStartKey["pk"] = str(r.pick("pk", keys...))
			in.ExclusiveStartKey["g"], in.ExclusiveStartKey["r"] = first, num(r.number())
		}
	}
	r.within = true          // a filter, too, is evaluated only if there are items
	if in.IndexName != nil { // the engine filters by attributes that the index does not have
		if r.maybe(30) {
			in.FilterExpression = new("sk > " + r.value(str("1")))
		}
		_, in.ExpressionAttributeNames, in.ExpressionAttributeValues = r.expressions(0)
		return in
	}
	in.FilterExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues = r.expressions(30)
	return in
}

// spell formats a call, without its empty fields.
func spell(call any) string {
	text, err := json.Marshal(call)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%T %s", call, regexp.MustCompile(`"[A-Za-z]+":(null|""),?|z{20,}`).ReplaceAllString(string(text), ""))
}
