package dynamodb

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

// attrBy identifies the call that made a marker, so that a call that is repeated because it got no answer recognizes its
// own.
const attrBy = "by"

// putMarker claims an ID, which only one call can do.
func (s *Store) putMarker(ctx context.Context, id string, forget time.Time) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	by := rand.Text()
	it := markerKey(id).item()
	it[attrTTL], it[attrBy] = num(forget.Unix()), str(by)
	err := s.attempt(ctx, func(ctx context.Context) error {
		_, err := s.cfg.Client.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &s.cfg.Table, Item: it,
			ConditionExpression: aws.String("attribute_not_exists(#p)"), ExpressionAttributeNames: map[string]string{"#p": attrPK},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}, once...)
		return err
	})
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		if have, ok := failed.Item[attrBy].(*types.AttributeValueMemberS); ok && have.Value == by {
			return nil
		}
		return store.ErrSettled
	}
	return s.trouble("settle", markerKey(id).String(), err)
}
