// Package disk keeps buckets and catalog in memory and in one file, for one process: the embedded default. A take is
// one atomic step over all its buckets, decided in memory; [Mode] determines what is durable when it is answered. The
// catalog is always written before a commit returns.
//
// docs/format/disk.md describes the layout of the file, and what a crash may cost in each mode.
package disk

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/catalog"
	"github.com/weirlimits/weir/store/internal/inmem"
)

// Config configures a [Store]. The zero value is ready to use.
type Config struct {
	// Interval is how often [Interval] mode writes changes. Defaults to one second.
	Interval time.Duration
	// MaxBuckets limits how many buckets that are not full the store holds. Beyond it, a new bucket is refused with
	// store.ErrTooManyBuckets, because forgetting a bucket in use would hand out its tokens again. Full buckets are
	// evicted to make room for new ones. Defaults to 5,000,000.
	MaxBuckets int
	// Mode determines what is durable when a take is answered. Defaults to [Ahead].
	Mode Mode
	// MustExist makes Open fail with [ErrNotExist] if there is no store, instead of creating one. It is meant for
	// reading: opening and closing a store without writing to it does not change its file. Defaults to false.
	MustExist bool
	// Now returns the time. A reading earlier than the last one in the file, or than a previous reading, admits no more
	// than that one did. Defaults to the wall clock at Open, carried on by the monotonic clock, so that setting the
	// system clock neither grants nor costs tokens.
	Now func() time.Time
	// Retired receives a bucket's counters before the bucket is evicted or gets a new id: while the store is in use,
	// and from Open, before it returns, for buckets that have filled up meanwhile or whose counters may lag behind the
	// last ones seen. After a crash it may receive the same state again. Defaults to none.
	Retired store.Retired
	// UsageInterval is how often usage is written. Usage is read from the buckets' own counters, so a crash loses usage
	// only where it loses counters: see docs/format/disk.md. Usage is written less often if writing it would take more
	// than a thirtieth of a processor. A negative value keeps no usage. Defaults to one minute.
	UsageInterval time.Duration
	// Retention is how long windows of usage are kept. Defaults as in [store.Retention].
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
	table   *inmem.Table
	catalog *catalog.Catalog
	journal *journal
	usage   *meter // nil: no usage is kept
	db      *bolt.DB

	closing  sync.Once
	closeErr error
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Exclusive = (*Store)(nil)
	_ store.Measured  = (*Store)(nil)
)

// Exclusive implements [store.Exclusive]: the file is locked.
func (*Store) Exclusive() {}

// Take implements [store.Store]. If its changes cannot be made as durable as the mode promises, or the context ends
// first, the tokens are returned.
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

// Settle implements [store.Store]. A return without an ID is not written: a crash may lose it.
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

// settle applies a settle in memory. A settle with an ID is in one commit entirely or not at all.
func (s *Store) settle(settle store.Settle) (store.Outcome, inmem.Tickets, error) {
	if settle.ID != "" {
		s.journal.gate.RLock()
		defer s.journal.gate.RUnlock()
	}
	return s.table.Settle(settle)
}

// Credit implements [store.Store]. In every mode it waits until it is in the file.
func (s *Store) Credit(ctx context.Context, credit store.Credit) (store.Credited, error) {
	if err := s.ready(ctx, nil); err != nil {
		return store.Credited{}, err
	}
	s.journal.gate.RLock()
	out, tickets, err := s.table.Credit(credit)
	s.journal.gate.RUnlock()
	if err == nil {
		err = tickets.Wait(ctx)
	}
	if err != nil {
		return store.Credited{}, err
	}
	return out, nil
}

// ForgetCredits implements [store.Store].
func (s *Store) ForgetCredits(ctx context.Context, b store.Bucket, limit string) error {
	if err := s.ready(ctx, nil); err != nil {
		return err
	}
	return s.journal.forgetCredits([]byte(s.table.ForgetCredits(b, limit)))
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

// Commit implements [store.Catalog]. If the context ends first, the writes may still be made.
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

// Stats describe the store's writes to its file.
type Stats struct {
	Lag     time.Duration // age of the oldest change that waits to be written
	Commits uint64        // transactions
	Records uint64        // buckets written in them
	Err     error         // of the last transaction; nil if it was committed
}

// Stats returns the store's current figures.
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

// Measures implements [store.Measured].
func (s *Store) Measures() []store.Measure {
	st := s.Stats()
	failing := 0.0
	if st.Err != nil {
		failing = 1
	}
	return []store.Measure{
		{Name: "buckets", Help: "Buckets in the store.", Value: float64(s.table.Len())},
		{
			Name: "write_lag_seconds", Help: "Age of the oldest change that waits to be written.",
			Value: st.Lag.Seconds(),
		},
		{Name: "write_failing", Help: "1 if the last transaction on the file was not committed.", Value: failing},
		{Name: "transactions", Help: "Transactions on the file.", Total: true, Value: float64(st.Commits)},
		{
			Name: "records_written", Help: "Bucket records written in those transactions.", Total: true,
			Value: float64(st.Records),
		},
	}
}

// Close implements [store.Store]. It stops admitting, completes the commits that callers wait for, and writes the true
// levels, so that no reserved tokens are lost. A store that was not changed leaves its file unchanged.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.journal.closing.Store(true)
		close(s.journal.stop)
		<-s.journal.stopped
		var err error
		if s.usage != nil {
			err = s.usage.close(s.journal.touched.Load())
		}
		// If usage could not be written, the file is not marked clean, and the next Open counts that usage again.
		err = errors.Join(err, s.journal.finish(err == nil))
		s.closeErr = errors.Join(err, guarded(s.db.Close))
	})
	return s.closeErr
}
