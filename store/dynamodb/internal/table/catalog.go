package table

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithytime "github.com/aws/smithy-go/time"

	"github.com/weirlimits/weir/store"
)

// MaxBatch is the largest number of items that a BatchGetItem may read.
const MaxBatch = 100

// Items are what a read found, by primary key.
type Items map[Key]map[string]types.AttributeValue

// Get implements [store.Catalog]. Each record is as it was at one moment of the call. The epoch is one that was read
// before all of them.
func (c *Catalog) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	if err := c.t.Ready(ctx); err != nil {
		return store.Got{}, err
	}
	if len(keys) == 0 {
		return store.Got{}, nil
	}
	ns := keys[0].Namespace
	wanted := make([]Key, 0, len(keys)+1)
	for _, k := range keys {
		if k.Namespace != ns {
			return store.Got{}, store.ErrInvalid
		}
		if err := checkKey("get", k, ""); err != nil {
			return store.Got{}, err
		}
		wanted = append(wanted, RecordKey(k))
	}
	ctx, cancel := c.t.Within(ctx)
	defer cancel()
	stamp, err := c.t.stamp(ctx, ns)
	if err != nil {
		return store.Got{}, err
	}
	found, err := c.t.BatchGet(ctx, append(wanted, epochKey(ns)))
	if err != nil {
		return store.Got{}, err
	}
	if _, err := c.t.sawEpoch(ns, stamp, found[epochKey(ns)]); err != nil {
		return store.Got{}, err
	}
	got := store.Got{Records: make([]store.Record, len(keys)), Epoch: stamp.value}
	now := c.t.Clock()
	for i, k := range keys {
		if got.Records[i], err = c.t.parseRecord(k, found[wanted[i]], now); err != nil {
			return store.Got{}, err
		}
	}
	return got, nil
}

// errUnprocessed reports that DynamoDB left keys of a batch unread for too long.
var errUnprocessed = errors.New("the table is throttled")

// BatchGet reads items consistently, as many per call as allowed, and reads again those that DynamoDB leaves
// unprocessed.
func (t *Table) BatchGet(ctx context.Context, keys []Key) (Items, error) {
	found := make(Items, len(keys))
	seen := make(map[Key]bool, len(keys))
	todo := make([]map[string]types.AttributeValue, 0, len(keys))
	for _, k := range keys {
		if !seen[k] {
			seen[k] = true
			todo = append(todo, k.Item())
		}
	}
	for stalled := 0; len(todo) > 0; {
		n := min(len(todo), MaxBatch)
		in := &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			t.cfg.Table: {Keys: todo[:n], ConsistentRead: aws.Bool(true)},
		}}
		var out *dynamodb.BatchGetItemOutput
		err := t.Attempt(ctx, func(ctx context.Context) (err error) {
			sent := t.Skew.Sent()
			if out, err = t.cfg.Client.BatchGetItem(ctx, in); err == nil {
				t.Answered(out.ResultMetadata, sent, keys[0])
			}
			return err
		})
		if err != nil {
			return nil, t.Trouble("get", keys[0].String(), err)
		}
		for _, attrs := range out.Responses[t.cfg.Table] {
			k, err := KeyOf(attrs)
			if err != nil {
				return nil, t.Trouble("get", keys[0].String(), err)
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
			if err := smithytime.SleepWithContext(ctx, Backoff(stalled)); err != nil {
				return nil, t.Trouble(
					"get", keys[0].String(),
					fmt.Errorf("%w: %w: %d keys left unprocessed", err, errUnprocessed, len(left)),
				)
			}
		}
		todo = append(left, todo[n:]...)
	}
	return found, nil
}

// KeyOf returns the primary key of an item.
func KeyOf(attrs map[string]types.AttributeValue) (Key, error) {
	pk, err := Field(attrs, AttrPK, Text)
	if err != nil {
		return Key{}, err
	}
	sk, err := Field(attrs, AttrSK, Text)
	return Key{pk, sk}, err
}
