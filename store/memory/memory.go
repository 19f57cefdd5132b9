// Package memory keeps buckets and catalog in this process's memory. It is meant for tests and for a single process
// that may lose its state, and it is the fastest store. It is exact: a take is one atomic step over all its buckets.
package memory

import (
	"cmp"
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/catalog"
	"github.com/weirlimits/weir/store/internal/inmem"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// Config configures a [Store]. The zero value is ready to use.
type Config struct {
	// Now returns the time. A reading earlier than a previous one admits no more than that one did. Defaults to the
	// wall clock at New, carried on by the monotonic clock, so that setting the system clock neither grants nor costs
	// tokens.
	Now func() time.Time
	// MaxBuckets limits how many buckets that are not full the store holds. Beyond it, a new bucket is refused with
	// store.ErrTooManyBuckets, because forgetting a bucket in use would hand out its tokens again. Full buckets are
	// evicted to make room for new ones. A bucket with one limit takes about 120 bytes plus its key. Defaults to
	// 5,000,000.
	MaxBuckets int
	// Retired receives a bucket's counters before the bucket is evicted. Defaults to none.
	Retired store.Retired
	// Retention is how long windows of usage are kept. Defaults as in [store.Retention].
	Retention store.Retention
	// MaxUsage limits how many usage windows and accounts are held. Beyond it, the oldest windows are dropped, hours
	// before days before months. Current windows stay; if they alone are as many, buckets that have none are not
	// counted. Each takes about 200 bytes. Defaults to 1,000,000; a negative value keeps no usage.
	MaxUsage int
}

// DefaultMaxBuckets is the default of [Config.MaxBuckets].
const DefaultMaxBuckets = 5_000_000

// DefaultMaxUsage is the default of [Config.MaxUsage].
const DefaultMaxUsage = 1_000_000

// Store is a store in memory. It is safe for concurrent use.
type Store struct {
	table   *inmem.Table
	catalog *catalog.Catalog
	closed  atomic.Bool
	usage   *meter // nil: no usage is kept
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.InProcess = (*Store)(nil)
	_ store.Exclusive = (*Store)(nil)
	_ store.Usage     = (*Store)(nil)
	_ store.Measured  = (*Store)(nil)
)

// New returns an empty store. A nil cfg means all defaults.
func New(cfg *Config) *Store {
	cfg = cmp.Or(cfg, &Config{})
	limit := cfg.MaxBuckets
	if limit <= 0 {
		limit = DefaultMaxBuckets
	}
	s := &Store{catalog: catalog.New(cfg.Now)}
	tc := inmem.Config{Now: cfg.Now, MaxBuckets: limit, Retired: cfg.Retired}
	if cfg.MaxUsage >= 0 {
		u := &meter{max: cmp.Or(cfg.MaxUsage, DefaultMaxUsage)}
		u.Parent, u.Retention, u.Since = s.catalog.Parent, cfg.Retention, math.MinInt64
		u.Update, u.Fit = func(f func(ledger.Tx) error) error { return f(&u.mem) }, u.fit
		s.usage, tc.Meter = u, &u.Meter
	}
	s.table = inmem.New(tc)
	if s.usage != nil {
		s.usage.Table = s.table
	}
	return s
}

// Exclusive implements [store.Exclusive].
func (*Store) Exclusive() {}

// Find implements [store.InProcess].
func (s *Store) Find(b store.Bucket) any {
	if b := s.table.Find(b); b != nil {
		return b
	}
	return nil
}

// TakeOne implements [store.InProcess]: no call waits for anything outside the process.
func (s *Store) TakeOne(bucket any, charge *store.Charge) (allowed, ok bool) {
	b, ok := bucket.(*inmem.Bucket)
	if !ok || s.closed.Load() {
		return false, false
	}
	allowed, ok = s.table.TakeOne(b, charge)
	s.relieve()
	return allowed, ok
}

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, take store.Take) (store.Outcome, error) {
	if err := s.ready(ctx); err != nil {
		return store.Outcome{}, err
	}
	out, _, err := s.table.Take(take)
	s.relieve()
	return out, err
}

// Settle implements [store.Store].
func (s *Store) Settle(ctx context.Context, settle store.Settle) (store.Outcome, error) {
	if err := s.ready(ctx); err != nil {
		return store.Outcome{}, err
	}
	out, _, err := s.table.Settle(settle)
	return out, err
}

// Credit implements [store.Store].
func (s *Store) Credit(ctx context.Context, credit store.Credit) (store.Credited, error) {
	if err := s.ready(ctx); err != nil {
		return store.Credited{}, err
	}
	out, _, err := s.table.Credit(credit)
	return out, err
}

// ForgetCredits implements [store.Store].
func (s *Store) ForgetCredits(ctx context.Context, b store.Bucket, limit string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.table.ForgetCredits(b, limit)
	return nil
}

// Peek implements [store.Store].
func (s *Store) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	if err := s.ready(ctx); err != nil {
		return store.Snapshot{}, err
	}
	return s.table.Peek(buckets), nil
}

// Buckets implements [store.Store].
func (s *Store) Buckets(ctx context.Context, query store.BucketQuery) (store.BucketPage, error) {
	if err := s.ready(ctx); err != nil {
		return store.BucketPage{}, err
	}
	return s.table.Buckets(query)
}

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, buckets ...store.Bucket) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.table.Forget(buckets)
	return nil
}

// Get implements [store.Catalog].
func (s *Store) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	if err := s.ready(ctx); err != nil {
		return store.Got{}, err
	}
	return s.catalog.Get(keys)
}

// Commit implements [store.Catalog].
func (s *Store) Commit(ctx context.Context, writes ...store.Write) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.catalog.Commit(writes, nil)
}

// List implements [store.Catalog].
func (s *Store) List(ctx context.Context, query store.Query) (store.Page, error) {
	if err := s.ready(ctx); err != nil {
		return store.Page{}, err
	}
	return s.catalog.List(query)
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}
