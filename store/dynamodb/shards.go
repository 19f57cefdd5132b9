package dynamodb

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// A bucket's shards are doubled all at once. Shard 0 alone decides how many there are. Every write to a bucket asserts
// the number that its planner knows.
//
//  1. Shard 0 is frozen: its number of shards becomes negative, so that no write finds what it asserts.
//  2. The other shards are frozen. What a frozen shard holds is final.
//  3. For each shard k of n, shard k+n of 2n is put, with half of what k holds.
//  4. Each shard but 0 is converted to the other half, and thereby used again.
//  5. Shard 0 is converted. From here on, there are 2n.
//
// A step that was made already fails, and the answer shows what it left, so any process may make any step again.
// Whoever meets a frozen bucket waits, and soon goes on with the steps itself.

// patience is how long a process waits for others to complete the steps.
const patience = 250 * time.Millisecond

// memory is what the process remembers of a bucket.
type memory struct {
	s   *Store
	key store.Bucket

	viewCache
	shards shardList

	laying   chan struct{} // of capacity one: held by whoever reads how many shards there are
	doubling sync.Mutex    // held while the process doubles them on its own account
}

// follow makes the bucket have n shards, and drops what was seen of shards when there was another number.
func (m *memory) follow(n int) {
	for _, sh := range m.shards.resize(n, func(k int) *shard { return m.s.newShard(m, k) }) {
		sh.lane.Lock()
		if sh.outdated() {
			sh.seen, sh.lows, sh.denied, sh.meter = nil, nil, time.Time{}, meter{}
		}
		sh.lane.Unlock()
	}
}

