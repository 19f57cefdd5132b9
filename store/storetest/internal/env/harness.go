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
	// Kept returns for how long the store keeps the data of a bucket that nobody uses, counted from now. Nil if it
	// keeps a bucket until it is full.
	Kept func(t testing.TB, s store.Store, b store.Bucket) time.Duration
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
	// Remote: each call crosses a network. The suite uses fewer repetitions.
	Remote bool
	// LateUsage: another process books usage, some time later. The suite does not check usage.
	LateUsage bool
}

// Lacks reports whether a needed capability is missing. No scenario needs Remote.
func (c Caps) Lacks(need Caps) bool {
	return need.HandClock && !c.HandClock || need.AtomicTake && !c.AtomicTake
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
