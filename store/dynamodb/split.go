package dynamodb

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// meter measures how often all processes together write an item, from its count of writes in two of our own answers.
type meter struct {
	at     int64 // when the last reading was made, with which the next is compared
	writes int64
	hot    time.Duration // how long it has been written too often
	denied int           // number of writes in a row that were throttled for their key
	choked bool          // denied was so high that it counts as hot, whatever was written
}

const (
	hotRate = 800 // writes a second: 80 % of what one item can be
	hotFor  = 2 * time.Second
)

func (m *meter) read(writes, now int64) {
	m.denied = 0
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

// throttled tells the meter about a write that failed. It counts if it was throttled for its key.
func (m *meter) throttled(err error) {
	if !forKey(err) {
		return
	}
	if m.denied++; m.denied >= 3 {
		m.choked = true
	}
}

// tooMuch reports whether the item is written too often. It says so once.
func (m *meter) tooMuch() bool {
	if m.hot < hotFor && !m.choked {
		return false
	}
	m.hot, m.choked = 0, false
	return true
}

// forKey reports whether a call was throttled because of its key, not of the table.
func forKey(err error) bool {
	var reasons []types.ThrottlingReason
	var provisioned *types.ProvisionedThroughputExceededException
	var throttling *types.ThrottlingException
	switch {
	case errors.As(err, &provisioned):
		reasons = provisioned.ThrottlingReasons
	case errors.As(err, &throttling):
		reasons = throttling.ThrottlingReasons
	}
	for _, r := range reasons {
		if strings.Contains(aws.ToString(r.Reason), "KeyRange") {
			return true
		}
	}
	return false
}

// watch splits the bucket if the shard is written too often. Shard 0 goes first, because it decides how many shards there
// are. The lane must be locked.
func (sh *shard) watch(b *batch) {
	if b.upkeep != nil || !sh.meter.tooMuch() {
		return
	}
	n := sh.place().n
	if n >= sh.s.cfg.MaxShards {
		return
	}
	if sh.k == 0 {
		sh.tend(&split{to: 2 * n})
		return
	}
	if root := sh.m.root(); n < len(sh.m.all()) {
		sh.tend(&split{to: 2 * n})
	} else {
		root.lane.Lock() // in this order only: shard 0 locks no other
		root.tend(&split{to: 2 * n})
		root.lane.Unlock()
	}
}

// tend makes an upkeep the next write. The lane must be locked.
func (sh *shard) tend(u upkeep) *job {
	j := &job{kind: tend, upkeep: u, expires: time.Now().Add(sh.s.cfg.WriteTimeout)}
	j.since = sh.sent
	sh.lane.AddFirst(j)
	return j
}

// split divides shard k of n into shards k and k + n of 2n. Half of what is outstanding goes to the new shard. Each half
// must lie within its shard's burst, so that neither shard has room while the other owes. Others may debit and return
// meanwhile, so levels are asserted as ranges and changed by adding.
type split struct {
	to    int
	tries int
	from  *item
	child map[string]types.AttributeValue
}

func (s *split) write(sh *shard, b *batch, u *update) {
	it := b.seen
	parent, child := b.place.split()
	s.from = it
	s.child = table.BucketKey(sh.m.key, child.k).Item()
	s.child[attrID] = table.Num(sh.s.births.Add(1) & math.MaxInt64)
	s.child[attrShards] = table.Num(child.n)
	s.child[attrAt] = table.Num(b.now)
	s.child[attrWrites] = table.Num(1)
	s.child[attrEpoch] = table.Num(it.epoch)
	if it.overrides > 0 {
		s.child[attrOverrides] = table.Num(it.overrides)
	}

	b.asItWas(u)
	same := func(attr string, n int64) {
		if n == 0 {
			u.op(condAbsent, attr)
		} else {
			u.op(condEqual, attr, n)
		}
	}
	same(attrOverrides, int64(it.overrides))
	same(attrExtras, it.extras)
	if it.set != "" {
		s.child[attrSet] = table.Str(it.set)
	}
	for i := range it.limits {
		l := &it.limits[i]
		if _, _, override := parseLimitName(l.name); !override {
			s.child[prefixParams+l.name] = table.Str(formatParams(l.params))
		}
		if !l.has {
			continue
		}
		was, to, over := b.place.clock(l.params, b.now), parent.clock(l.params, b.now), child.clock(l.params, b.now)
		level, half := prefixLevel+l.name, int64(0)
		if l.level < was {
			u.op(condBelow, level, was)
			u.op(setTo, level, to)
		} else {
			half = min((l.level-was+1)/2, child.burst(l.params)) // the child's burst is the larger one, if they differ
			u.op(condBetween, level, was+half, clock.Add(was+half, parent.burst(l.params)))
			u.op(addTo, level, to-was-half)
		}
		s.child[prefixLevel+l.name] = table.Num(over + half)
	}
	u.op(setTo, attrShards, int64(2*b.place.n))
	u.op(remove, table.AttrTTL)
}

// due reports whether the item must still be split, and may be. It may not while it owes more than its halves can hold.
func (s *split) due(sh *shard, now int64) bool {
	it, pl := sh.seen, sh.place()
	if it == nil || !it.exists || pl.n >= s.to || s.tries > 10 {
		return false
	}
	for i := range it.limits {
		if l := &it.limits[i]; l.has && clock.Outstanding(l.level, pl.clock(l.params, now)) > pl.burst(l.params) {
			return false
		}
	}
	return true
}

// after puts the child's item, unless it exists. If that fails, or if the process ends before, the shard is an orphan,
// and what was moved to it is lost.
func (s *split) after(sh *shard, b *batch) {
	ctx, cancel := context.WithTimeout(context.Background(), sh.s.cfg.CallTimeout)
	defer cancel()
	err := sh.s.calls.Attempt(ctx, func(ctx context.Context) error {
		_, err := sh.s.cfg.Client.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &sh.s.cfg.Table, Item: s.child,
			ConditionExpression: aws.String("attribute_not_exists(#k)"), ExpressionAttributeNames: map[string]string{"#k": table.AttrPK},
		}, table.Once...)
		return err
	})
	if err != nil {
		return
	}
	_, to := b.place.split()
	sh.m.grow(to.n)
	child := sh.m.all()[to.k]
	child.lane.Lock()
	defer child.lane.Unlock()
	if child.seen == nil {
		child.seen, _ = parseItem(s.child) // as we wrote it
	}
}

