package table

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

// attrAmount is the amount of a credit.
const attrAmount = "n"

// CreditKey is the primary key of what a credit is remembered by. The credits to a bucket lie side by side.
func CreditKey(c *store.Credit) Key {
	b := c.Bucket
	pk := escaper.Replace(b.Namespace) + "/CREDIT#" + escaper.Replace(b.Entity) + "#" + escaper.Replace(b.Resource)
	return Key{pk, SortKey("#CREDIT", c.Limit, c.ID)}
}

// ForgetCredits deletes what the credits to a balance are remembered by.
func (t *Table) ForgetCredits(ctx context.Context, b store.Bucket, limit string) error {
	first := CreditKey(&store.Credit{Bucket: b, Limit: limit})
	end := strings.TrimSuffix(first.SK, "\x00") + "\x01"
	walked := t.Walk([]Span{{"", AttrPK, AttrSK, first.PK, first.SK, end}}, false, "")
	for {
		entries, err := walked.Next(ctx, 100)
		if err != nil || len(entries) == 0 {
			return err
		}
		for _, e := range entries {
			if err := t.drop(ctx, e.Key); err != nil {
				return err
			}
		}
	}
}

// Credit remembers a credit and makes the change that it is, in one transaction. It returns the amount that the credit
// was made with before; or, if the condition of the change failed, its item, which is nil otherwise.
func (t *Table) Credit(
	ctx context.Context, c *store.Credit, change *types.Update,
) (before int64, failed map[string]types.AttributeValue, err error) {
	key := CreditKey(c)
	if n := len(key.SK); n > MaxRange {
		return 0, nil, &store.BoundError{Bound: "bytes in the range key of a credit", Max: MaxRange, Have: n}
	}
	it := key.Item()
	it[attrAmount] = Num(c.Amount)
	change.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	in := &dynamodb.TransactWriteItemsInput{
		ClientRequestToken: aws.String(rand.Text()), // of an attempt that is repeated, only one counts
		TransactItems: []types.TransactWriteItem{{Put: &types.Put{
			TableName: &t.cfg.Table, Item: it,
			ConditionExpression:                 aws.String("attribute_not_exists(#p)"),
			ExpressionAttributeNames:            map[string]string{"#p": AttrPK},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}}, {Update: change}},
	}
	err = t.Attempt(ctx, func(ctx context.Context) error {
		_, err := t.cfg.Client.TransactWriteItems(ctx, in)
		return err
	})
	for i, reason := range Canceled(err) {
		switch {
		case aws.ToString(reason.Code) != ReasonCondition:
		case i > 0:
			return 0, reason.Item, nil
		default:
			before, bad := Number(reason.Item[attrAmount])
			if bad != nil {
				return 0, nil, t.Damaged(key, bad)
			}
			return before, nil, nil
		}
	}
	return 0, nil, t.Trouble("credit", key.String(), err)
}
