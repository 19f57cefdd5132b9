package env

import (
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
)

// Harness describes how to open a store under test and what it can do.
type Harness struct {
	// Open returns a fresh, empty store that takes its time from the clock. The suite closes it.
	Open func(t testing.TB, clock *Clock) store.Store
	// Peer returns a second, independent client of the same data, as another process would have it; the suite closes
	// it. Nil if the store cannot have one.
	Peer func(t testing.TB, s store.Store, clock *Clock) store.Store
	// Quiesce returns when the store has finished all background work, such as returns that are written with a later
	// write. Nil if every call is complete when it returns.
	Quiesce func(t testing.TB, s store.Store)
	// Kept returns for how long the store keeps the data of a bucket that nobody uses, counted from now; the largest
	// duration if for ever. Nil if it keeps a bucket until it is full.
	Kept func(t testing.TB, s store.Store, b store.Bucket) time.Duration
	// Harm damages a bucket's data, so that every call on it fails. Nil if the store keeps no data that could be
	// damaged one bucket at a time.
	Harm func(t testing.TB, s store.Store, b store.Bucket)
	// Throttle makes every write to a bucket fail until end is called, whichever client makes it, as a service that
	// limits the load on a key does. Nil if the store has no such keys.
	Throttle func(t testing.TB, s store.Store, b store.Bucket) (end func())
	// Cut makes the n-th call from now on fail, counted from 0: before it is made, or once it is made, so that only its
	// answer is lost. What a call is depends on the store: a request, or a commit of a file. End returns how many there
	// were. Nil if the store makes no calls.
	Cut  func(t testing.TB, s store.Store, n int, made bool) (end func() (calls int))
	Caps Caps
	// BucketsOnly leaves out the catalog and lists: for a store that has passed the suite, in a configuration that
	// writes buckets differently.
	BucketsOnly bool
}

// Caps are a store's capabilities. The suite does not test what a store cannot do.
type Caps struct {
	// HandClock: the store's time is the clock's, to the nanosecond. Without it, the suite leaves out tests in which
	// time must pass, and judges the rest by the times that the store reports.
	HandClock bool
	// AtomicTake: several buckets are decided in one step, and a refused take is never visible in any of them. Without
	// it, the suite reads several buckets only after Quiesce, and checks their net counters.
	AtomicTake bool
	// Ahead: tokens may be debited ahead of requests, and refusals repeated from memory. Torture then accepts that a
	// bucket shows more spent than callers were told, and refuses what would fit; never less, and never more admitted.
	Ahead bool
	// Remote: each call crosses a network. The suite uses fewer repetitions.
	Remote bool
	// LateUsage: another process books usage, some time later. The suite does not check usage.
	LateUsage bool
	// Quotas: limits may be quotas.
	Quotas bool
	// Credits: limits may be balances.
	Credits bool
	// Slots: limits may be of slots.
	Slots bool
	// OwnClocks: each client decides by its own clock, which may be up to 2 s from true time.
	OwnClocks bool
}

// Lacks reports whether a needed capability is missing. No scenario needs Remote.
func (c Caps) Lacks(need Caps) bool {
	return need.HandClock && !c.HandClock || need.AtomicTake && !c.AtomicTake || need.Quotas && !c.Quotas ||
		need.Credits && !c.Credits || need.Slots && !c.Slots || need.OwnClocks && !c.OwnClocks
}

// Clock is a clock that tests advance by hand. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands at now.
func NewClock(now time.Time) *Clock { return &Clock{now: now} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward, or back if d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Set sets the clock to now.
func (c *Clock) Set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}
