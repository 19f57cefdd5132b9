package dynamodb

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/booking"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
	"github.com/weirlimits/weir/store/internal/cursor"
)

// bucket is what the process remembers of a bucket.
type bucket struct {
	s    *Store
	key  store.Bucket
	long error // its key is too long for DynamoDB

	views viewCache

	rootTTL atomic.Int64 // that shard 0 of the split bucket was seen to have

	mu     sync.Mutex // held while the list of shards is replaced
	shards atomic.Pointer[[]*shard]

	laying   chan struct{} // of capacity one: held by whoever reads how many shards there are
	doubling sync.Mutex    // held while the process doubles them on its own account
}

// bucketCache remembers the buckets that were used recently.
type bucketCache struct {
	mu sync.Mutex
	m  map[store.Bucket]*bucket
}

// bucket returns what is remembered of a bucket.
func (s *Store) bucket(key store.Bucket) *bucket {
	s.buckets.mu.Lock()
	defer s.buckets.mu.Unlock()
	b := s.buckets.m[key]
	if b == nil {
		if len(s.buckets.m) >= s.cfg.MaxBuckets {
			s.buckets.drop(s.cfg.MaxBuckets / 16)
		}
		b = &bucket{s: s, key: key, long: table.CheckBucket(key), laying: make(chan struct{}, 1)}
		b.follow(1)
		s.buckets.m[key] = b
	}
	return b
}

// drop removes about n buckets that have nothing under way. A caller may still hold a bucket that was dropped while
// another one is made. The two then work side by side like two processes.
func (c *bucketCache) drop(n int) {
	for k, b := range c.m {
		if n--; n < 0 {
			return
		}
		if b.idle() {
			delete(c.m, k)
		}
	}
}

// idle reports whether nothing is under way on the bucket, and nothing is held for it.
func (b *bucket) idle() bool {
	for _, sh := range b.all() {
		sh.queue.Lock()
		idle := sh.queue.Idle() && sh.surplus.proof == nil
		sh.queue.Unlock()
		if !idle {
			return false
		}
	}
	return true
}

// all returns the shards that the bucket is known to have.
func (b *bucket) all() []*shard { return *b.shards.Load() }

func (b *bucket) root() *shard { return b.all()[0] }

// maxViews is how many views a bucket remembers: usually those of a take and of a few adjustments.
const maxViews = 8

// viewCache are the views of recent debits.
type viewCache struct{ views atomic.Pointer[[]*plan.View] }

// of returns the view of some charges.
func (c *viewCache) of(charges []store.Charge) (*plan.View, error) {
	var old []*plan.View
	if p := c.views.Load(); p != nil {
		old = *p
	}
	for _, v := range old {
		if v.Of(charges) {
			return v, nil
		}
	}
	v, err := plan.NewView(charges)
	if err != nil {
		return nil, err
	}
	views := append([]*plan.View{v}, old[:min(len(old), maxViews-1)]...)
	c.views.Store(&views) // of two concurrent calls, one may lose its view, which is then made again
	return v, nil
}

func (s *Store) readItems(ctx context.Context, keys []table.Key, items map[table.Key]*plan.Item) error {
	got, err := s.calls.BatchGet(ctx, keys)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if items[k], err = table.ParseItem(got[k]); err != nil {
			return s.calls.Damaged(k, err)
		}
	}
	return nil
}

