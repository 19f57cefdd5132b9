package dynamotest

import (
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// write is a write to one item, checked as far as possible without the item.
type write struct {
	table  *table
	key    item
	cond   *bound
	onFail types.ReturnValuesOnConditionCheckFailure
	paths  []*bound // what an update touches
	// next returns the new item, or nil to delete it. If next is nil, the item stays as it is.
	next func(old item) (item, error)
}

func (w *write) old() item { return w.table.items[w.table.key.id(w.key)] }

// outcome returns the item before and after the write, without making it.
func (w *write) outcome() (old, replaced item, err error) {
	old = w.old()
	if !w.cond.holds(old) {
		failed := &types.ConditionalCheckFailedException{Message: new("The conditional request failed")}
		if w.onFail == types.ReturnValuesOnConditionCheckFailureAllOld {
			failed.Item = clone(old)
		}
		return old, nil, failed
	}
	if w.next == nil {
		return old, old, nil
	}
	if replaced, err = w.next(old); err == nil && replaced != nil {
		err = w.table.admit(replaced)
	}
	return old, replaced, err
}

func (w *write) commit(replaced item) {
	id := w.table.key.id(w.key)
	w.table.notify(w.table.items[id], replaced)
	if replaced == nil {
		delete(w.table.items, id)
	} else {
		w.table.items[id] = replaced
	}
}

// run makes the write, and returns the item before and after, and its cost.
func (f *Fake) run(w *write) (old, replaced item, c cost, err error) {
	old, replaced, err = w.outcome()
	if err != nil {
		f.consumed.Write += writeUnits(ItemSize(old))
		return nil, nil, cost{}, err
	}
	c = w.table.writeCost(old, replaced)
	f.consumed.Write += c.total()
	w.commit(replaced)
	return old, replaced, c, nil
}

func (f *Fake) put(tableName *string, it item, condition *string, s *scope) (*write, error) {
	t, err := f.table(tableName)
	if err != nil {
		return nil, err
	}
	w := &write{table: t, cond: s.condition(condition)}
	if err := s.done(); err != nil {
		return nil, err
	}
	it, err = normalItem(it)
	if err != nil {
		return nil, err
	}
	w.key = t.key.of(it)
	w.next = func(item) (item, error) { return it, nil }
	return w, t.admit(it)
}

func (f *Fake) keyed(tableName *string, key item, condition *string, s *scope) (*write, error) {
	t, err := f.table(tableName)
	if err != nil {
		return nil, err
	}
	w := &write{table: t, cond: s.condition(condition)}
	if err := s.done(); err != nil {
		return nil, err
	}
	w.key, err = t.lookup(key)
	return w, err
}

func (f *Fake) remove(tableName *string, key item, condition *string, s *scope) (*write, error) {
	w, err := f.keyed(tableName, key, condition, s)
	if err == nil {
		w.next = func(item) (item, error) { return nil, nil }
	}
	return w, err
}

func (f *Fake) update(tableName *string, key item, update, condition *string, s *scope) (*write, error) {
	changes := s.update(update)
	w, err := f.keyed(tableName, key, condition, s)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		if slices.Contains(w.table.key.names, c.path.path[0].name) {
			return nil, invalid(
				"One or more parameter values were invalid: Cannot update attribute %s. This attribute is part of "+
					"the key",
				c.path.path[0].name,
			)
		}
		w.paths = append(w.paths, c.path)
	}
	w.next = func(old item) (item, error) {
		if old == nil {
			old = w.key
		}
		return apply(old, changes)
	}
	return w, nil
}

func (f *Fake) putItem(in *dynamodb.PutItemInput) (*dynamodb.PutItemOutput, error) {
	w, err := f.put(
		in.TableName, in.Item, in.ConditionExpression,
		newScope(in.ExpressionAttributeNames, in.ExpressionAttributeValues),
	)
	if err != nil {
		return nil, err
	}
	w.onFail = in.ReturnValuesOnConditionCheckFailure
	if err := returnsOld(in.ReturnValues); err != nil {
		return nil, err
	}
	old, _, c, err := f.run(w)
	if err != nil {
		return nil, err
	}
	return &dynamodb.PutItemOutput{
		Attributes:       w.values(in.ReturnValues, old, nil),
		ConsumedCapacity: w.table.report(in.ReturnConsumedCapacity, c),
	}, nil
}

