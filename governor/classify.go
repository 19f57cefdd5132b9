package governor

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// page is the highest cost of a page of a Query or Scan: 1 MB, eventually consistent.
const page = 128 * milli

// classify returns the call for an input, and a copy of the input that requests the consumed capacity; nil if the call
// is not governed.
func classify(g *Governor, input any) (*call, any) {
	switch in := input.(type) {
	case *dynamodb.GetItemInput:
		c, copied := newCall(g, getItem, Read), *in
		c.touch(aws.ToString(in.TableName), Read, reading(in.ConsistentRead))
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	case *dynamodb.PutItemInput:
		c, copied := newCall(g, putItem, Write), *in
		c.touch(aws.ToString(in.TableName), Write, blocks(in.Item))
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	case *dynamodb.UpdateItemInput:
		c, copied := newCall(g, updateItem, Write), *in
		c.touch(aws.ToString(in.TableName), Write, milli)
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	case *dynamodb.DeleteItemInput:
		c, copied := newCall(g, deleteItem, Write), *in
		c.touch(aws.ToString(in.TableName), Write, milli)
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	case *dynamodb.QueryInput:
		c, copied := newCall(g, query, Read), *in
		c.touchIndex(aws.ToString(in.TableName), in.IndexName, paging(in.Limit, in.ConsistentRead))
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	case *dynamodb.ScanInput:
		c, copied := newCall(g, scan, Read), *in
		c.touchIndex(aws.ToString(in.TableName), in.IndexName, paging(in.Limit, in.ConsistentRead))
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	}
	return classifyBatch(g, input)
}

// classifyBatch is classify for operations on several items.
func classifyBatch(g *Governor, input any) (*call, any) {
	switch in := input.(type) {
	case *dynamodb.BatchGetItemInput:
		c, copied := newCall(g, batchGetItem, Read), *in
		for name, keys := range in.RequestItems {
			c.touch(name, Read, int64(len(keys.Keys))*reading(keys.ConsistentRead))
		}
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	case *dynamodb.BatchWriteItemInput:
		c, copied := newCall(g, batchWriteItem, Write), *in
		for name, writes := range in.RequestItems {
			c.touch(name, Write, batchWeight(writes))
		}
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	case *dynamodb.TransactGetItemsInput:
		c, copied := newCall(g, transactGetItems, Read), *in
		for _, item := range in.TransactItems {
			if item.Get != nil {
				c.touch(aws.ToString(item.Get.TableName), Read, 2*milli)
			}
		}
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	case *dynamodb.TransactWriteItemsInput:
		c, copied := newCall(g, transactWriteItems, Write), *in
		c.touchTransaction(in.TransactItems)
		copied.ReturnConsumedCapacity = c.reporting(in.ReturnConsumedCapacity)
		return c, &copied
	}
	return classifyPartiQL(g, input)
}

// reading returns the cost of a read of up to 4 KB.
func reading(consistent *bool) int64 {
	if aws.ToBool(consistent) {
		return milli
	}
	return milli / 2
}

// paging returns the highest expected cost of a page: one unit for each item that it may read, or a full page.
func paging(limit *int32, consistent *bool) int64 {
	units := int64(page)
	if limit != nil && *limit > 0 {
		units = min(units, int64(*limit)*milli)
	}
	if aws.ToBool(consistent) {
		units *= 2
	}
	return units
}

func batchWeight(writes []types.WriteRequest) (sum int64) {
	for _, w := range writes {
		if w.PutRequest != nil {
			sum += blocks(w.PutRequest.Item)
		} else {
			sum += milli
		}
	}
	return sum
}

// blocks returns the cost of writing an item: one unit per KB.
func blocks(item map[string]types.AttributeValue) int64 {
	return max(1, (int64(itemSize(item))+1023)/1024) * milli
}

// itemSize returns the size that DynamoDB charges for: names and values.
func itemSize(item map[string]types.AttributeValue) (size int) {
	for name, v := range item {
		size += len(name) + valueSize(v)
	}
	return size
}

func valueSize(v types.AttributeValue) int {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return numberSize(v.Value)
	case *types.AttributeValueMemberSS:
		return sum(v.Value, func(s string) int { return len(s) })
	case *types.AttributeValueMemberBS:
		return sum(v.Value, func(b []byte) int { return len(b) })
	case *types.AttributeValueMemberNS:
		return sum(v.Value, numberSize)
	case *types.AttributeValueMemberL:
		return 3 + sum(v.Value, func(v types.AttributeValue) int { return 1 + valueSize(v) })
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + itemSize(v.Value)
	}
	return 1 // BOOL, NULL
}

// numberSize is about one byte for two digits, plus one.
func numberSize(s string) int { return (len(s)+1)/2 + 1 }

func sum[T any](all []T, size func(T) int) (n int) {
	for _, v := range all {
		n += size(v)
	}
	return n
}
