package booking

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// begun is when the booking of a table's usage began, in minutes.
type begun struct {
	Minute int64            // for the table
	Again  map[string]int64 // for resources that were left out before
}

// of returns when the booking of a resource's usage began.
func (b *begun) of(resource string) int64 { return max(b.Minute, b.Again[resource]) }

// againAfter is how many minutes it may take until no ledger leaves out a resource that is to be booked again. Buckets
// without an account that were written in this time start from their current counts.
const againAfter = 5

// againFor is how many minutes that is remembered: buckets at rest for longer start from their current counts anyway.
const againFor = 90 * 24 * 60

// next returns what to record when a ledger starts, given what is recorded; nil: nothing.
func next(m *table.Metered, of *table.Metering, now int64) table.Metered {
	n := table.Metered{Without: slices.Sorted(slices.Values(of.Without)), Again: make(map[string]int64)}
	for _, w := range store.Windows {
		if slices.Contains(of.Windows, w) {
			n.Windows = append(n.Windows, w)
		}
	}
	if m != nil {
		for r, minute := range m.Again {
			if minute > now-againFor {
				n.Again[r] = minute
			}
		}
		for _, r := range m.Without {
			n.Again[r] = now + againAfter
		}
	}
	for _, r := range n.Without {
		delete(n.Again, r)
	}
	return n
}

// begin records what a ledger books. It returns since when usage is kept: for the table, since it was first called.
func (b *books) begin(ctx context.Context) (begun, error) {
	ctx, cancel := b.t.Within(ctx)
	defer cancel()
	now := ledger.MinuteOf(b.t.Clock())
	minute := now
	var was *table.Metered // nil: nothing is recorded
	var old []byte
	for {
		to := next(was, &b.Metering, now)
		if was != nil && reflect.DeepEqual(*was, to) {
			return begun{minute, to.Again}, nil
		}
		found, err := b.record(ctx, minute, &to, was != nil, old)
		switch {
		case err != nil:
			return begun{}, err
		case found == nil:
			return begun{minute, to.Again}, nil
		}
		was = new(table.Metered)
		if minute, err = table.Field(found, table.AttrNumber, table.Number); err == nil {
			*was, old, err = table.MeteredOf(found)
		}
		if err != nil {
			return begun{}, b.t.Damaged(table.MeteredKey(), err)
		}
	}
}

// record writes a record in place of an old one, which is nil if it has only the minute. If there is another by now,
// it returns that instead.
func (b *books) record(
	ctx context.Context, minute int64, next *table.Metered, there bool, old []byte,
) (found map[string]types.AttributeValue, err error) {
	raw, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	in := &dynamodb.PutItemInput{
		TableName: aws.String(b.t.Name()), Item: table.MeteredKey().Item(),
		ConditionExpression:                 aws.String("attribute_not_exists(#a)"),
		ExpressionAttributeNames:            map[string]string{"#a": table.AttrPK},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	in.Item[table.AttrNumber], in.Item[table.AttrValue] = table.Num(minute), &types.AttributeValueMemberB{Value: raw}
	if there {
		in.ExpressionAttributeNames["#a"] = table.AttrValue
	}
	if old != nil {
		in.ConditionExpression = aws.String("#a = :old")
		in.ExpressionAttributeValues = map[string]types.AttributeValue{":old": &types.AttributeValueMemberB{Value: old}}
	}
	err = b.t.Attempt(ctx, func(ctx context.Context) error {
		_, err := b.t.Client().PutItem(ctx, in, table.Once...)
		return err
	})
	if other, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok && other.Item != nil {
		return other.Item, nil
	}
	return nil, b.t.Trouble("usage", table.MeteredKey().String(), err)
}
