package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/bench/internal/measure"
	"github.com/weirlimits/weir/store/dynamodb"
)

// reader is a token bucket that reads its state, changes it and writes it back, as mennanov/limiters' on DynamoDB does,
// which the module proxy does not have. With check its write fails if the state changed in between, unless it read
// that there was none yet.
type reader struct {
	client *sdk.Client
	calls  *atomic.Int64
	table  string
	check  bool
	tokens int64         // it holds
	every  time.Duration // it gets one
	now    func() time.Time
}

func newReader(e *env, check bool, tokens int64, every time.Duration) (*reader, error) {
	name, err := table(e, dynamodb.CreateConfig{})
	if err != nil {
		return nil, err
	}
	c, calls, err := client()
	return &reader{c, calls, name, check, tokens, every, time.Now}, err
}

var errRace = errors.New("the bucket changed between read and write")

func (b *reader) allow(ctx context.Context, entity string) (bool, error) {
	key := map[string]types.AttributeValue{
		"PK": &types.AttributeValueMemberS{Value: entity}, "SK": &types.AttributeValueMemberS{Value: "state"},
	}
	consistent := true
	got, err := b.client.GetItem(ctx, &sdk.GetItemInput{TableName: &b.table, Key: key, ConsistentRead: &consistent})
	if err != nil {
		return false, err
	}
	available, version, last := b.tokens, int64(0), b.now()
	if got.Item != nil {
		available, version, last = integer(got.Item["Available"]), integer(got.Item["Version"]), time.Unix(0, integer(got.Item["Last"]))
	}
	if refill := int64(b.now().Sub(last) / b.every); refill > 0 {
		available, last = min(b.tokens, available+refill), last.Add(time.Duration(refill)*b.every)
	}
	if available < 1 {
		return false, nil
	}
	key["Available"], key["Version"], key["Last"] = decimal(available-1), decimal(version+1), decimal(last.UnixNano())
	put := &sdk.PutItemInput{TableName: &b.table, Item: key}
	if b.check && version > 0 {
		condition := "Version <= :version"
		put.ConditionExpression = &condition
		put.ExpressionAttributeValues = map[string]types.AttributeValue{":version": decimal(version)}
	}
	_, err = b.client.PutItem(ctx, put)
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		err = errRace
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

// readerShape checks its writes, as one must who reads first; an operation that failed so is counted as failed.
func readerShape(s shape) func(*env) (drive, error) {
	return func(e *env) (drive, error) {
		b, err := newReader(e, true, 1_000_000, 60*time.Microsecond)
		if err != nil {
			return nil, err
		}
		return func(round int, length time.Duration) (sample, error) {
			ids := make([]string, s.Entities)
			for i := range ids {
				ids[i] = fmt.Sprintf("r%d-%d", round, i)
				for range 2 {
					if _, err := b.allow(e.ctx, ids[i]); err != nil {
						return sample{}, err
					}
				}
			}
			at := 0 // of the only worker
			return timed(e, s.Workers, meter{measure.CPU, b.calls}, func(ctx context.Context, worker int) error {
				if s.Workers == 1 {
					at++
					worker = at
				}
				_, err := b.allow(ctx, ids[worker%len(ids)])
				return err
			})(length), nil
		}, nil
	}
}
