package storetest

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

// lacks reports whether a needed capability is missing. No scenario needs Remote.
func (c Caps) lacks(need Caps) bool {
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

// scenario is one test of the suite.
type scenario struct {
	name  string
	need  Caps
	peer  bool // requires Harness.Peer
	aside bool // about the catalog or lists, not about how buckets are written
	run   func(t testing.TB, h Harness)
}

// suite is a named group of scenarios, defined in one file.
type suite struct {
	name      string
	scenarios []scenario
}

func suites() []suite {
	return []suite{
		{"vectors", vectorScenarios()},
		{"take", takeScenarios()},
		{"shadow", shadowScenarios()},
		{"mistakes", mistakeScenarios()},
		{"limits", limitScenarios()},
		{"overrides", overrideScenarios()},
		{"ids", idScenarios()},
		{"settle", settleScenarios()},
		{"once", onceScenarios()},
		{"counters", counterScenarios()},
		{"invariants", invariantScenarios()},
		{"time", timeScenarios()},
		{"owed", owedScenarios()},
		{"concurrency", concurrencyScenarios()},
		{"linear", linearScenarios()},
		{"protocols", protocolScenarios()},
		{"catalog", aside(catalogScenarios())},
		{"list", aside(listScenarios())},
		{"epoch", aside(epochScenarios())},
		{"buckets", bucketScenarios()},
		{"usage", usageScenarios()},
		{"closed", closedScenarios()},
	}
}

func aside(scs []scenario) []scenario {
	for i := range scs {
		scs[i].aside = true
	}
	return scs
}

// Run runs the conformance suite: everything but [Torture].
func Run(t *testing.T, h Harness) {
	t.Helper()
	run(t, h, suites())
}

// RunUsage runs only the usage part of the suite. It is for stores whose usage another process books: Open must return
// such a store together with a process that books after each call.
func RunUsage(t *testing.T, h Harness) {
	t.Helper()
	run(t, h, []suite{{"usage", usageScenarios()}})
}

func run(t *testing.T, h Harness, all []suite) {
	t.Helper()
	for _, su := range all {
		t.Run(su.name, func(t *testing.T) {
			t.Parallel()
			for _, sc := range su.scenarios {
				t.Run(sc.name, func(t *testing.T) {
					t.Parallel()
					if h.Caps.lacks(sc.need) || sc.peer && h.Peer == nil {
						t.Skip("the store does not claim what this needs")
					}
					if h.BucketsOnly && sc.aside {
						t.Skip("tested with another configuration of the store")
					}
					sc.run(t, h)
				})
			}
		})
	}
}

// each turns a function that needs an open store into a scenario's body.
func each(f func(e *env)) func(testing.TB, Harness) {
	return func(t testing.TB, h Harness) {
		t.Helper()
		f(open(t, t, h, noon))
	}
}
