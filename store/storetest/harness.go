package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
)

// Harness says how to open a store under test and what it can do.
type Harness struct {
	// Open returns a fresh, empty store whose time is the clock's. The suite closes it.
	Open func(t testing.TB, clock *Clock) store.Store
	// Peer returns a second, independent client of the same data, as another process would have it; the suite
	// closes it. Nil where there can be none.
	Peer func(t testing.TB, s store.Store, clock *Clock) store.Store
	// Quiesce returns when nothing that the store does behind a call's back is under way, such as returns that
	// ride on a later write. Nil where every call is complete when it returns.
	Quiesce func(t testing.TB, s store.Store)
	Caps    Caps
	// BucketsOnly leaves out the catalog and lists: for a store that passed, configured otherwise in how it writes buckets.
	BucketsOnly bool
}

// Caps are what a store can do. What it cannot, the suite does not ask for.
type Caps struct {
	// HandClock: the store's time is the clock's, to the nanosecond. Without it the suite leaves out what needs
	// time to pass, and judges the rest by the times that the store reports.
	HandClock bool
	// AtomicTake: several buckets are decided in one step, and a refused take was never seen on any of them.
	// Without it the suite looks at several buckets only after Quiesce, and at their net counters.
	AtomicTake bool
	// Remote: each call crosses a network. The suite repeats itself less.
	Remote bool
	// LateUsage: somebody else books usage, some time after. The suite does not look at it.
	LateUsage bool
}

// lacks reports whether a needed capability is missing. Remote is nobody's need.
func (c Caps) lacks(need Caps) bool {
	return need.HandClock && !c.HandClock || need.AtomicTake && !c.AtomicTake
}

// Clock is a clock turned by hand. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands at now.
func NewClock(now time.Time) *Clock { return &Clock{now: now} }

// Now returns where the clock stands.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance turns the clock on, or back when d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Set turns the clock to now.
func (c *Clock) Set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// scenario is one test of the suite.
type scenario struct {
	name  string
	need  Caps
	peer  bool // needs Harness.Peer
	aside bool // of the catalog or of lists, not of how buckets are written
	run   func(t testing.TB, h Harness)
}

// suite is a named group of scenarios, in one file.
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

// RunUsage runs what the suite asks of usage alone: for stores whose usage somebody else books, opened together with who
// books it after each call.
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

// each makes a scenario's body of one that wants an open store.
func each(f func(e *env)) func(testing.TB, Harness) {
	return func(t testing.TB, h Harness) {
		t.Helper()
		f(open(t, t, h, noon))
	}
}
