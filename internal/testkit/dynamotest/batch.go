package dynamotest

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/internal/testkit/dynamotest/sizes"
)

// The maximum number of items in one call.
const (
	maxGets     = 100
	maxPuts     = 25
	maxTransact = 100
)

func (f *Fake) batchGetItem(in *dynamodb.BatchGetItemInput) (*dynamodb.BatchGetItemOutput, error) {
	out := &dynamodb.BatchGetItemOutput{
		Responses: make(map[string][]item), UnprocessedKeys: make(map[string]types.KeysAndAttributes),
	}
	total, units := 0, 0.0
	for _, name := range slices.Sorted(maps.Keys(in.RequestItems)) {
		asked := in.RequestItems[name]
		t, err := f.table(&name)
		if err != nil {
			return nil, err
		}
		if total += len(asked.Keys); len(asked.Keys) == 0 || total > maxGets {
			return nil, invalid("Too many items requested for the BatchGetItem call, or none")
		}
		s := newScope(asked.ExpressionAttributeNames, nil)
		paths := s.projection(asked.ProjectionExpression)
		if err := s.done(); err != nil {
			return nil, err
		}
		seen := make(map[string]bool)
		c := cost{}
		out.Responses[name] = []item{}
		size := 0
		for _, key := range asked.Keys {
			key, err := t.lookup(key)
			if err != nil {
				return nil, err
			}
			id := t.key.id(key)
			if seen[id] {
				return nil, invalid("Provided list of item keys contains duplicates")
			}
			seen[id] = true
			it := t.items[id]
			if size += ItemSize(it); size > sizes.MaxBatchGet {
				left := asked
				left.Keys = slices.Concat(out.UnprocessedKeys[name].Keys, []item{clone(key)})
				out.UnprocessedKeys[name] = left
				continue
			}
			c.table += readUnits(ItemSize(it), asked.ConsistentRead)
			if it == nil {
				continue
			} else if paths != nil {
				it = project(it, paths)
			}
			out.Responses[name] = append(out.Responses[name], clone(it))
		}
		units += c.total()
		if r := t.report(in.ReturnConsumedCapacity, c); r != nil {
			out.ConsumedCapacity = append(out.ConsumedCapacity, *r)
		}
	}
	if total == 0 {
		return nil, invalid("The requestItems parameter is required for BatchGetItem")
	}
	f.consumed.Read += units
	return out, nil
}

func (f *Fake) batchWriteItem(in *dynamodb.BatchWriteItemInput) (*dynamodb.BatchWriteItemOutput, error) {
	var writes []*write
	for _, name := range slices.Sorted(maps.Keys(in.RequestItems)) {
		for _, r := range in.RequestItems[name] {
			var w *write
			var err error
			switch {
			case r.PutRequest != nil && r.DeleteRequest == nil:
				w, err = f.put(&name, r.PutRequest.Item, nil, newScope(nil, nil))
			case r.DeleteRequest != nil && r.PutRequest == nil:
				w, err = f.remove(&name, r.DeleteRequest.Key, nil, newScope(nil, nil))
			default:
				err = invalid(
					"Supplied AttributeValue has more than one datatypes set, must contain exactly one of the " +
						"supported datatypes",
				)
			}
			if err != nil {
				return nil, err
			}
			writes = append(writes, w)
		}
	}
	if len(writes) == 0 || len(writes) > maxPuts {
		return nil, invalid("Too many items requested for the BatchWriteItem call, or none")
	}
	if twice(writes) {
		return nil, invalid("Provided list of item keys contains duplicates")
	}
	costs := make(map[*table]cost)
	for _, w := range writes {
		_, _, c, err := f.run(w)
		if err != nil {
			return nil, err
		}
		sum := costs[w.table]
		sum.add(c, 1)
		costs[w.table] = sum
	}
	return &dynamodb.BatchWriteItemOutput{
		UnprocessedItems: make(map[string][]types.WriteRequest),
		ConsumedCapacity: reports(in.ReturnConsumedCapacity, costs),
	}, nil
}

// replay is the completed request of a token.
type replay struct {
	request string
	costs   map[*table]cost // of reading what it wrote
}

func (f *Fake) transactWriteItems(in *dynamodb.TransactWriteItemsInput) (*dynamodb.TransactWriteItemsOutput, error) {
	token := aws.ToString(in.ClientRequestToken)
	var request []byte
	if token != "" {
		var err error
		if request, err = json.Marshal(in.TransactItems); err != nil {
			return nil, err
		}
	}
	if done, ok := f.tokens[token]; ok {
		if done.request != string(request) {
			return nil, &types.IdempotentParameterMismatchException{
				Message: new("the token was used with another request"),
			}
		}
		return f.repeated(in, done), nil
	}
	writes, err := f.transaction(in.TransactItems)
	if err != nil {
		return nil, err
	}
	costs, reads, err := f.runAll(writes)
	if err != nil {
		return nil, err
	}
	if token != "" {
		if f.tokens == nil {
			f.tokens = make(map[string]replay)
		}
		f.tokens[token] = replay{string(request), reads}
	}
	out := reports(in.ReturnConsumedCapacity, costs)
	for i := range out {
		out[i].WriteCapacityUnits = out[i].CapacityUnits
	}
	return &dynamodb.TransactWriteItemsOutput{ConsumedCapacity: out}, nil
}

