package dynamodb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// Flush waits for the writes and splits under way.
func (s *Store) Flush() {
	s.writes.Flush()
	s.others.Flush()
	s.writes.Flush()
}

// Rest is Flush, after which nothing is held that was debited ahead.
func (s *Store) Rest() {
	s.Flush()
	s.returnSurpluses()
	s.Flush()
}

// Remembered returns the number of buckets whose state is remembered.
func (s *Store) Remembered() int {
	s.buckets.mu.Lock()
	defer s.buckets.mu.Unlock()
	return len(s.buckets.m)
}

// Input returns an update as the SDK takes it.
func (s *Store) Input(key map[string]types.AttributeValue, u *expr.Update) *dynamodb.UpdateItemInput {
	return s.input(key, u)
}

// BucketKey returns the key of a bucket's shard.
func BucketKey(b store.Bucket, k int) map[string]types.AttributeValue {
	return table.BucketKey(b, k).Item()
}

// Machine reads a machine's clocks.
type Machine = table.Machine

// OpenOn is Open, on a machine with clocks of its own.
func OpenOn(ctx context.Context, cfg Config, machine Machine) (*Store, error) {
	return open(ctx, cfg, machine)
}

// NewOn is New, on a machine with clocks of its own.
func NewOn(cfg Config, machine Machine) (*Store, error) { return newStore(cfg, machine) }

// Raise makes a bucket judge at no time before now, which was read when the time had been set back so often. It returns
// the time at which the bucket judges from then on.
func (s *Store) Raise(b store.Bucket, now int64, back int32) int64 {
	sh := s.bucket(b).root()
	sh.raise(now, back)
	sh.queue.Lock()
	defer sh.queue.Unlock()
	return sh.tick()
}
