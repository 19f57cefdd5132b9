package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/usage"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// StreamRecord is one record of the table's stream.
type StreamRecord struct {
	Keys     map[string]types.AttributeValue
	Old, New map[string]types.AttributeValue // the item before and after; nil: none
	Created  time.Time                       // when the change was made, by the stream; the zero time if unknown
}

// Ledger books usage from the records of the table's stream. It is safe for concurrent use. Any number of ledgers may
// book the same records at the same time, in any order: each record is counted once.
type Ledger struct {
	s         *Store
	retention store.Retention
	part      int // of the sums that many buckets share; ledgers on different parts do not contend
	parents   parents
	mu        sync.Mutex
	meters    map[table.Key]*shardMeter
	since     int64 // the minute from which usage is kept; 0: not known yet
}

// Ledger returns a ledger whose windows live as long as retention says.
func (s *Store) Ledger(retention store.Retention) *Ledger {
	return &Ledger{
		s: s, retention: retention, part: s.dice(table.UsageParts), parents: parents{m: make(map[store.Key]parent)},
	}
}

// Booked is the result of [Ledger.Book].
type Booked struct {
	Failed map[int]error // the records that were not counted, by index; all others are counted, or do not concern usage
	Hot    []Hot         // shards that have become hot; each is reported once every time it does
}

// Hot is a shard of a bucket that is written too often: at more than four fifths of the rate that one item accepts, for
// at least two seconds.
type Hot struct {
	Bucket store.Bucket
	Shard  int
	Shards int // number of shards the bucket is split into, at the depth of this shard
}

// source is what a batch of records says about one shard of a bucket, or about one process.
type source struct {
	key     table.Key
	bucket  store.Bucket
	sights  []usage.Sight
	late    int64 // see [usage.Source.See]
	keep    time.Duration
	records []int // their indexes in the batch
	shard   int
	first   *item // the first and last image seen
	seen    *item
}

const (
	// keepShard and keepProcess are how long an account outlives its last write. An item that was not written for
	// longer than resting starts from its current counts, all of which are booked already.
	keepShard, keepProcess = 100 * 24 * time.Hour, 3 * 24 * time.Hour
	resting                = 90 * 24 * 60 // minutes
	lateProcess            = 60           // minutes
	// ahead is how far a time may lie after the creation of its record. A clock that is further ahead is not believed.
	ahead = 5 * time.Minute
)

// Book counts what records say. All records of one bucket are counted together, however many there are. Records of
// other items are ignored. Book iterates over the records once, and keeps none. An error means that nothing could be
// counted.
func (l *Ledger) Book(ctx context.Context, records iter.Seq[StreamRecord]) (Booked, error) {
	since, err := l.metered(ctx)
	if err != nil {
		return Booked{}, err
	}
	f := fold{since: since, sources: make(map[table.Key]*source), failed: make(map[int]error)}
	i := 0
	for r := range records {
		if err := f.add(i, &r); err != nil {
			f.failed[i] = err
		}
		i++
	}
	for sources := f.order; len(sources) > 0; {
		n := min(len(sources), table.MaxBatch)
		l.book(ctx, sources[:n], f.failed)
		sources = sources[n:]
	}
	return Booked{f.failed, l.hot(f.order)}, nil
}

// fold is a batch of records, grouped by source.
type fold struct {
	since   int64
	sources map[table.Key]*source
	order   []*source
	failed  map[int]error
}

func (f *fold) add(i int, r *StreamRecord) error {
	if len(r.Keys) == 0 {
		return nil
	}
	key, err := table.KeyOf(r.Keys)
	if err != nil {
		return err
	}
	switch key.SK {
	case "#STATE":
		return f.shard(i, key, r)
	case table.SortTally:
		return f.tally(i, key, r)
	}
	return nil
}

// ErrPoison reports a record of the stream that can never be read. Usually, an item was edited by hand.
var ErrPoison = errors.New("the record is damaged")

func poison(key table.Key, err error) error {
	return &store.Error{
		Op: "stream", Key: key.String(), Err: fmt.Errorf("%w: %w", ErrPoison, err),
		Hint: "correct the item: its next record counts what this one would have",
	}
}

