package dynamodb

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithytime "github.com/aws/smithy-go/time"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// patience is the shortest time for which a process waits until others have completed the steps. The longest is three
// times that: if all went on at the same time, their writes would throttle each other.
const patience = 250 * time.Millisecond

// follow makes the bucket have n shards, and drops what was seen of shards when there was another number.
func (b *bucket) follow(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var shards []*shard
	if old := b.shards.Load(); old != nil {
		shards = slices.Clone((*old)[:min(n, len(*old))])
	}
	for k := len(shards); k < n; k++ {
		shards = append(shards, b.newShard(k))
	}
	b.shards.Store(&shards)
	for _, sh := range shards {
		sh.queue.Lock()
		if sh.state.On = sh.place(); sh.state.Outdated() {
			sh.state.Last, sh.state.Refused.At = nil, time.Time{}
		}
		sh.queue.Unlock()
	}
}

// look reads the shards that were not seen yet, so that what goes to several of them is divided by their room. With
// again, it reads all.
func (b *bucket) look(ctx context.Context, again bool) error {
	shown := b.shown()
	var keys []table.Key
	for _, sh := range b.all() {
		if again || sh.last() == nil {
			keys = append(keys, sh.pk)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	items := make(map[table.Key]*plan.Item)
	if err := b.s.readItems(ctx, keys, items); err != nil {
		return err
	}
	b.see(items, shown)
	return nil
}

// shown returns, by shard, the number of the last write that has shown its item.
func (b *bucket) shown() map[table.Key]uint64 {
	shown := make(map[table.Key]uint64)
	for _, sh := range b.all() {
		sh.queue.Lock()
		shown[sh.pk] = sh.state.Shown
		sh.queue.Unlock()
	}
	return shown
}

// see remembers items that were read, apart from those of shards that are being written, or that a write has shown
// since the read began.
func (b *bucket) see(items map[table.Key]*plan.Item, shown map[table.Key]uint64) {
	for _, sh := range b.all() {
		sh.queue.Lock()
		if it := items[sh.pk]; it != nil && sh.state.Shown == shown[sh.pk] && sh.queue.Idle() {
			sh.state.Last = it
		}
		sh.queue.Unlock()
	}
}

// relayout finds out how many shards the bucket has, after a job met a shard that was outdated, seen as it, or
// throttled.
func (b *bucket) relayout(ctx context.Context, sh *shard, it *plan.Item) error {
	if sh.k == 0 && it != nil && !it.Frozen && it.Shards != len(b.all()) {
		b.follow(it.Shards)
		return nil
	}
	select {
	case b.laying <- struct{}{}:
		defer func() { <-b.laying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for until := time.Now().Add(patience + rand.N(2*patience)); ; {
		root, err := b.read(ctx, 0)
		switch {
		case err != nil:
			return err
		case !root.Frozen:
			if ok, err := b.outlive(ctx, root, sh.needs(root)); err != nil || !ok {
				if err != nil {
					return err
				}
				continue
			}
			// A shard that is ahead of shard 0 belongs to a doubling that began since shard 0 was read.
			if it != nil && sh.k > 0 && sh.k < root.Shards && it.Shards < root.Shards {
				if it, err = b.read(ctx, sh.k); err == nil && it.Shards < root.Shards {
					_, err = b.refill(ctx, sh.k, it, root)
				}
			}
			b.follow(root.Shards)
			return err
		case time.Now().Before(until):
			err = smithytime.SleepWithContext(ctx, table.Backoff(1))
		default:
			err = b.double(ctx, root)
		}
		if err != nil {
			return err
		}
	}
}

// grow splits the bucket into n shards in the background, unless that is under way. Of several processes, only the one
// that freezes shard 0 makes the steps; if it does not complete them, relayout does.
func (b *bucket) grow(n int) {
	if n > b.s.cfg.MaxShards || !b.doubling.TryLock() {
		return
	}
	if !b.s.others.Go(func() {
		defer b.doubling.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 5*b.s.cfg.WriteTimeout)
		defer cancel()
		root, err := b.read(ctx, 0)
		if err != nil || root.Frozen || root.Held != 0 {
			return
		}
		if root.Exists && root.Shards < n {
			root, applied, err := b.write(ctx, 0, root.FreezeRoot(b.s.now()))
			if err != nil || !applied || b.double(ctx, root) != nil {
				return
			}
		}
		_, _ = b.split(ctx, n) // finds out how many there are
	}) {
		b.doubling.Unlock()
	}
}

// split doubles the number of shards until there are n, and returns how many there are.
func (b *bucket) split(ctx context.Context, n int) (int, error) {
	for {
		root, err := b.read(ctx, 0)
		if err != nil {
			return 0, err
		}
		if !root.Frozen && (!root.Exists || root.Shards >= n || root.Held != 0) {
			b.follow(root.Shards)
			return root.Shards, b.look(ctx, false)
		}
		if !root.Frozen {
			root, _, err = b.write(ctx, 0, root.FreezeRoot(b.s.now()))
		}
		if err == nil && root.Frozen {
			err = b.double(ctx, root)
		}
		if err != nil {
			return 0, err
		}
	}
}

// double makes the steps that double the number of shards, or those that are left, once shard 0 is frozen.
func (b *bucket) double(ctx context.Context, root *plan.Item) error {
	n := root.Shards
	frozen := make([]*plan.Item, n)
	frozen[0] = root
	if err := each(1, n, func(k int) (err error) {
		frozen[k], err = b.freeze(ctx, k, n, root)
		return err
	}); err != nil {
		return err
	}
	now := b.s.now() // for all steps: what a late one puts expires no later than if it had come in time
	if ok, err := b.outlive(ctx, root, plan.RootTTL(frozen, now)); err != nil || !ok {
		return err // or others have completed the steps
	}
	half := func(k int) error { return b.putHalf(ctx, k, frozen[k], now) }
	convert := func(k int) error {
		_, _, err := b.write(ctx, k, frozen[k].Convert(k, now))
		return err
	}
	for _, step := range []struct {
		from, to int
		make     func(k int) error
	}{{0, n, half}, {1, n, convert}, {0, 1, convert}} {
		if err := each(step.from, step.to, func(k int) error {
			if !frozen[k].FrozenAs(n) {
				return nil // converted already
			}
			return step.make(k)
		}); err != nil {
			return err
		}
	}
	return nil
}

// freeze freezes shard k of n other than 0, and returns it as it then is. A shard that is missing, or has another
// number, was edited by hand or split by an earlier version; it starts anew, with nothing left.
func (b *bucket) freeze(ctx context.Context, k, n int, root *plan.Item) (*plan.Item, error) {
	for {
		it, _, err := b.write(ctx, k, plan.Freeze(plan.Place{K: k, N: n}, b.s.now()))
		if err != nil || it.FrozenAs(n) || it.Shards > n { // others may be steps ahead
			return it, err
		}
		if it, err = b.refill(ctx, k, it, root); err != nil || it.Shards == root.Shards && it.Frozen == root.Frozen {
			return it, err
		}
	}
}

// refill replaces shard k, which was last seen as it, by one that has nothing left, with the limits of shard 0.
func (b *bucket) refill(ctx context.Context, k int, it, root *plan.Item) (*plan.Item, error) {
	u, ttl := it.Refill(k, root, b.s.births.Add(1), b.s.now())
	if ok, err := b.outlive(ctx, root, ttl); err != nil || !ok {
		return it, err
	}
	it, _, err := b.write(ctx, k, u)
	return it, err
}

// saw remembers how long shard 0 of a split bucket lives at least.
func (b *bucket) saw(root *plan.Item) {
	for root.Shards > 1 {
		if was := b.rootTTL.Load(); was >= root.TTL || b.rootTTL.CompareAndSwap(was, root.TTL) {
			return
		}
	}
}

// needs returns the ttl that shard 0 must have for the jobs that the shard sent to be placed anew; 0 if it may be any.
func (sh *shard) needs(root *plan.Item) (ttl int64) {
	sh.queue.Lock()
	defer sh.queue.Unlock()
	if root.Shards > 1 && root.TTL > 0 {
		ttl = sh.state.Roots.Need
	}
	sh.state.Roots.Need = 0
	return ttl
}

// outlive makes shard 0, last seen as root, live until ttl at least. It reports false if it is not as it was seen.
func (b *bucket) outlive(ctx context.Context, root *plan.Item, ttl int64) (ok bool, err error) {
	u := root.Outlive(ttl, b.s.now())
	if u == nil {
		return true, nil
	}
	it, applied, err := b.write(ctx, 0, u)
	return applied || it.TTL >= ttl && it.Shards == root.Shards && it.Frozen == root.Frozen, err
}

// putHalf puts the new half of frozen shard k, unless it exists. A shard that has expired, but is not deleted yet, is
// left from when the bucket was split before.
func (b *bucket) putHalf(ctx context.Context, k int, frozen *plan.Item, now int64) error {
	at := k + frozen.Shards
	for {
		it, applied, err := b.write(ctx, at, frozen.PutHalf(k, b.s.births.Add(1), now))
		if err != nil || applied || !it.Expired(now) {
			return err
		}
		key := table.BucketKey(b.key, at)
		_, err = b.s.cfg.Client.DeleteItem(ctx, &sdk.DeleteItemInput{
			TableName: &b.s.cfg.Table, Key: key.Item(),
			ConditionExpression:       aws.String("#t = :t"),
			ExpressionAttributeNames:  map[string]string{"#t": plan.AttrTTL},
			ExpressionAttributeValues: map[string]types.AttributeValue{":t": table.Num(it.TTL)},
		}, table.Once...)
		var failed *types.ConditionalCheckFailedException
		if err != nil && !errors.As(err, &failed) {
			return b.s.calls.Trouble("split", key.String(), err)
		}
	}
}

// each calls f for from, from+1 … to-1, all at once.
func each(from, to int, f func(k int) error) error {
	errs := make([]error, max(0, to-from))
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = f(from + i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// read reads one shard.
func (b *bucket) read(ctx context.Context, k int) (*plan.Item, error) {
	items, key := make(map[table.Key]*plan.Item), table.BucketKey(b.key, k)
	if err := b.s.readItems(ctx, []table.Key{key}, items); err != nil {
		return plan.Missing, err
	}
	if k == 0 {
		b.saw(items[key])
	}
	return items[key], nil
}

// stepPause returns how long to wait before a step's write is repeated. The writes that wait for the step compete with
// it for the shard's capacity, and pause longer from try to try.
func stepPause(int) time.Duration { return jitter(plan.StepPause) }

// write makes a step's write, and repeats it while that may help. It returns the shard as it then is, and whether the
// last attempt was applied.
func (b *bucket) write(ctx context.Context, k int, u *expr.Update) (it *plan.Item, applied bool, err error) {
	key := table.BucketKey(b.key, k)
	if err := b.s.calls.Timely(ctx, key); err != nil {
		return plan.Missing, false, err
	}
	in := b.s.input(key.Item(), u)
	var attrs map[string]types.AttributeValue
	err = b.s.calls.Repeat(ctx, stepPause, func(ctx context.Context) error {
		out, err := b.s.cfg.Client.UpdateItem(ctx, in, table.Once...)
		if err == nil {
			attrs = out.Attributes
		}
		return err
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		attrs = failed.Item
	} else if err != nil {
		return plan.Missing, false, b.s.calls.Trouble("split", key.String(), err)
	}
	it, bad := table.ParseItem(attrs)
	if bad != nil {
		return plan.Missing, false, b.s.calls.Damaged(key, bad)
	}
	if k == 0 {
		b.saw(it)
	}
	return it, err == nil, nil
}
