package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

// maxBatch is the largest number of items that a BatchGetItem may read.
const maxBatch = 100

// items are what a read found, by primary key.
type items map[primary]map[string]types.AttributeValue

// Get implements [store.Catalog]. Each record is as it was at one moment of the call. The epoch is one that was read
// before all of them.
func (s *Store) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	if err := s.ready(ctx); err != nil {
		return store.Got{}, err
	}
	if len(keys) == 0 {
		return store.Got{}, nil
	}
	ns := keys[0].Namespace
	wanted := make([]primary, 0, len(keys)+1)
	for _, k := range keys {
		if k.Namespace != ns {
			return store.Got{}, store.ErrInvalid
		}
		if err := checkKey("get", k, ""); err != nil {
			return store.Got{}, err
		}
		wanted = append(wanted, recordKey(k))
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	stamp, err := s.stamp(ctx, ns)
	if err != nil {
		return store.Got{}, err
	}
	found, err := s.batchGet(ctx, append(wanted, epochKey(ns)))
	if err != nil {
		return store.Got{}, err
	}
	if _, err := s.sawEpoch(ns, stamp, found[epochKey(ns)]); err != nil {
		return store.Got{}, err
	}
	got := store.Got{Records: make([]store.Record, len(keys)), Epoch: stamp.value}
	now := s.clock()
	for i, k := range keys {
		if got.Records[i], err = s.parseRecord(k, found[wanted[i]], now); err != nil {
			return store.Got{}, err
		}
	}
	return got, nil
}

// errUnprocessed reports that DynamoDB left keys of a batch unread for too long.
var errUnprocessed = errors.New("the table is throttled")

// batchGet reads items consistently, as many per call as allowed, and reads again those that DynamoDB leaves unprocessed.
func (s *Store) batchGet(ctx context.Context, keys []primary) (items, error) {
	found := make(items, len(keys))
	seen := make(map[primary]bool, len(keys))
	todo := make([]map[string]types.AttributeValue, 0, len(keys))
	for _, k := range keys {
		if !seen[k] {
			seen[k] = true
			todo = append(todo, k.item())
		}
	}
	for stalled := 0; len(todo) > 0; {
		n := min(len(todo), maxBatch)
		in := &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			s.cfg.Table: {Keys: todo[:n], ConsistentRead: aws.Bool(true)},
		}}
		var out *dynamodb.BatchGetItemOutput
		err := s.attempt(ctx, func(ctx context.Context) (err error) {
			sent := time.Now()
			if out, err = s.cfg.Client.BatchGetItem(ctx, in); err == nil {
				s.skew.answered(out.ResultMetadata, sent)
			}
			return err
		})
		if err != nil {
			return nil, s.trouble("get", keys[0].String(), err)
		}
		for _, attrs := range out.Responses[s.cfg.Table] {
			k, err := primaryOf(attrs)
			if err != nil {
				return nil, s.trouble("get", keys[0].String(), err)
			}
			found[k] = attrs
		}
		var left []map[string]types.AttributeValue
		for _, u := range out.UnprocessedKeys {
			left = append(left, u.Keys...)
		}
		if stalled++; len(left) < n {
			stalled = 1
		}
		if len(left) > 0 {
			if err := sleep(ctx, backoff(stalled)); err != nil {
				return nil, s.trouble("get", keys[0].String(), fmt.Errorf("%w: %w: %d keys left unprocessed", err, errUnprocessed, len(left)))
			}
		}
		todo = append(left, todo[n:]...)
	}
	return found, nil
}

// primaryOf returns the primary key of an item.
func primaryOf(attrs map[string]types.AttributeValue) (primary, error) {
	pk, err := field(attrs, attrPK, text)
	if err != nil {
		return primary{}, err
	}
	sk, err := field(attrs, attrSK, text)
	return primary{pk, sk}, err
}
