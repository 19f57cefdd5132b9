package table

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

// attrBy identifies the call that made a marker, so that a call that is repeated because it got no answer recognizes
// its own.
const attrBy = "by"

// PutMarker claims an ID, which only one call can do.
func (t *Table) PutMarker(ctx context.Context, id string, forget time.Time) error {
	ctx, cancel := t.Within(ctx)
	defer cancel()
	by := rand.Text()
	it := MarkerKey(id).Item()
	it[AttrTTL], it[attrBy] = Num(forget.Unix()), Str(by)
	err := t.Attempt(ctx, func(ctx context.Context) error {
		_, err := t.cfg.Client.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &t.cfg.Table, Item: it,
			ConditionExpression:                 aws.String("attribute_not_exists(#p)"),
			ExpressionAttributeNames:            map[string]string{"#p": AttrPK},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}, Once...)
		return err
	})
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		if have, ok := failed.Item[attrBy].(*types.AttributeValueMemberS); ok && have.Value == by {
			return nil
		}
		return store.ErrSettled
	}
	return t.Trouble("settle", MarkerKey(id).String(), err)
}
