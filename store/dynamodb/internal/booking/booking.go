// Package booking books usage from the records of a table's stream.
package booking

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

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/batch/hot"
	"github.com/weirlimits/weir/internal/batch/limitname"
	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// StreamRecord is one record of the table's stream.
type StreamRecord struct {
	Keys     map[string]types.AttributeValue
	Old, New map[string]types.AttributeValue // the item before and after; nil: none
	Created  time.Time                       // when the change was made, by the stream; the zero time if unknown
}

// Concerns reports whether an item with a range key may affect usage. Records of other items need not be booked.
func Concerns(sortKey types.AttributeValue) bool {
	sk, err := table.Text(sortKey)
	return err == nil && (sk == sortState || sk == table.SortTally)
}

// sortState is the range key of a bucket's shard.
const sortState = "#STATE"

// Ledger books usage from the records of the table's stream. It is safe for concurrent use. Any number of ledgers may
// book the same records at the same time, in any order: each record is counted once.
type Ledger struct {
	calls  *table.Table
	books  *books
	mu     sync.Mutex
	meters map[table.Key]*shardMeter
	since  *begun // since when usage is kept; nil: not known yet
}

// New returns a ledger of what m specifies, which keeps sums in a part of them.
func New(calls *table.Table, m table.Metering, part int) *Ledger {
	return &Ledger{calls: calls, books: newBooks(calls, m, part)}
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

// source is what a batch of records contains about one shard of a bucket, or about one process.
type source struct {
	Booking

	records []int // their indexes in the batch
	shard   int
	first   *plan.Item // the first and last image seen
	seen    *plan.Item
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

// Book books the usage in records. All records of one bucket are counted together, however many there are. Records of
// other items are ignored. Book iterates over the records once, and keeps none. An error means that nothing could be
// counted.
func (l *Ledger) Book(ctx context.Context, records iter.Seq[StreamRecord]) (Booked, error) {
	since, err := l.metered(ctx)
	if err != nil {
		return Booked{}, err
	}
	f := fold{since: since, without: l.books.Without, sources: make(map[table.Key]*source), failed: make(map[int]error)}
	i := 0
	for r := range records {
		if err := f.add(i, &r); err != nil {
			f.failed[i] = err
		}
		i++
	}
	var entries []*Booking
	for _, src := range f.order {
		if !slices.Contains(f.without, src.Bucket.Resource) {
			entries = append(entries, &src.Booking)
		}
	}
	_ = ledger.Book(ctx, l.books, entries) // the entries have its error, too
	for _, src := range f.order {
		for _, i := range src.records {
			if src.Err != nil {
				f.failed[i] = l.calls.Trouble("usage", "", src.Err)
			}
		}
	}
	return Booked{f.failed, l.hot(f.order)}, nil
}

// metered returns since when usage is kept: since the first ledger started.
func (l *Ledger) metered(ctx context.Context) (*begun, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since == nil {
		since, err := l.books.begin(ctx)
		if err != nil {
			return nil, err
		}
		l.since = &since
	}
	return l.since, nil
}

// fold is a batch of records, grouped by source.
type fold struct {
	since   *begun
	without []string // resources that are left out
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
	case sortState:
		return f.shard(i, key, r)
	case table.SortTally:
		return f.tally(i, key, r)
	}
	return nil
}

// ErrPoison reports a record of the stream that can never be read. Usually, an item was edited by hand.
var ErrPoison = ledger.ErrDamaged

// shard adds what a record contains about a bucket's shard.
func (f *fold) shard(i int, key table.Key, r *StreamRecord) error {
	b, k, ok := table.ParseBucketKey(key.PK)
	if !ok {
		return poison(key, errors.New("is not the key of a bucket"))
	}
	images := [2]*plan.Item{}
	for n, attrs := range []map[string]types.AttributeValue{r.Old, r.New} {
		it, err := table.ParseItem(attrs)
		if err != nil {
			return poison(key, err)
		}
		images[n] = it
	}
	src := f.source(i, table.AccountKey(b, strconv.Itoa(k)), b)
	src.Account.Late, src.Account.Keep, src.shard = ledger.Late, keepShard, k
	was, is := images[0], images[1]
	if was.Exists && (src.seen == nil || src.seen.ID != was.ID || src.seen.Writes != was.Writes) {
		s := readingOf(was, r.Created)
		s.Base = s.Minute <= f.since.of(b.Resource) || madeAt(is, r.Created)-s.Minute > resting
		src.Readings = ledger.MergeReading(src.Readings, s)
	}
	if is.Exists {
		src.Readings = ledger.MergeReading(src.Readings, readingOf(is, r.Created))
		src.seen = is
		if src.first == nil {
			src.first = is
		}
	}
	return nil
}

func minuteOf(it *plan.Item, created time.Time) int64 {
	return earliest(ledger.MinuteOf(clock.Time(it.At)), created)
}

// earliest returns a minute that another clock showed, or the stream's own minute if the other is far later.
func earliest(minute int64, created time.Time) int64 {
	if !created.IsZero() && minute > ledger.MinuteOf(created.Add(ahead)) {
		return ledger.MinuteOf(created)
	}
	return minute
}

// madeAt returns the minute of the change that produced an item or removed it. It is 0 if unknown.
func madeAt(is *plan.Item, created time.Time) int64 {
	switch {
	case is.Exists:
		return minuteOf(is, created)
	case created.IsZero():
		return 0
	}
	return ledger.MinuteOf(created)
}

// readingOf returns the counters of an item. Undone takes, which are subtracted from requests in the end, are what the
// bucket as a whole had returned. Overrides, of which there may be many, count as the limit that they override.
func readingOf(it *plan.Item, created time.Time) ledger.Reading {
	counts := ledger.AddCount(make([]ledger.Count, 0, 2+2*len(it.Limits)), "", ledger.Requests, it.Takes)
	counts = ledger.AddCount(counts, "", ledger.Returned, it.Undone)
	for i := range it.Limits {
		c := &it.Limits[i]
		name, _, _ := limitname.Parse(c.Name)
		counts = ledger.AddCount(counts, name, ledger.Debited, c.Debited)
		counts = ledger.AddCount(counts, name, ledger.Returned, c.Returned)
	}
	return ledger.Reading{ID: it.ID, Minute: minuteOf(it, created), Counts: counts}
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
	told, err := ledger.DecodeTold(raw)
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
		src.Account.Late, src.Account.Keep = lateProcess, keepProcess
		src.Readings = ledger.MergeReading(
			src.Readings,
			ledger.Reading{ID: told[n].ID, Minute: earliest(told[n].Minute, r.Created), Counts: told[n].Counts},
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
		len(table.UsageSort(store.Hourly, time.Time{}, b.Entity, b.Resource)) > table.MaxRange:
		return fmt.Errorf("the name %.40q on %.40q is too long", b.Entity, b.Resource)
	}
	return nil
}

func (f *fold) source(i int, key table.Key, b store.Bucket) *source {
	src := f.sources[key]
	if src == nil {
		src = &source{Booking: Booking{Bucket: b, Account: Account{Key: key}}}
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
		m := l.meters[src.Account.Key]
		if m == nil || m.id != src.seen.ID || m.shards != src.seen.Shards {
			m = &shardMeter{id: src.seen.ID, shards: src.seen.Shards}
			l.meters[src.Account.Key] = m
			if src.first.ID == m.id && src.first.Shards == m.shards {
				m.Read(src.first.Writes, src.first.At)
			}
		}
		m.Read(src.seen.Writes, src.seen.At)
		if m.TooMuch() {
			hot = append(hot, Hot{src.Bucket, src.shard, m.shards})
		}
	}
	return hot
}

// shardMeter is the meter of a shard while it is split to one depth.
type shardMeter struct {
	hot.Meter

	id     uint64
	shards int
}
