package dynamodb

import (
	"sync/atomic"

	"github.com/weirlimits/weir/store"
)

// Dice makes the store pick shards in turn, not at random.
func (s *Store) Dice() {
	var n atomic.Int64
	s.dice = func(most int) int { return int(n.Add(1)-1) % most }
}

// Shards returns the number of shards that the store knows of a bucket.
func (s *Store) Shards(b store.Bucket) int { return len(s.bucket(b).all()) }

// Pick makes the store pick the same shard each time.
func (s *Store) Pick(k int) { s.dice = func(int) int { return k } }

// Grow makes the store split a bucket into n shards as it does when it writes to a shard too often.
func (s *Store) Grow(b store.Bucket, n int) { s.bucket(b).grow(n) }
