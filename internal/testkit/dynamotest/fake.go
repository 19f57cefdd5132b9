package dynamotest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/internal/testkit/dynamotest/sizes"
)

// Fake is DynamoDB in memory: the calls that the store makes, with the SDK's inputs, outputs and errors. The zero value
// has no tables. Each call is atomic, and reads are always consistent. It never throttles, returns the error
// NotInTheFake for unsupported features, and removes expired items only in Sweep. It is safe for concurrent use; set
// its fields first. It enforces DynamoDB's bounds on requests and items.
type Fake struct {
	// Before is called ahead of each call. If it returns an error, the call is not made and the caller gets that
	// error. It may wait, change the fake by calls of its own, or yield to other goroutines.
	Before func(op string, in any) error
	// After is called after each call, with its output or error. If it returns an error, the caller gets that instead
	// of the response, as when a connection breaks.
	After func(op string, in, out any) error
	// Changed is called with an item of a table before and after each change, like a stream: nil if it did not or does
	// not exist. It is called under the fake's lock, in the order of the changes, and must not modify its arguments.
	Changed func(table string, old, replaced map[string]types.AttributeValue)

	mu       sync.Mutex
	tables   map[string]*table
	calls    map[string]int
	consumed Units
	tokens   map[string]replay
}

// Units are capacity units.
type Units struct{ Read, Write float64 }

// Calls returns how often each operation was called, including calls that Before stopped.
func (f *Fake) Calls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}

// Capacity returns the capacity consumed so far, including that of failed conditions.
func (f *Fake) Capacity() Units {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.consumed
}

// Items returns a copy of a table's items, ordered by key.
func (f *Fake) Items(tableName string) []map[string]types.AttributeValue {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tables[tableName]
	if t == nil {
		return nil
	}
	items := make([]item, 0, len(t.items))
	for _, it := range t.items {
		items = append(items, clone(it))
	}
	slices.SortFunc(items, t.key.compare)
	return items
}

// Sweep removes the items that have expired at now from the tables with a time to live, and returns how many.
func (f *Fake) Sweep(now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	removed := 0
	for _, t := range f.tables {
		for id, it := range t.items {
			ttl, ok := it[t.ttl].(*types.AttributeValueMemberN)
			if !ok {
				continue
			}
			if n, err := sizes.ParseNumber(ttl.Value); err == nil && n.Cmp(sizes.Whole(now.Unix())) < 0 {
				delete(t.items, id)
				t.notify(it, nil)
				removed++
			}
		}
	}
	return removed
}

// call does the common part of every operation.
func call[I, O any](ctx context.Context, f *Fake, op string, in *I, apply func(*I) (*O, error)) (*O, error) {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = make(map[string]int)
	}
	f.calls[op]++
	f.mu.Unlock()
	if f.Before != nil {
		if err := f.Before(op, in); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, &smithy.OperationError{
			ServiceID: "DynamoDB", OperationName: op, Err: &smithy.CanceledError{Err: err},
		}
	}
	var out *O
	err := sizes.CheckRequest(in)
	if err == nil {
		out, err = locked(&f.mu, in, apply)
	}
	if err != nil {
		err = answered(op, err)
	}
	if f.After != nil {
		answer := any(out)
		if err != nil {
			answer = err
		}
		if err := f.After(op, in, answer); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func locked[I, O any](mu *sync.Mutex, in *I, apply func(*I) (*O, error)) (*O, error) {
	mu.Lock()
	defer mu.Unlock()
	return apply(in)
}

// PutItem puts an item.
func (f *Fake) PutItem(
	ctx context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.PutItemOutput, error) {
	return call(ctx, f, "PutItem", in, f.putItem)
}

// UpdateItem updates an item.
func (f *Fake) UpdateItem(
	ctx context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.UpdateItemOutput, error) {
	return call(ctx, f, "UpdateItem", in, f.updateItem)
}

// DeleteItem deletes an item.
func (f *Fake) DeleteItem(
	ctx context.Context, in *dynamodb.DeleteItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.DeleteItemOutput, error) {
	return call(ctx, f, "DeleteItem", in, f.deleteItem)
}

// GetItem gets an item.
func (f *Fake) GetItem(
	ctx context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.GetItemOutput, error) {
	return call(ctx, f, "GetItem", in, f.getItem)
}

// BatchGetItem gets items: all of them, up to 16 MB.
func (f *Fake) BatchGetItem(
	ctx context.Context, in *dynamodb.BatchGetItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.BatchGetItemOutput, error) {
	return call(ctx, f, "BatchGetItem", in, f.batchGetItem)
}

// BatchWriteItem puts and deletes items, all of them.
func (f *Fake) BatchWriteItem(
	ctx context.Context, in *dynamodb.BatchWriteItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.BatchWriteItemOutput, error) {
	return call(ctx, f, "BatchWriteItem", in, f.batchWriteItem)
}

// Query lists the items of a partition.
func (f *Fake) Query(
	ctx context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options),
) (*dynamodb.QueryOutput, error) {
	return call(ctx, f, "Query", in, f.query)
}

// TransactWriteItems writes all or nothing. A ClientRequestToken is remembered forever.
func (f *Fake) TransactWriteItems(
	ctx context.Context, in *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options),
) (*dynamodb.TransactWriteItemsOutput, error) {
	return call(ctx, f, "TransactWriteItems", in, f.transactWriteItems)
}

// CreateTable creates a table, which is active at once.
func (f *Fake) CreateTable(
	ctx context.Context, in *dynamodb.CreateTableInput, _ ...func(*dynamodb.Options),
) (*dynamodb.CreateTableOutput, error) {
	return call(ctx, f, "CreateTable", in, f.createTable)
}

// DescribeTable describes a table.
func (f *Fake) DescribeTable(
	ctx context.Context, in *dynamodb.DescribeTableInput, _ ...func(*dynamodb.Options),
) (*dynamodb.DescribeTableOutput, error) {
	return call(ctx, f, "DescribeTable", in, f.describeTable)
}

// UpdateTimeToLive sets the attribute that holds the expiry of items.
func (f *Fake) UpdateTimeToLive(
	ctx context.Context, in *dynamodb.UpdateTimeToLiveInput, _ ...func(*dynamodb.Options),
) (*dynamodb.UpdateTimeToLiveOutput, error) {
	return call(ctx, f, "UpdateTimeToLive", in, f.updateTimeToLive)
}

// DescribeTimeToLive returns the attribute that holds the expiry of items.
func (f *Fake) DescribeTimeToLive(
	ctx context.Context, in *dynamodb.DescribeTimeToLiveInput, _ ...func(*dynamodb.Options),
) (*dynamodb.DescribeTimeToLiveOutput, error) {
	return call(ctx, f, "DescribeTimeToLive", in, f.describeTimeToLive)
}

// UpdateContinuousBackups accepts the setting and has no effect.
func (f *Fake) UpdateContinuousBackups(
	ctx context.Context, in *dynamodb.UpdateContinuousBackupsInput, _ ...func(*dynamodb.Options),
) (*dynamodb.UpdateContinuousBackupsOutput, error) {
	return call(ctx, f, "UpdateContinuousBackups", in, f.updateContinuousBackups)
}
