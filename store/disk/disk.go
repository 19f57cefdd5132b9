// Package disk keeps buckets and catalog in memory and in one file, for one process: the embedded default. A take is
// one atomic step over all its buckets, decided in memory; [Mode] says what is durable when it is answered. The
// catalog is always written before a commit returns.
//
// The layout of the file, and what a crash may cost in each mode, is described in docs/format/disk.md.
package disk

import (
	"context"
	"runtime"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/internal/catalog"
	"github.com/weirlimits/weir/internal/table"
	"github.com/weirlimits/weir/store"
)

// Config configures a [Store]. The zero value is ready to use.
type Config struct {
	// Interval is how often [Interval] mode writes what has changed. Defaults to one second.
	Interval time.Duration
	// MaxBuckets bounds how many buckets that are not full the store holds; one more is refused with
	// store.ErrTooManyBuckets, since forgetting a bucket in use would hand out its tokens again. Full buckets are
	// evicted as others are born. Defaults to 5,000,000.
	MaxBuckets int
	// Mode says what is durable when a take is answered. Defaults to [Ahead].
	Mode Mode
	// MustExist makes Open fail with [ErrNotExist] where there is no store, instead of making one. For reading:
	// opening and closing a store that is not written to does not change its file either. Defaults to false.
	MustExist bool
	// Now tells the time. A reading before the last one in the file, or before an earlier one, admits no more than
	// that one did. Defaults to the wall clock when the store was opened, carried on by the monotonic clock, so
	// that setting the system's clock neither grants nor costs tokens.
	Now func() time.Time
	// Retired is handed a bucket's counters before it is evicted or gets a new id: while the store is in use, and
	// by Open, before it returns, for buckets that have filled up meanwhile or whose counters are not known to be
	// the last that were seen. It may be handed the same state again after a crash. Defaults to nothing.
	Retired store.Retired
	// UsageInterval is how often usage is written. It is read from the buckets' own counters, so that a crash loses of
	// it only what it loses of those: see docs/format/disk.md. It is written less often where that would take more than
	// a thirtieth of a processor. Negative keeps no usage. Defaults to one minute.
	UsageInterval time.Duration
	// Retention says how long windows of usage are kept.
	Retention store.Retention
}

const (
	// DefaultInterval is the default of [Config.Interval].
	DefaultInterval = time.Second
	// DefaultMaxBuckets is the default of [Config.MaxBuckets].
	DefaultMaxBuckets = 5_000_000
)

// Store is a store in memory and a file. It is safe for concurrent use.
type Store struct {
	table   *table.Table
	catalog *catalog.Catalog
	journal *journal
	usage   *ledger // nil: none is kept
	db      *bolt.DB

	closing  sync.Once
	closeErr error
}

var _ store.Store = (*Store)(nil)

// Take implements [store.Store]. When its promise of durability is broken, or the context ends first, the tokens are
// given back.
func (s *Store) Take(ctx context.Context, take store.Take) (store.Outcome, error) {
	if err := s.ready(ctx, take.Debits); err != nil {
		return store.Outcome{}, err
	}
	out, tickets, err := s.table.Take(take)
	if s.journal.behind.Load() {
		runtime.Gosched()
	}
	if err != nil || tickets.None() {
		return out, err
	}
	if err := tickets.Wait(ctx); err != nil {
		s.table.Undo(take, tickets)
		return store.Outcome{}, err
	}
	return out, nil
}

// Settle implements [store.Store]. What is given back without an ID is not written: after a crash it may be missing.
func (s *Store) Settle(ctx context.Context, settle store.Settle) (store.Outcome, error) {
	if err := s.ready(ctx, settle.Debits); err != nil {
		return store.Outcome{}, err
	}
	if len(settle.ID) > maxKey {
		return store.Outcome{}, store.ErrInvalid
	}
	out, tickets, err := s.settle(settle)
	if err != nil || tickets.None() {
		return out, err
	}
	if err := tickets.Wait(ctx); err != nil {
		return store.Outcome{}, err
	}
	return out, nil
}

// settle applies a settle in memory. One with an ID is either wholly in a commit or not at all.
func (s *Store) settle(settle store.Settle) (store.Outcome, table.Tickets, error) {
	if settle.ID != "" {
		s.journal.gate.RLock()
		defer s.journal.gate.RUnlock()
	}
	return s.table.Settle(settle)
}

// Peek implements [store.Store].
func (s *Store) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	if err := s.ready(ctx, nil); err != nil {
		return store.Snapshot{}, err
	}
	s.journal.settled(ctx)
	return s.table.Peek(buckets), nil
}

// Buckets implements [store.Store].
func (s *Store) Buckets(ctx context.Context, query store.BucketQuery) (store.BucketPage, error) {
	if err := s.ready(ctx, nil); err != nil {
		return store.BucketPage{}, err
	}
	s.journal.settled(ctx)
	return s.table.Buckets(query)
}

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, buckets ...store.Bucket) error {
	if err := s.ready(ctx, nil); err != nil {
		return err
	}
	return s.table.Forget(buckets).Wait(ctx)
}

// Get implements [store.Catalog].
func (s *Store) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	if err := s.ready(ctx, nil); err != nil {
		return store.Got{}, err
	}
	return s.catalog.Get(keys)
}

// Commit implements [store.Catalog]. When the context ends first, the writes may still be made.
func (s *Store) Commit(ctx context.Context, writes ...store.Write) error {
	if err := s.ready(ctx, nil); err != nil {
		return err
	}
	if ctx.Done() == nil {
		return s.catalog.Commit(writes, s.journal.persist)
	}
	done := make(chan error, 1)
	go func() { done <- s.catalog.Commit(writes, s.journal.persist) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// List implements [store.Catalog].
func (s *Store) List(ctx context.Context, query store.Query) (store.Page, error) {
	if err := s.ready(ctx, nil); err != nil {
		return store.Page{}, err
	}
	return s.catalog.List(query)
}

// Stats are a store's figures about its file.
type Stats struct {
	Lag     time.Duration // how old the oldest change is that is waiting to be written
	Commits uint64        // transactions
	Records uint64        // buckets in them
	Err     error         // of the last transaction; nil when it was committed
}

// Stats returns the store's figures.
func (s *Store) Stats() Stats { return s.journal.stats() }

func (s *Store) ready(ctx context.Context, debits []store.Debit) error {
	if s.journal.closing.Load() {
		return store.ErrClosed
	}
	for i := range debits {
		if b := &debits[i].Bucket; len(b.Namespace)+len(b.Entity)+len(b.Resource) > maxKey {
			return store.ErrInvalid
		}
	}
	return ctx.Err()
}