func (f *Fake) deleteItem(in *dynamodb.DeleteItemInput) (*dynamodb.DeleteItemOutput, error) {
	w, err := f.remove(
		in.TableName, in.Key, in.ConditionExpression,
		newScope(in.ExpressionAttributeNames, in.ExpressionAttributeValues),
	)
	if err != nil {
		return nil, err
	}
	w.onFail = in.ReturnValuesOnConditionCheckFailure
	if err := returnsOld(in.ReturnValues); err != nil {
		return nil, err
	}
	old, _, c, err := f.run(w)
	if err != nil {
		return nil, err
	}
	return &dynamodb.DeleteItemOutput{
		Attributes:       w.values(in.ReturnValues, old, nil),
		ConsumedCapacity: w.table.report(in.ReturnConsumedCapacity, c),
	}, nil
}

func (f *Fake) updateItem(in *dynamodb.UpdateItemInput) (*dynamodb.UpdateItemOutput, error) {
	w, err := f.update(
		in.TableName, in.Key, in.UpdateExpression, in.ConditionExpression,
		newScope(in.ExpressionAttributeNames, in.ExpressionAttributeValues),
	)
	if err != nil {
		return nil, err
	}
	w.onFail = in.ReturnValuesOnConditionCheckFailure
	old, replaced, c, err := f.run(w)
	if err != nil {
		return nil, err
	}
	return &dynamodb.UpdateItemOutput{
		Attributes:       w.values(in.ReturnValues, old, replaced),
		ConsumedCapacity: w.table.report(in.ReturnConsumedCapacity, c),
	}, nil
}

func returnsOld(v types.ReturnValue) error {
	if v == "" || v == types.ReturnValueNone || v == types.ReturnValueAllOld {
		return nil
	}
	return invalid("Return values set to invalid value")
}

// values returns the requested parts of a written item.
func (w *write) values(asked types.ReturnValue, old, replaced item) item {
	switch asked {
	case types.ReturnValueAllOld:
		return clone(old)
	case types.ReturnValueAllNew:
		return clone(replaced)
	case types.ReturnValueUpdatedOld:
		return some(project(old, w.paths))
	case types.ReturnValueUpdatedNew:
		return some(project(replaced, w.paths))
	default:
		return nil
	}
}

// some returns a copy of an item, and nil for an empty one.
func some(it item) item {
	if len(it) == 0 {
		return nil
	}
	return clone(it)
}

func (f *Fake) getItem(in *dynamodb.GetItemInput) (*dynamodb.GetItemOutput, error) {
	t, err := f.table(in.TableName)
	if err != nil {
		return nil, err
	}
	s := newScope(in.ExpressionAttributeNames, nil)
	paths := s.projection(in.ProjectionExpression)
	if err := s.done(); err != nil {
		return nil, err
	}
	key, err := t.lookup(in.Key)
	if err != nil {
		return nil, err
	}
	it := t.items[t.key.id(key)]
	c := cost{table: readUnits(ItemSize(it), in.ConsistentRead)}
	f.consumed.Read += c.total()
	if it != nil && paths != nil {
		it = project(it, paths)
	}
	return &dynamodb.GetItemOutput{Item: clone(it), ConsumedCapacity: t.report(in.ReturnConsumedCapacity, c)}, nil
}

func (f *Fake) query(in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
	t, err := f.table(in.TableName)
	if err != nil {
		return nil, err
	}
	q, err := newQuery(t, in)
	if err != nil {
		return nil, err
	}
	out, size, err := q.page(in)
	if err != nil {
		return nil, err
	}
	units := readUnits(size, in.ConsistentRead)
	f.consumed.Read += units
	c := cost{table: units}
	if q.idx != nil {
		c = cost{indexes: map[string]float64{*in.IndexName: units}}
	}
	out.ConsumedCapacity = t.report(in.ReturnConsumedCapacity, c)
	return out, nil
}
