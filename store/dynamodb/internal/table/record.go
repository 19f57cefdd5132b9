package table

import (
	"fmt"
	"math"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

// The attributes of a record, besides its keys.
const (
	AttrVersion = "v"
	AttrValue   = "d"
	AttrParents = "parent"
	attrExpires = "expires" // Unix time in nanoseconds; DynamoDB deletes the item some time after AttrTTL
	AttrNumber  = "n"       // of an epoch, and of the schema
)

// recordItem is a record as it is stored.
func recordItem(r *store.Record) map[string]types.AttributeValue {
	it := RecordKey(r.Key).Item()
	at := Str(recordSort(r.Key))
	it[AttrIndex], it[AttrSort] = Str(IndexPartition(r.Key.Namespace, recordSort(r.Key))), at
	it[AttrVersion] = Num(r.Version)
	it[AttrValue] = &types.AttributeValueMemberB{Value: append([]byte{}, r.Value...)} // DynamoDB does not accept nil
	if r.Parent != "" {
		it[AttrParents] = Str(r.Parent)
		it[AttrParent], it[AttrChild] = Str(parentPartition(r.Key.Namespace, r.Parent)), at
	}
	if r.Key.Kind == store.KindEntityLimits {
		it[AttrScope], it[AttrOwner] = Str(scopePartition(r.Key.Namespace, r.Key.Sub)), at
	}
	if !r.Expires.IsZero() {
		it[AttrTTL] = Num(r.Expires.Unix() + 1)
		it[attrExpires] = Num(unixNano(r.Expires))
	}
	return it
}

// parseRecord decodes a record. A record that does not exist or has expired has version 0.
func (t *Table) parseRecord(k store.Key, attrs map[string]types.AttributeValue, now time.Time) (store.Record, error) {
	none := store.Record{Key: k}
	if len(attrs) == 0 {
		return none, nil
	}
	r, err := decodeRecord(k, attrs)
	if err != nil {
		return none, t.Damaged(RecordKey(k), err)
	}
	if !r.Expires.IsZero() && !now.Before(r.Expires) {
		return none, nil
	}
	return r, nil
}

func decodeRecord(k store.Key, attrs map[string]types.AttributeValue) (r store.Record, err error) {
	r.Key = k
	if r.Version, err = Field(attrs, AttrVersion, Unsigned); err != nil {
		return r, err
	}
	if r.Value, err = Field(attrs, AttrValue, Binary); err != nil {
		return r, err
	}
	if _, ok := attrs[AttrParents]; ok {
		if r.Parent, err = Field(attrs, AttrParents, Text); err != nil {
			return r, err
		}
	}
	if _, ok := attrs[attrExpires]; ok {
		n, err := Field(attrs, attrExpires, Number)
		if err != nil {
			return r, err
		}
		r.Expires = time.Unix(0, n).UTC()
	}
	if r.Version == 0 {
		err = fmt.Errorf("attribute %s: no record has version 0", AttrVersion)
	}
	return r, err
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