// look reads the shards that were not seen yet, so that what goes to several of them is divided by their room.
func (m *memory) look(ctx context.Context) error {
	var keys []table.Key
	shards := m.all()
	for _, sh := range shards {
		if !sh.known() {
			keys = append(keys, sh.pk)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	items := make(map[table.Key]*item)
	if err := m.s.readItems(ctx, keys, items); err != nil {
		return err
	}
	for _, sh := range shards {
		sh.lane.Lock()
		if it := items[sh.pk]; it != nil && sh.seen == nil && sh.lane.Idle() {
			sh.seen = it
		}
		sh.lane.Unlock()
	}
	return nil
}

// outdated reports whether the shard was last seen frozen, or with another number of shards than the bucket is known to
// have, or not at all although it should exist.
func (sh *shard) outdated() bool {
	n := len(sh.m.all())
	return sh.k >= n || sh.seen != nil && (sh.seen.frozen || sh.seen.shards != n)
}

// dismiss answers the jobs that wait for a shard that is outdated. Takes and settles are placed anew.
func (sh *shard) dismiss(waiting []*job) {
	for _, j := range waiting {
		if j.kind == undo {
			j.tries = maxUndoTries
			sh.judgeUndo(&batch{}, j)
			continue
		}
		j.moved, j.item = true, nil
		if sh.seen != nil {
			j.item = sh.seen
		}
		sh.answer(j, nil)
	}
}

// relayout finds out how many shards the bucket has, after a job met a shard that was outdated or throttled.
func (m *memory) relayout(ctx context.Context, p *placed) error {
	if it := p.j.item; p.sh.k == 0 && it != nil && !it.frozen && it.shards != len(m.all()) {
		m.follow(it.shards)
		return nil
	}
	select {
	case m.laying <- struct{}{}:
		defer func() { <-m.laying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for begun := time.Now(); ; {
		root, err := m.s.readShard(ctx, m.key, 0)
		switch {
		case err != nil:
			return err
		case !root.frozen:
			if it := p.j.item; it != nil && p.sh.k > 0 && p.sh.k < root.shards && it.shards != root.shards {
				if it, err = m.s.readShard(ctx, m.key, p.sh.k); err == nil && it.shards != root.shards {
					_, err = m.s.refill(ctx, m.key, p.sh.k, it, root)
				}
			}
			m.follow(root.shards)
			return err
		case time.Since(begun) < patience:
			err = table.Sleep(ctx, table.Backoff(1))
		default:
			err = m.s.double(ctx, m.key, root)
		}
		if err != nil {
			return err
		}
	}
}

// grow splits the bucket into n shards in the background, unless that is under way.
func (m *memory) grow(n int) {
	if n > m.s.cfg.MaxShards || !m.doubling.TryLock() {
		return
	}
	m.s.background(func() {
		defer m.doubling.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 5*m.s.cfg.WriteTimeout)
		defer cancel()
		_, _ = m.s.Split(ctx, m.key, n)
	})
}

// Split doubles the number of a bucket's shards until there are n, and returns how many there are. This is what a
// process does by itself if it writes to a shard too often. There are never more than Config.MaxShards, and a bucket
// that does not exist is not split. Errors: store.ErrInvalid if n is not a power of two.
func (s *Store) Split(ctx context.Context, b store.Bucket, n int) (int, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	if n < 1 || n&(n-1) != 0 {
		return 0, table.Invalid("%d shards: the number must be a power of two", n)
	}
	n = min(n, s.cfg.MaxShards)
	ctx, cancel := s.calls.Within(ctx)
	defer cancel()
	for {
		root, err := s.readShard(ctx, b, 0)
		if err != nil {
			return 0, err
		}
		if !root.frozen && (!root.exists || root.shards >= n) {
			m := s.recall(b)
			m.follow(root.shards)
			return root.shards, m.look(ctx)
		}
		if err = s.double(ctx, b, root); err != nil {
			return 0, err
		}
	}
}

// double makes the steps that double the number of shards, or those that are left.
func (s *Store) double(ctx context.Context, b store.Bucket, root *item) error {
	n := root.shards
	root, err := s.freeze(ctx, b, 0, n, root)
	if err != nil || !root.frozen || root.shards != n {
		return err
	}
	frozen := make([]*item, n)
	frozen[0] = root
	err = each(1, n, func(k int) (err error) {
		frozen[k], err = s.freeze(ctx, b, k, n, root)
		return err
	})
	if err != nil {
		return err
	}
	if err := each(0, n, func(k int) error { return s.putHalf(ctx, b, k, n, frozen[k]) }); err != nil {
		return err
	}
	if err := each(1, n, func(k int) error { return s.convert(ctx, b, k, n, frozen[k]) }); err != nil {
		return err
	}
	return s.convert(ctx, b, 0, n, root)
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

// freeze freezes shard k of n, and returns it as it then is. A shard that is missing, or has another number, was edited
// by hand or split by an earlier version; it starts anew, with nothing left.
func (s *Store) freeze(ctx context.Context, b store.Bucket, k, n int, root *item) (*item, error) {
	for {
		u := new(update)
		if k == 0 {
			u.op(condExists, attrID)
		} else {
			u.op(condExists, table.AttrPK)
		}
		place{k, n}.assert(u)
		u.op(setTo, attrShards, int64(-n))
		u.op(remove, table.AttrTTL)
		it, err := s.writeShard(ctx, b, k, u)
		if err != nil || k == 0 || it.shards == n && it.frozen || it.shards == 2*n {
			return it, err
		}
		if it, err = s.refill(ctx, b, k, it, root); err != nil || it.shards == root.shards && it.frozen == root.frozen {
			return it, err
		}
	}
}

// refill replaces shard k, which was last seen as it, by one that has nothing left, with the limits of shard 0.
func (s *Store) refill(ctx context.Context, b store.Bucket, k int, it, root *item) (*item, error) {
	u := new(update)
	switch {
	case it == missing:
		u.op(condAbsent, table.AttrPK)
	case it.shardsAttr() == 1:
		u.op(condAbsent, attrShards)
	default:
		u.op(condEqual, attrShards, it.shardsAttr())
	}
	now, pl := s.now(), place{k, root.shards}
	u.op(setTo, attrShards, root.shardsAttr())
	if root.exists {
		s.newShardItem(u, root)
	}
	for i := range root.limits {
		l := &root.limits[i]
		u.op(setTo, prefixLevel+l.name, clock.Add(pl.clock(l.params, now), pl.burst(l.params)))
		u.op(remove, prefixDebited+l.name)
		u.op(remove, prefixReturned+l.name)
	}
	got, err := s.writeShard(ctx, b, k, u)
	return got, err
}

// newShardItem writes what a shard has that is made from another one, other than levels.
func (s *Store) newShardItem(u *update, from *item) {
	u.op(setTo, attrID, int64(s.births.Add(1)&math.MaxInt64))
	u.op(setTo, attrEpoch, int64(from.epoch))
	if from.set != "" {
		u.opText(setTo, attrSet, from.set)
	}
	if from.overrides > 0 {
		u.op(setTo, attrOverrides, int64(from.overrides))
	}
	for i := range from.limits {
		if l := &from.limits[i]; !isOverride(l.name) {
			u.opText(setTo, prefixParams+l.name, formatParams(l.params))
		}
	}
}

// putHalf puts the new half of a frozen shard k of n, shard k+n of 2n, unless it exists.
func (s *Store) putHalf(ctx context.Context, b store.Bucket, k, n int, it *item) error {
	if !it.frozen || it.shards != n {
		return nil // converted already
	}
	u := new(update)
	u.op(condAbsent, table.AttrPK)
	u.op(setTo, attrShards, int64(2*n))
	if it.exists {
		s.newShardItem(u, it)
	}
	for i := range it.limits {
		if l := &it.limits[i]; l.has {
			_, high := halves(l.level)
			u.op(setTo, prefixLevel+l.name, high)
		}
	}
	_, err := s.writeShard(ctx, b, k+n, u)
	return err
}

// convert makes a frozen shard k of n shard k of 2n, which keeps half of what it held.
func (s *Store) convert(ctx context.Context, b store.Bucket, k, n int, it *item) error {
	if !it.frozen || it.shards != n {
		return nil
	}
	u := new(update)
	u.op(condEqual, attrShards, int64(-n))
	u.op(setTo, attrShards, int64(2*n))
	for i := range it.limits {
		if l := &it.limits[i]; l.has {
			low, _ := halves(l.level)
			u.op(setTo, prefixLevel+l.name, low)
		}
	}
	_, err := s.writeShard(ctx, b, k, u)
	return err
}

// readShard reads one shard.
func (s *Store) readShard(ctx context.Context, b store.Bucket, k int) (*item, error) {
	items, key := make(map[table.Key]*item), table.BucketKey(b, k)
	err := s.readItems(ctx, []table.Key{key}, items)
	if err != nil {
		return missing, err
	}
	return items[key], nil
}

// writeShard makes a step's write, and repeats it while that may help. It returns the shard as it then is.
func (s *Store) writeShard(ctx context.Context, b store.Bucket, k int, u *update) (*item, error) {
	key := table.BucketKey(b, k)
	u.op(setTo, attrAt, s.now())
	u.op(addTo, attrWrites, 1)
	in := u.input(&s.cfg.Table, key.Item(), s.expressions.of(u))
	var attrs map[string]types.AttributeValue
	err := s.calls.Attempt(ctx, func(ctx context.Context) error {
		out, err := s.cfg.Client.UpdateItem(ctx, in, table.Once...)
		if err == nil {
			attrs = out.Attributes
		}
		return err
	})
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		attrs = failed.Item
	} else if err != nil {
		return missing, s.calls.Trouble("split", key.String(), err)
	}
	it, perr := parseItem(attrs)
	if perr != nil {
		return missing, s.calls.Damaged(key, perr)
	}
	return it, nil
}

// meter measures how often all processes together write an item, from its count of writes in two of our own answers.
type meter struct {
	at     int64 // when the last reading was made, with which the next is compared
	writes int64
	hot    time.Duration // how long it has been written too often
	denied int           // number of writes in a row that were throttled for their key
}

const (
	hotRate = 800 // writes a second: 80 % of what one item can be
	hotFor  = 2 * time.Second
)

func (m *meter) read(writes, now int64) {
	elapsed := now - m.at
	switch {
	case m.at == 0 || writes < m.writes || elapsed < 0:
		m.hot = 0
	case elapsed < int64(time.Second):
		return
	case float64(writes-m.writes)/(float64(elapsed)/float64(time.Second)) > hotRate:
		m.hot += time.Duration(elapsed)
	default:
		m.hot = 0
	}
	m.at, m.writes = now, writes
}

// tooMuch reports whether the item is written too often, or refuses writes for that reason. It reports this once.
func (m *meter) tooMuch() bool {
	if m.hot < hotFor && m.denied < 3 {
		return false
	}
	m.hot, m.denied = 0, 0
	return true
}
