package dynamodb

import (
	"context"
	"sync/atomic"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// Split splits shard k of a bucket, of which this store has seen shard 0, in two. It returns once that is done, or turns
// out to be impossible, on a busy machine.
func (s *Store) Split(b store.Bucket, k int) {
	ctx := context.Background()
	all := s.recall(b, nil).all()
	if k >= len(all) {
		return // its parent could not be split
	}
	sh := all[k]
	sh.lane.Lock()
	unseen := sh.seen == nil
	sh.lane.Unlock()
	if unseen {
		items := make(map[table.Key]*item)
		if err := s.readItems(ctx, []table.Key{sh.pk}, items); err != nil {
			return
		}
		sh.lane.Lock()
		sh.seen = items[sh.pk]
		sh.lane.Unlock()
	}
	sh.lane.Lock()
	p := placed{sh: sh, j: sh.tend(&split{to: 2 * sh.place().n})}
	sh.lane.Unlock()
	_ = p.await(ctx)
}

// Dice makes the store pick shards in turn, not at random.
func (s *Store) Dice() {
	var n atomic.Int64
	s.dice = func(most int) int { return int(n.Add(1)-1) % most }
}

// Depths returns the depths to which the shards of a bucket were seen to be split, 0 for those never seen.
func (s *Store) Depths(b store.Bucket) (depths []int) {
	for _, sh := range s.recall(b, nil).all() {
		depths = append(depths, sh.splitTo())
	}
	return depths
}
