// Package memory keeps buckets and catalog in this process's memory: for tests, for one process that may forget, and
// as the fastest of the stores. It is exact: a take is one atomic step over all its buckets.
package memory

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/catalog"
	"github.com/weirlimits/weir/internal/table"
	"github.com/weirlimits/weir/store"
)

// Config configures a [Store]. The zero value is ready to use.
type Config struct {
	// Now tells the time. A reading before an earlier one admits no more than that one did. Defaults to the wall
	// clock when the store was made, carried on by the monotonic clock, so that setting the system's clock neither
	// grants nor costs tokens.
	Now func() time.Time
	// MaxBuckets bounds how many buckets that are not full the store holds; one more is refused with
	// store.ErrTooManyBuckets, since forgetting a bucket in use would hand out its tokens again. Full buckets are
	// evicted as others are born. A bucket of one limit takes about 120 bytes and its key. Defaults to 5,000,000.
	MaxBuckets int
	// Retired is handed a bucket's counters before it is evicted. Defaults to nothing.
	Retired store.Retired
}

// DefaultMaxBuckets is the default of [Config.MaxBuckets].
const DefaultMaxBuckets = 5_000_000

// Store is a store in memory. It is safe for concurrent use.
type Store struct {
	table   *table.Table
	catalog *catalog.Catalog
	closed  atomic.Bool
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Immediate = (*Store)(nil)
)

// New returns an empty store. A nil cfg means all defaults.
func New(cfg *Config) *Store {
	if cfg == nil {
		cfg = &Config{}
	}
	limit := cfg.MaxBuckets
	if limit <= 0 {
		limit = DefaultMaxBuckets
	}
	t := table.New(table.Config{Now: cfg.Now, MaxBuckets: limit, Retired: cfg.Retired})
	return &Store{table: t, catalog: catalog.New(cfg.Now)}
}

// TakeOne implements [store.Immediate]: no call waits for anything outside the process.
func (s *Store) TakeOne(ref *store.Ref, charge *store.Charge) (allowed, ok bool) {
	if s.closed.Load() {
		return false, false
	}
	return s.table.TakeOne(ref, charge)
}

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, take store.Take) (store.Outcome, error) {
	if err := s.ready(ctx); err != nil {
		return store.Outcome{}, err
	}
	out, _, err := s.table.Take(take)
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
