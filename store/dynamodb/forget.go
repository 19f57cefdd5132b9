package dynamodb

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, buckets ...store.Bucket) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	const atOnce = 32
	for len(buckets) > 0 {
		n := min(atOnce, len(buckets))
		if err := each(0, n, func(i int) error { return s.recall(buckets[i]).forget(ctx) }); err != nil {
			return err
		}
		buckets = buckets[n:]
	}
	return nil
}

// forget removes all of the bucket's items: shard 0 first, whose answer shows how many others there are.
func (m *memory) forget(ctx context.Context) error {
	for from, to := 0, 1; from < to; from, to = to, len(m.all()) {
		var jobs []placed
		for _, sh := range m.all()[from:to] {
			jobs = append(jobs, sh.forget())
		}
		if err := await(ctx, jobs); err != nil {
			return err
		}
		for i := range jobs {
			if jobs[i].moved() {
				if err := m.relayout(ctx, &jobs[i]); err != nil {
					return err
				}
				to = 0 // again, from the beginning
			}
		}
	}
	return nil
}

func await(ctx context.Context, jobs []placed) error {
	for i := range jobs {
		if err := jobs[i].await(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (sh *shard) forget() placed {
	sh.lane.Lock()
	defer sh.lane.Unlock()
	sh.giveUp()
	return placed{sh: sh, j: sh.tend(&forget{})}
}

// tend makes an upkeep the next write. The lane must be locked.
func (sh *shard) tend(u upkeep) *job {
	j := &job{kind: tend, upkeep: u, expires: time.Now().Add(sh.s.cfg.WriteTimeout)}
	j.since = sh.sent
	sh.lane.AddFirst(j)
	return j
}

// forget removes an item. The item of a split bucket stays, empty: how deep it is split must not be forgotten while
// others may still write by it.
type forget struct{ done bool }

// blanks reports whether the item is emptied rather than deleted.
func (f *forget) blanks(b *batch) bool { return b.place.n > 1 && b.seen != nil }

func (f *forget) input(sh *shard) *dynamodb.DeleteItemInput {
	return &dynamodb.DeleteItemInput{
		TableName: &sh.s.cfg.Table, Key: sh.pk.Item(),
		ConditionExpression:                 aws.String("attribute_not_exists(#s)"),
		ExpressionAttributeNames:            map[string]string{"#s": attrShards},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

func (f *forget) write(_ *shard, b *batch, u *update) {
	it := b.seen
	u.op(condEqual, attrID, int64(it.id))
	u.op(condEqual, attrShards, int64(it.shards))
	u.op(setTo, attrShards, int64(it.shards))
	for _, attr := range []string{
		attrID, attrEpoch, attrSet, attrOverrides, attrTakes, attrUndone, table.AttrIndex, table.AttrSort,
	} {
		u.op(remove, attr)
	}
	for i := range it.limits {
		for _, prefix := range []string{prefixLevel, prefixDebited, prefixReturned, prefixParams} {
			u.op(remove, prefix+it.limits[i].name)
		}
	}
}

func (f *forget) due(sh *shard, _ int64) bool {
	return !(f.done && (sh.seen == nil || !sh.seen.exists))
}

func (f *forget) landed(*shard, *batch, *item) {}

// again is called for the item of a split bucket, which is known now.
func (f *forget) again(_ *shard, b *batch) []*job {
	f.done = true
	return b.jobs
}

// Peek implements [store.Store]. It makes one read for all buckets, and another for the other shards of split buckets.
func (s *Store) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	if err := s.ready(ctx); err != nil {
		return store.Snapshot{}, err
	}
	items := make(map[table.Key]*item)
	depth := make([]int, len(buckets))
	var keys []table.Key
	for i, b := range buckets {
		depth[i] = 1
		keys = append(keys, table.BucketKey(b, 0))
	}
	for len(keys) > 0 {
		if err := s.readItems(ctx, keys, items); err != nil {
			return store.Snapshot{}, err
		}
		keys = nil
		for i, b := range buckets {
			root := items[table.BucketKey(b, 0)]
			n := root.shards
			if root.frozen {
				n *= 2 // some of the new halves may be used already
			}
			for ; depth[i] < n; depth[i]++ {
				keys = append(keys, table.BucketKey(b, depth[i]))
			}
		}
	}
	now := s.now()
	for _, it := range items {
		now = max(now, it.at)
	}
	snap := store.Snapshot{At: clock.Time(now), States: make([]store.State, len(buckets))}
	for i, b := range buckets {
		shards := make([]*item, depth[i])
		for k := range shards {
			shards[k] = items[table.BucketKey(b, k)]
		}
		snap.States[i] = combine(b, shards, now)
	}
	return snap, nil
}

func (s *Store) readItems(ctx context.Context, keys []table.Key, items map[table.Key]*item) error {
	got, err := s.calls.BatchGet(ctx, keys)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if items[k], err = parseItem(got[k]); err != nil {
			return s.calls.Damaged(k, err)
		}
	}
	return nil
}