func (s *split) landed(sh *shard, _ *batch, _ *item) {
	sh.giveUp()
	sh.meter = meter{}
}

func (s *split) again(_ *shard, b *batch) []*job {
	s.tries++
	return b.jobs
}

// SplitShard splits shard k of a bucket in two, if it is still split into n and may be split deeper. This is what a
// process does by itself if it writes to a shard too often. Shard 0 goes first, because it decides how many shards there
// may be. SplitShard reports whether a shard was split.
func (s *Store) SplitShard(ctx context.Context, b store.Bucket, k, n int) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	if n < 1 || n >= s.cfg.MaxShards || k < 0 || k >= n {
		return false, nil
	}
	m := s.recall(b, nil)
	keys := []table.Key{table.BucketKey(b, 0), table.BucketKey(b, k)}
	items := make(map[table.Key]*item)
	if err := s.readItems(ctx, keys, items); err != nil {
		return false, err
	}
	root, it := items[keys[0]], items[keys[1]]
	if !it.exists || it.shards != n || k >= root.shards {
		return false, nil
	}
	m.grow(root.shards)
	if root.shards < 2*n {
		k, it = 0, root
	}
	sh := m.all()[k]
	sh.lane.Lock()
	if sh.seen == nil || sh.seen.id != it.id || sh.seen.writes < it.writes {
		sh.seen = it
	}
	p := placed{sh: sh, j: sh.tend(&split{to: 2 * it.shards})}
	sh.lane.Unlock()
	if err := p.await(ctx); err != nil {
		return false, err
	}
	sh.lane.Lock()
	defer sh.lane.Unlock()
	return sh.seen.shards > it.shards, nil
}
