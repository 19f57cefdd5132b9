// Package readwrite is a baseline for weir on DynamoDB: a token bucket that reads its state, changes it and writes it
// back. It works like the one in mennanov/limiters, which is not available from the module proxy.
package readwrite

import (
	"context"
	"errors"
	"strconv"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Client makes the DynamoDB calls: a counting client, or the SDK's.
type Client interface {
	GetItem(context.Context, *sdk.GetItemInput, ...func(*sdk.Options)) (*sdk.GetItemOutput, error)
	PutItem(context.Context, *sdk.PutItemInput, ...func(*sdk.Options)) (*sdk.PutItemOutput, error)
}

// Limiter keeps buckets in a table with weir's schema. All fields except Check are required.
type Limiter struct {
	Client Client
	Table  string
	Check  bool          // fail a write if the state changed since it was read; a bucket's first write is not checked
	Tokens int64         // capacity of a bucket
	Every  time.Duration // time to refill one token
	Now    func() time.Time
}

// ErrRace is the error of a checked write whose state has changed.
var ErrRace = errors.New("the bucket changed between read and write")

// Allow takes one token from a bucket, if there is one.
func (l *Limiter) Allow(ctx context.Context, bucket string) (bool, error) {
	key := map[string]types.AttributeValue{
		"PK": &types.AttributeValueMemberS{Value: bucket}, "SK": &types.AttributeValueMemberS{Value: "state"},
	}
	consistent := true
	got, err := l.Client.GetItem(ctx, &sdk.GetItemInput{TableName: &l.Table, Key: key, ConsistentRead: &consistent})
	if err != nil {
		return false, err
	}
	available, version, last := l.Tokens, int64(0), l.Now()
	if got.Item != nil {
		available, version, last = integer(got.Item["Available"]), integer(got.Item["Version"]), time.Unix(
			0, integer(got.Item["Last"]),
		)
	}
	if refill := int64(l.Now().Sub(last) / l.Every); refill > 0 {
		available, last = min(l.Tokens, available+refill), last.Add(time.Duration(refill)*l.Every)
	}
	if available < 1 {
		return false, nil
	}
	key["Available"], key["Version"], key["Last"] = decimal(available-1), decimal(version+1), decimal(last.UnixNano())
	put := &sdk.PutItemInput{TableName: &l.Table, Item: key}
	if l.Check && version > 0 {
		condition := "Version <= :version"
		put.ConditionExpression = &condition
		put.ExpressionAttributeValues = map[string]types.AttributeValue{":version": decimal(version)}
	}
	_, err = l.Client.PutItem(ctx, put)
	if _, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		err = ErrRace
	}
	return err == nil, err
}

func integer(v types.AttributeValue) int64 {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	i, _ := strconv.ParseInt(n.Value, 10, 64)
	return i
}

func decimal(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