// input returns an update as the SDK takes it. The answer shows the whole item, whether it is applied or not.
func (s *Store) input(key map[string]types.AttributeValue, u *expr.Update) *dynamodb.UpdateItemInput {
	x := s.expressions.Of(u)
	values := make(map[string]types.AttributeValue, u.Len())
	numbers := make([]types.AttributeValueMemberN, u.Len())
	u.Each(func(name string, v expr.Value) {
		if v.Type == expr.Text {
			values[name] = table.Str(v.Text)
			return
		}
		n := &numbers[len(values)]
		n.Value, values[name] = v.Text, n
	})
	return &dynamodb.UpdateItemInput{
		TableName: &s.cfg.Table, Key: key, ConditionExpression: &x.Condition, UpdateExpression: &x.Change,
		ExpressionAttributeNames: x.Names, ExpressionAttributeValues: values,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

// Peek implements [store.Store]. It makes one read for all buckets, and another for the other shards of split buckets.
func (s *Store) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	if err := s.calls.Ready(ctx); err != nil {
		return store.Snapshot{}, err
	}
	snap, _, err := s.peek(ctx, buckets...)
	return snap, err
}

func (s *Store) peek(
	ctx context.Context, buckets ...store.Bucket,
) (snap store.Snapshot, items map[table.Key]*plan.Item, err error) {
	items = make(map[table.Key]*plan.Item)
	depth := make([]int, len(buckets))
	var keys []table.Key
	for i, b := range buckets {
		depth[i] = 1
		keys = append(keys, table.BucketKey(b, 0))
	}
	for len(keys) > 0 {
		if err := s.readItems(ctx, keys, items); err != nil {
			return snap, nil, err
		}
		keys = nil
		for i, b := range buckets {
			root := items[table.BucketKey(b, 0)]
			n := root.Shards
			if root.Frozen {
				n *= 2 // some of the new halves may be used already
			}
			for ; depth[i] < n; depth[i]++ {
				keys = append(keys, table.BucketKey(b, depth[i]))
			}
		}
	}
	now := s.now()
	for _, it := range items {
		now = max(now, it.At)
	}
	snap = store.Snapshot{At: clock.Time(now), States: make([]store.State, len(buckets))}
	for i, b := range buckets {
		shards := make([]*plan.Item, depth[i])
		for k := range shards {
			shards[k] = items[table.BucketKey(b, k)]
		}
		snap.States[i] = plan.Combine(b, shards, now)
	}
	return snap, items, nil
}

// Buckets implements [store.Store]. Buckets are found through an index, which usually follows the table within moments:
// a bucket that was created just before the call may not be listed yet.
func (s *Store) Buckets(ctx context.Context, q store.BucketQuery) (store.BucketPage, error) {
	if err := s.calls.Ready(ctx); err != nil {
		return store.BucketPage{}, err
	}
	if q.Namespace == "" {
		return store.BucketPage{}, table.Invalid("a list of buckets without a namespace")
	}
	pages := cursor.OfBuckets(&q)
	lo, hi := "bucket\x00", "bucket\x01"
	if q.Entity != "" {
		lo = table.SortKey("bucket", q.Entity, "")
		hi = lo[:len(lo)-1] + "\x01"
	}
	after := ""
	if q.After != "" {
		at, err := pages.Parse(q.After)
		after = table.SortKey("bucket", at.ID, at.Sub)
		if err != nil || len(after) > table.MaxRange {
			return store.BucketPage{}, store.ErrBadCursor
		}
	}
	ctx, cancel := s.calls.Within(ctx)
	defer cancel()
	limit := store.PageSize(q.Max)
	page := store.BucketPage{At: clock.Time(s.now())}
	if q.Entity != "" && q.Resource != "" { // at most one, read without the index
		if after == "" {
			err := s.existing(ctx, &page, store.Bucket{Namespace: q.Namespace, Entity: q.Entity, Resource: q.Resource})
			return page, err
		}
		return page, nil
	}
	w := s.calls.Walk(table.AllSpans(q.Namespace, lo, hi), false, after)
	for len(page.States) <= limit { // one more, to see whether there is a next page
		entries, err := w.Next(ctx, max(limit+1-len(page.States), 25))
		if err != nil {
			return store.BucketPage{}, err
		}
		if len(entries) == 0 {
			break
		}
		if err := s.append(ctx, &page, entries, q.Resource); err != nil {
			return store.BucketPage{}, err
		}
	}
	if len(page.States) > limit {
		page.States = page.States[:limit]
		last := page.States[limit-1].Bucket
		page.Next = pages.Make(cursor.Position{ID: last.Entity, Sub: last.Resource})
	}
	return page, nil
}

// append adds the buckets of entries to a page, except those of other resources than the given one, if any.
func (s *Store) append(ctx context.Context, page *store.BucketPage, entries []table.Entry, resource string) error {
	var keys []store.Bucket
	for _, e := range entries {
		b, _, ok := table.ParseBucketKey(e.Key.PK)
		if !ok {
			return s.calls.Damaged(e.Key, table.ErrMisplaced)
		}
		if resource == "" || b.Resource == resource {
			keys = append(keys, b)
		}
	}
	return s.existing(ctx, page, keys...)
}

// existing adds those buckets to a page that exist.
func (s *Store) existing(ctx context.Context, page *store.BucketPage, keys ...store.Bucket) error {
	snap, err := s.Peek(ctx, keys...)
	for _, st := range snap.States {
		if st.ID != 0 {
			page.States = append(page.States, st)
		}
	}
	if snap.At.After(page.At) {
		page.At = snap.At
	}
	return err
}

// atOnce is how many buckets are written at once.
const atOnce = 32

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, buckets ...store.Bucket) error {
	if err := s.calls.Ready(ctx); err != nil {
		return err
	}
	for some := range slices.Chunk(buckets, atOnce) {
		if err := each(0, len(some), func(i int) error { return s.bucket(some[i]).forget(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// forget removes all of the bucket's items: shard 0 first, whose answer shows how many others there are.
func (b *bucket) forget(ctx context.Context) error {
	for from, to := 0, 1; from < to; from, to = to, len(b.all()) {
		var parts []part
		for _, sh := range b.all()[from:to] {
			x := sh.waiter(plan.Forget, nil, 0)
			sh.queue.Lock()
			sh.giveUp()
			sh.add(x)
			sh.queue.Unlock()
			parts = append(parts, part{sh: sh, x: x})
		}
		if err := await(ctx, parts); err != nil {
			return err
		}
		for i := range parts {
			if p := &parts[i]; p.moved() {
				if err := b.relayout(ctx, p.sh, p.x.answer.Item); err != nil {
					return err
				}
				to = 0 // again, from the beginning
			}
		}
	}
	return nil
}

// Split doubles the number of a bucket's shards until there are n, and returns how many there are. This is what a
// process does by itself if it writes to a shard too often. There are never more than Config.MaxShards, and a bucket
// that does not exist, or of which slots are or were held, is not split.
//
// Errors: store.ErrInvalid if n is not a power of two.
func (s *Store) Split(ctx context.Context, b store.Bucket, n int) (int, error) {
	if err := s.calls.Ready(ctx); err != nil {
		return 0, err
	}
	if n < 1 || n&(n-1) != 0 {
		return 0, table.Invalid("%d shards: the number must be a power of two", n)
	}
	n = min(n, s.cfg.MaxShards)
	ctx, cancel := s.calls.Within(ctx)
	defer cancel()
	return s.bucket(b).split(ctx, n)
}

// Measures implements [store.Measured].
func (s *Store) Measures() []store.Measure {
	s.buckets.mu.Lock()
	buckets, shards := len(s.buckets.m), 0
	for b := range maps.Values(s.buckets.m) {
		shards += len(b.all())
	}
	s.buckets.mu.Unlock()
	total := func(name, help string, n *atomic.Uint64) store.Measure {
		return store.Measure{Name: name, Help: help, Total: true, Value: float64(n.Load())}
	}
	return []store.Measure{
		{
			Name:  "clock_skew_seconds",
			Help:  "How far the time by which weir decides is ahead of this machine's clock.",
			Value: s.Skew().Seconds(),
		},
		{Name: "remembered_buckets", Help: "Buckets whose state the process remembers.", Value: float64(buckets)},
		{Name: "remembered_items", Help: "Items that the remembered buckets are split into.", Value: float64(shards)},
		total("writes_applied", "Writes to buckets whose condition held.", &s.measures.applied),
		total(
			"writes_denied",
			"Writes to buckets whose condition did not hold: refusals, and guesses of the level that were wrong.",
			&s.measures.denied,
		),
		total("writes_failed", "Writes to buckets without an answer.", &s.measures.failed),
		total(
			"slots_corrected",
			"Limits of slots whose end a clock that was far ahead had set, and a later write has corrected.",
			&s.measures.corrected,
		),
		total("writes_shared", "Callers whose debits and returns the writes carried.", &s.measures.aboard),
	}
}

// measures count the writes to buckets.
type measures struct{ applied, denied, failed, aboard, corrected atomic.Uint64 }

// wrote counts a write and the callers that share it.
func (m *measures) wrote(callers int, applied bool, err error) {
	m.aboard.Add(uint64(callers))
	switch {
	case err != nil:
		m.failed.Add(1)
	case applied:
		m.applied.Add(1)
	default:
		m.denied.Add(1)
	}
}

// countOwed counts the takes that no write has counted. The queues must be closed.
func (s *Store) countOwed() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.CallTimeout)
	defer cancel()
	s.buckets.mu.Lock()
	defer s.buckets.mu.Unlock()
	var owing []*shard
	for b := range maps.Values(s.buckets.m) {
		for _, sh := range b.all() {
			sh.queue.Lock()
			owes := !sh.state.Owed.None()
			sh.queue.Unlock()
			if owes {
				owing = append(owing, sh)
			}
		}
	}
	for some := range slices.Chunk(owing, atOnce) {
		_ = each(0, len(some), func(i int) error {
			sh := some[i]
			sh.queue.Lock()
			in := s.input(sh.pk.Item(), sh.state.Owed.Write(sh.tick()))
			sh.state.Owed = plan.Counts{}
			sh.queue.Unlock()
			_, err := s.cfg.Client.UpdateItem(ctx, in, table.Once...)
			return err
		})
	}
}

// returnSurpluses returns what is left of the surpluses of all shards.
func (s *Store) returnSurpluses() {
	if s.cfg.Prefetch.Share == 0 {
		return
	}
	s.buckets.mu.Lock()
	defer s.buckets.mu.Unlock()
	for b := range maps.Values(s.buckets.m) {
		for _, sh := range b.all() {
			sh.queue.Lock()
			sh.giveUp()
			sh.queue.Unlock()
		}
	}
}

// Ledger returns a ledger of what m specifies.
func (s *Store) Ledger(m Metering) *Ledger {
	return booking.New(s.calls, m, s.dice(table.UsageParts))
}