// shard adds what a record says about a bucket's shard.
func (f *fold) shard(i int, key table.Key, r *StreamRecord) error {
	b, k, ok := table.ParseBucketKey(key.PK)
	if !ok {
		return poison(key, errors.New("is not the key of a bucket"))
	}
	images := [2]*item{}
	for n, attrs := range []map[string]types.AttributeValue{r.Old, r.New} {
		it, err := parseItem(attrs)
		if err != nil {
			return poison(key, err)
		}
		images[n] = it
	}
	src := f.source(i, table.AccountKey(b, strconv.Itoa(k)), b)
	src.late, src.keep, src.shard = usage.Late, keepShard, k
	was, is := images[0], images[1]
	if was.exists && (src.seen == nil || src.seen.id != was.id || src.seen.writes != was.writes) {
		s := sightOf(was, r.Created)
		s.Base = s.Minute <= f.since || madeAt(is, r.Created)-s.Minute > resting
		src.sights = usage.MergeSight(src.sights, s)
	}
	if is.exists {
		src.sights = usage.MergeSight(src.sights, sightOf(is, r.Created))
		src.seen = is
		if src.first == nil {
			src.first = is
		}
	}
	return nil
}

func minuteOf(it *item, created time.Time) int64 {
	return earliest(usage.MinuteOf(clock.Time(it.at)), created)
}

// earliest returns a minute that another clock showed, or the stream's own minute if the other is far later.
func earliest(minute int64, created time.Time) int64 {
	if !created.IsZero() && minute > usage.MinuteOf(created.Add(ahead)) {
		return usage.MinuteOf(created)
	}
	return minute
}

// madeAt returns the minute of the change that produced an item or removed it. It is 0 if unknown.
func madeAt(is *item, created time.Time) int64 {
	switch {
	case is.exists:
		return minuteOf(is, created)
	case created.IsZero():
		return 0
	}
	return usage.MinuteOf(created)
}

func sightOf(it *item, created time.Time) usage.Sight {
	s := usage.Sight{ID: it.id, Minute: minuteOf(it, created), Counts: make([]usage.Count, 0, 2+2*len(it.limits))}
	s.Counts = takesOf(it, s.Counts)
	for i := range it.limits {
		c := &it.limits[i]
		if c.debited > 0 {
			s.Counts = append(s.Counts, usage.Count{Limit: c.name, Figure: usage.Debited, Value: c.debited})
		}
		if c.returned > 0 {
			s.Counts = append(s.Counts, usage.Count{Limit: c.name, Figure: usage.Returned, Value: c.returned})
		}
	}
	return s
}

// tally adds what a process has counted.
func (f *fold) tally(i int, key table.Key, r *StreamRecord) error {
	if r.New == nil {
		return nil
	}
	ns, process, ok := table.ParseTallyKey(key.PK)
	if !ok {
		return poison(key, errors.New("is not the key of a process's counts"))
	}
	raw, err := table.Field(r.New, table.AttrValue, table.Binary)
	if err != nil {
		return poison(key, err)
	}
	told, err := usage.DecodeTold(raw)
	if err != nil {
		return poison(key, err)
	}
	for n := range told { // before any of it is added: one impossible key would fail the calls for all
		b := store.Bucket{Namespace: ns, Entity: told[n].Bucket.Entity, Resource: told[n].Bucket.Resource}
		if err := countable(b, process); err != nil {
			return poison(key, err)
		}
	}
	for n := range told {
		b := told[n].Bucket
		b.Namespace = ns
		src := f.source(i, table.AccountKey(b, "p"+process), b)
		src.late, src.keep = lateProcess, keepProcess
		src.sights = usage.MergeSight(
			src.sights,
			usage.Sight{ID: told[n].ID, Minute: earliest(told[n].Minute, r.Created), Counts: told[n].Counts},
		)
	}
	return nil
}

// countable returns the reason why nothing can be booked for a bucket that a process named, or nil.
func countable(b store.Bucket, process string) error {
	switch {
	case !utf8.ValidString(b.Entity + b.Resource):
		return fmt.Errorf("%q on %q is not valid UTF-8", b.Entity, b.Resource)
	case len(table.AccountKey(b, "p"+process).PK) > table.MaxHash,
		len(table.UsageSort(table.StartLayouts[store.Hourly], b.Entity, b.Resource)) > table.MaxRange:
		return fmt.Errorf("the name %.40q on %.40q is too long", b.Entity, b.Resource)
	}
	return nil
}

func (f *fold) source(i int, key table.Key, b store.Bucket) *source {
	src := f.sources[key]
	if src == nil {
		src = &source{key: key, bucket: b}
		f.sources[key] = src
		f.order = append(f.order, src)
	}
	if n := len(src.records); n == 0 || src.records[n-1] != i {
		src.records = append(src.records, i)
	}
	return src
}

// maxMeters is the number of shards whose write rate is watched.
const maxMeters = 10_000

