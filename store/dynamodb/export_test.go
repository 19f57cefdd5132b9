package dynamodb

import (
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// Flush waits for the writes and splits under way.
func (s *Store) Flush() {
	s.writes.Flush()
	s.others.Flush()
	s.writes.Flush()
}

// Remembered returns the number of buckets whose state is remembered.
func (s *Store) Remembered() int {
	s.buckets.mu.Lock()
	defer s.buckets.mu.Unlock()
	return len(s.buckets.m)
}

// Input returns an update as the SDK takes it.
func (s *Store) Input(key map[string]types.AttributeValue, u *plan.Update) *dynamodb.UpdateItemInput {
	return s.input(key, u)
}

// BucketKey returns the key of a bucket's shard.
func BucketKey(b store.Bucket, k int) map[string]types.AttributeValue {
	return table.BucketKey(b, k).Item()
}
