package dynamotest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
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