// repeated answers a request that was made before, at the cost of reading what it wrote.
func (f *Fake) repeated(in *dynamodb.TransactWriteItemsInput, done replay) *dynamodb.TransactWriteItemsOutput {
	out := reports(in.ReturnConsumedCapacity, done.costs)
	for i := range out {
		f.consumed.Read += *out[i].CapacityUnits
		out[i].ReadCapacityUnits = out[i].CapacityUnits
	}
	return &dynamodb.TransactWriteItemsOutput{ConsumedCapacity: out}
}

// runAll makes all writes or none. It returns their costs, and those of reading what they wrote.
func (f *Fake) runAll(writes []*write) (costs, reads map[*table]cost, err error) {
	replaced := make([]item, len(writes))
	reasons := make([]types.CancellationReason, len(writes))
	cancelled := false
	costs, reads = make(map[*table]cost), make(map[*table]cost)
	for i, w := range writes {
		var old item
		old, replaced[i], err = w.outcome()
		reasons[i] = reason(err)
		cancelled = cancelled || err != nil
		c, r := costs[w.table], reads[w.table]
		c.add(w.cost(old, replaced[i]), 2)
		r.add(cost{table: readUnits(max(ItemSize(old), ItemSize(replaced[i])), new(true))}, 2)
		costs[w.table], reads[w.table] = c, r
	}
	for _, c := range costs {
		f.consumed.Write += c.total()
	}
	if cancelled {
		return nil, nil, cancellation(reasons)
	}
	for i, w := range writes {
		if w.next != nil {
			w.commit(replaced[i])
		}
	}
	return costs, reads, nil
}

// cancellation is the error of a transaction of which an item failed.
func cancellation(reasons []types.CancellationReason) error {
	codes := make([]string, 0, len(reasons))
	for _, r := range reasons {
		codes = append(codes, *r.Code)
	}
	return &types.TransactionCanceledException{
		Message: new(
			"Transaction cancelled, please refer cancellation reasons for specific reasons [" +
				strings.Join(codes, ", ") + "]",
		),
		CancellationReasons: reasons,
	}
}

// cost returns the cost of an outcome. A failed write costs as much as the item it finds.
func (w *write) cost(old, replaced item) cost {
	if w.next == nil || replaced == nil && old == nil {
		return cost{table: writeUnits(ItemSize(old))}
	}
	return w.table.writeCost(old, replaced)
}

func (f *Fake) transaction(items []types.TransactWriteItem) ([]*write, error) {
	if len(items) == 0 || len(items) > maxTransact {
		return nil, invalid("Member must have length between 1 and %d", maxTransact)
	}
	writes := make([]*write, 0, len(items))
	for _, it := range items {
		var w *write
		var err error
		var onFail types.ReturnValuesOnConditionCheckFailure
		switch {
		case it.ConditionCheck != nil:
			op := it.ConditionCheck
			onFail = op.ReturnValuesOnConditionCheckFailure
			w, err = f.keyed(
				op.TableName, op.Key, op.ConditionExpression,
				newScope(op.ExpressionAttributeNames, op.ExpressionAttributeValues),
			)
		case it.Put != nil:
			op := it.Put
			onFail = op.ReturnValuesOnConditionCheckFailure
			w, err = f.put(
				op.TableName, op.Item, op.ConditionExpression,
				newScope(op.ExpressionAttributeNames, op.ExpressionAttributeValues),
			)
		case it.Delete != nil:
			op := it.Delete
			onFail = op.ReturnValuesOnConditionCheckFailure
			w, err = f.remove(
				op.TableName, op.Key, op.ConditionExpression,
				newScope(op.ExpressionAttributeNames, op.ExpressionAttributeValues),
			)
		case it.Update != nil:
			op := it.Update
			onFail = op.ReturnValuesOnConditionCheckFailure
			w, err = f.update(
				op.TableName, op.Key, op.UpdateExpression, op.ConditionExpression,
				newScope(op.ExpressionAttributeNames, op.ExpressionAttributeValues),
			)
		default:
			err = invalid("TransactItems can only contain one of Check, Put, Update or Delete")
		}
		if err != nil {
			return nil, err
		}
		w.onFail = onFail
		writes = append(writes, w)
	}
	if twice(writes) {
		return nil, invalid("Transaction request cannot include multiple operations on one item")
	}
	return writes, nil
}

// reason returns why an item cancels its transaction, or "None".
func reason(err error) types.CancellationReason {
	if err == nil {
		return types.CancellationReason{Code: new("None")}
	}
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return types.CancellationReason{Code: new("ConditionalCheckFailed"), Message: failed.Message, Item: failed.Item}
	}
	code := "ValidationError"
	if refused, ok := errors.AsType[smithy.APIError](err); ok && refused.ErrorCode() != "ValidationException" {
		code = refused.ErrorCode()
	}
	return types.CancellationReason{Code: &code, Message: new(err.Error())}
}

// twice reports whether two writes are to one item.
func twice(writes []*write) bool {
	type target struct {
		table *table
		id    string
	}
	seen := make(map[target]bool)
	for _, w := range writes {
		k := target{w.table, w.table.key.id(w.key)}
		if seen[k] {
			return true
		}
		seen[k] = true
	}
	return false
}

// reports returns the consumed capacity in the order of the tables' names.
func reports(asked types.ReturnConsumedCapacity, costs map[*table]cost) []types.ConsumedCapacity {
	var out []types.ConsumedCapacity
	for _, t := range slices.SortedFunc(maps.Keys(costs), func(a, b *table) int {
		return cmp.Compare(a.name, b.name)
	}) {
		if r := t.report(asked, costs[t]); r != nil {
			out = append(out, *r)
		}
	}
	return out
}
