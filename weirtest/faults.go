package weirtest

import (
	"context"
	"sync"
	"time"

	"github.com/weirlimits/weir/store"
)

// clock stands still until it is advanced, or runs with time.Now.
type clock struct {
	mu      sync.Mutex
	at      time.Time
	running time.Time // the time.Now at which it showed at; zero if it stands still
}

func newClock() *clock { return &clock{at: time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running.IsZero() {
		return c.at
	}
	return c.at.Add(time.Since(c.running))
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func (c *clock) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running.IsZero() {
		c.running = time.Now()
	}
}

// ledger is an alias under which the usage store can be embedded: its own name is that of a method.
type ledger = store.Usage

// faults is a store that fails or is slow on demand. It hides that a store in memory is a store.InProcess.
type faults struct {
	store.Store
	ledger

	mu    sync.Mutex
	err   error
	delay time.Duration
}

// sparedKey marks contexts of the test's own calls, which neither fail nor are slow.
type sparedKey struct{}

func (f *faults) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *faults) slow(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay = d
}

// trouble waits and fails as configured.
func (f *faults) trouble(ctx context.Context) error {
	if ctx.Value(sparedKey{}) != nil {
		return nil
	}
	f.mu.Lock()
	err, delay := f.err, f.delay
	f.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// try makes a call unless there is trouble.
func try[T any](ctx context.Context, f *faults, call func() (T, error)) (T, error) {
	if err := f.trouble(ctx); err != nil {
		var none T
		return none, err
	}
	return call()
}

// Take implements store.Store.
func (f *faults) Take(ctx context.Context, take store.Take) (store.Outcome, error) {
	return try(ctx, f, func() (store.Outcome, error) { return f.Store.Take(ctx, take) })
}

// Settle implements store.Store.
func (f *faults) Settle(ctx context.Context, settle store.Settle) (store.Outcome, error) {
	return try(ctx, f, func() (store.Outcome, error) { return f.Store.Settle(ctx, settle) })
}

// Credit implements store.Store.
func (f *faults) Credit(ctx context.Context, credit store.Credit) (store.Credited, error) {
	return try(ctx, f, func() (store.Credited, error) { return f.Store.Credit(ctx, credit) })
}

// Peek implements store.Store.
func (f *faults) Peek(ctx context.Context, buckets ...store.Bucket) (store.Snapshot, error) {
	return try(ctx, f, func() (store.Snapshot, error) { return f.Store.Peek(ctx, buckets...) })
}

// Buckets implements store.Store.
func (f *faults) Buckets(ctx context.Context, query store.BucketQuery) (store.BucketPage, error) {
	return try(ctx, f, func() (store.BucketPage, error) { return f.Store.Buckets(ctx, query) })
}

// Forget implements store.Store.
func (f *faults) Forget(ctx context.Context, buckets ...store.Bucket) error {
	if err := f.trouble(ctx); err != nil {
		return err
	}
	return f.Store.Forget(ctx, buckets...)
}

// Get implements store.Catalog.
func (f *faults) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	return try(ctx, f, func() (store.Got, error) { return f.Store.Get(ctx, keys...) })
}

// Commit implements store.Catalog.
func (f *faults) Commit(ctx context.Context, writes ...store.Write) error {
	if err := f.trouble(ctx); err != nil {
		return err
	}
	return f.Store.Commit(ctx, writes...)
}

// List implements store.Catalog.
func (f *faults) List(ctx context.Context, query store.Query) (store.Page, error) {
	return try(ctx, f, func() (store.Page, error) { return f.Store.List(ctx, query) })
}

// Count implements store.Usage.
func (f *faults) Count(ctx context.Context, readings ...store.Reading) error {
	if err := f.trouble(ctx); err != nil {
		return err
	}
	return f.ledger.Count(ctx, readings...)
}

// Usage implements store.Usage.
func (f *faults) Usage(ctx context.Context, query store.UsageQuery) (store.UsagePage, error) {
	return try(ctx, f, func() (store.UsagePage, error) { return f.ledger.Usage(ctx, query) })
}

// ForgetUsage implements store.Usage.
func (f *faults) ForgetUsage(ctx context.Context, namespace string) error {
	if err := f.trouble(ctx); err != nil {
		return err
	}
	return f.ledger.ForgetUsage(ctx, namespace)
}
