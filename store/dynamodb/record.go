package dynamodb

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

// The attributes of a record, besides its keys.
const (
	attrVersion = "v"
	attrValue   = "d"
	attrParents = "parent"
	attrExpires = "expires" // Unix time in nanoseconds; DynamoDB deletes the item some time after attrTTL
	attrNumber  = "n"       // of an epoch, and of the schema
)

// recordItem is a record as it is stored.
func recordItem(r *store.Record) map[string]types.AttributeValue {
	it := recordKey(r.Key).item()
	at := str(recordSort(r.Key))
	it[attrIndex], it[attrSort] = str(indexPartition(r.Key.Namespace, recordSort(r.Key))), at
	it[attrVersion] = num(r.Version)
	it[attrValue] = &types.AttributeValueMemberB{Value: append([]byte{}, r.Value...)} // DynamoDB does not accept nil
	if r.Parent != "" {
		it[attrParents] = str(r.Parent)
		it[attrParent], it[attrChild] = str(parentPartition(r.Key.Namespace, r.Parent)), at
	}
	if r.Key.Kind == store.KindEntityLimits {
		it[attrScope], it[attrOwner] = str(scopePartition(r.Key.Namespace, r.Key.Sub)), at
	}
	if !r.Expires.IsZero() {
		it[attrTTL] = num(r.Expires.Unix() + 1)
		it[attrExpires] = num(unixNano(r.Expires))
	}
	return it
}

// parseRecord decodes a record. A record that does not exist or has expired has version 0.
func (s *Store) parseRecord(k store.Key, attrs map[string]types.AttributeValue, now time.Time) (store.Record, error) {
	none := store.Record{Key: k}
	if len(attrs) == 0 {
		return none, nil
	}
	r, err := decodeRecord(k, attrs)
	if err != nil {
		return none, s.damaged(recordKey(k), err)
	}
	if !r.Expires.IsZero() && !now.Before(r.Expires) {
		return none, nil
	}
	return r, nil
}

func decodeRecord(k store.Key, attrs map[string]types.AttributeValue) (r store.Record, err error) {
	r.Key = k
	if r.Version, err = field(attrs, attrVersion, unsigned); err != nil {
		return r, err
	}
	if r.Value, err = field(attrs, attrValue, binary); err != nil {
		return r, err
	}
	if _, ok := attrs[attrParents]; ok {
		if r.Parent, err = field(attrs, attrParents, text); err != nil {
			return r, err
		}
	}
	if _, ok := attrs[attrExpires]; ok {
		n, err := field(attrs, attrExpires, number)
		if err != nil {
			return r, err
		}
		r.Expires = time.Unix(0, n).UTC()
	}
	if r.Version == 0 {
		err = fmt.Errorf("attribute %s: no record has version 0", attrVersion)
	}
	return r, err
}

var errNotBinary = errors.New("is not binary")

// field decodes an attribute. Its errors name the attribute.
func field[T any](attrs map[string]types.AttributeValue, name string, decode func(types.AttributeValue) (T, error)) (T, error) {
	v, err := decode(attrs[name])
	if err != nil {
		return v, fmt.Errorf("attribute %s: %w", name, err)
	}
	return v, nil
}

func binary(v types.AttributeValue) ([]byte, error) {
	b, ok := v.(*types.AttributeValueMemberB)
	if !ok {
		return nil, errNotBinary
	}
	return b.Value, nil
}

// unixNano is t.UnixNano, saturated.
func unixNano(t time.Time) int64 {
	switch {
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	}
	return t.UnixNano()
}

// itemSize is an upper bound of the bytes that DynamoDB counts for an item.
func itemSize(attrs map[string]types.AttributeValue) int {
	n := 0
	for name, v := range attrs {
		n += len(name)
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			n += len(v.Value)
		case *types.AttributeValueMemberB:
			n += len(v.Value)
		default:
			n += 21 // the length of the longest number
		}
	}
	return n
}