// hot updates the meters of shards, and returns the shards that are written too often.
func (l *Ledger) hot(sources []*source) []Hot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meters == nil || len(l.meters) > maxMeters {
		l.meters = make(map[table.Key]*shardMeter)
	}
	var hot []Hot
	for _, src := range sources {
		if src.seen == nil {
			continue // a process
		}
		m := l.meters[src.key]
		if m == nil || m.id != src.seen.id || m.shards != src.seen.shards {
			m = &shardMeter{id: src.seen.id, shards: src.seen.shards}
			l.meters[src.key] = m
			if src.first.id == m.id && src.first.shards == m.shards {
				m.read(src.first.writes, src.first.at)
			}
		}
		m.read(src.seen.writes, src.seen.at)
		if m.tooMuch() {
			hot = append(hot, Hot{src.bucket, src.shard, m.shards})
		}
	}
	return hot
}

// shardMeter is the meter of a shard while it is split to one depth.
type shardMeter struct {
	meter

	id     uint64
	shards int
}

// metered returns the minute from which usage is kept: the minute in which the first ledger started.
func (l *Ledger) metered(ctx context.Context) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since != 0 {
		return l.since, nil
	}
	ctx, cancel := l.s.calls.Within(ctx)
	defer cancel()
	it := table.MeteredKey().Item()
	it[table.AttrNumber] = table.Num(usage.MinuteOf(l.s.clock()))
	err := l.s.calls.Attempt(ctx, func(ctx context.Context) error {
		_, err := l.s.cfg.Client.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &l.s.cfg.Table, Item: it,
			ConditionExpression:                 aws.String("attribute_not_exists(#p)"),
			ExpressionAttributeNames:            map[string]string{"#p": table.AttrPK},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}, table.Once...)
		return err
	})
	var there *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &there):
		it = there.Item
	case err != nil:
		return 0, l.s.calls.Trouble("usage", table.MeteredKey().String(), err)
	}
	n, err := table.Field(it, table.AttrNumber, table.Number)
	if err != nil {
		return 0, l.s.calls.Damaged(table.MeteredKey(), err)
	}
	l.since = n
	return n, nil
}

// parents caches the parents of entities.
type parents struct {
	mu sync.Mutex
	m  map[store.Key]parent
}

type parent struct {
	id    string
	until time.Time
}

const (
	parentFor  = time.Minute
	maxParents = 50_000
	maxChain   = 8
)

// above returns the chain of parents of each entity. It reads the parents of all entities together, generation by
// generation.
func (l *Ledger) above(ctx context.Context, buckets []store.Bucket) (map[store.Key][]string, error) {
	chains := make(map[store.Key][]string, len(buckets))
	next := make(map[store.Key][]store.Key) // by entity whose parent is looked up: whose chains it belongs to
	for _, b := range buckets {
		k := store.Key{Namespace: b.Namespace, Kind: store.KindEntity, ID: b.Entity}
		if _, ok := chains[k]; !ok {
			chains[k] = nil
			next[k] = []store.Key{k}
		}
	}
	for range maxChain {
		if err := l.learn(ctx, next); err != nil {
			return nil, err
		}
		after := make(map[store.Key][]store.Key)
		l.parents.mu.Lock()
		for k, who := range next {
			if p := l.parents.m[k].id; p != "" {
				up := store.Key{Namespace: k.Namespace, Kind: store.KindEntity, ID: p}
				for _, w := range who {
					if !slices.Contains(chains[w], p) {
						chains[w] = append(chains[w], p)
						after[up] = append(after[up], w)
					}
				}
			}
		}
		l.parents.mu.Unlock()
		if next = after; len(next) == 0 {
			break
		}
	}
	return chains, nil
}

// learn reads the parents of entities that are not cached.
func (l *Ledger) learn(ctx context.Context, of map[store.Key][]store.Key) error {
	now := l.s.clock()
	var keys []table.Key
	var asked []store.Key
	l.parents.mu.Lock()
	if len(l.parents.m) > maxParents {
		clear(l.parents.m)
	}
	for k := range of {
		if p, ok := l.parents.m[k]; !ok || now.After(p.until) {
			keys, asked = append(keys, table.RecordKey(k)), append(asked, k)
		}
	}
	l.parents.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	found, err := l.s.calls.BatchGet(ctx, keys)
	if err != nil {
		return fmt.Errorf("read parents: %w", err)
	}
	l.parents.mu.Lock()
	defer l.parents.mu.Unlock()
	for i, k := range asked {
		p := parent{until: now.Add(parentFor)}
		if v, ok := found[keys[i]][table.AttrParents]; ok {
			p.id, _ = table.Text(v)
		}
		l.parents.m[k] = p
	}
	return nil
}
