package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimits/weir/store/storetest/internal/buckets"
	"github.com/weirlimits/weir/store/storetest/internal/catalog"
	"github.com/weirlimits/weir/store/storetest/internal/credits"
	"github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/internal/grid"
	"github.com/weirlimits/weir/store/storetest/internal/history"
	"github.com/weirlimits/weir/store/storetest/internal/phases"
	"github.com/weirlimits/weir/store/storetest/internal/slots"
	"github.com/weirlimits/weir/store/storetest/internal/torture"
	"github.com/weirlimits/weir/store/storetest/internal/trace"
)

// Harness describes how to open a store under test and what it can do.
//
//   - Open returns a fresh, empty store that takes its time from the clock. The suite closes it.
//   - Peer returns a second, independent client of the same data, as another process would have it. The suite closes
//     it. Nil if the store cannot have one.
//   - Quiesce returns when the store has finished all background work, such as returns that are written with a later
//     write. Nil if every call is complete when it returns.
//   - Kept returns for how long the store keeps the data of a bucket that nobody uses, counted from now; the largest
//     duration if for ever. Nil if it keeps a bucket until it is full.
//   - Harm damages a bucket's data, so that every call on it fails. Nil if the store keeps no data that could be
//     damaged one bucket at a time.
//   - Throttle makes every write to a bucket fail until end is called, whichever client makes it, as a service that
//     limits the load on a key does. Nil if the store has no such keys.
//   - Cut makes the n-th call from now on fail, counted from 0: before it is made, or once it is made, so that only its
//     answer is lost. What a call is depends on the store: a request, or a commit of a file. End returns how many there
//     were. Nil if the store makes no calls.
//   - Caps are what the store can do.
//   - BucketsOnly leaves out the catalog and lists: for a store that has passed the suite, in a configuration that
//     writes buckets differently.
type Harness = env.Harness

// Caps are a store's capabilities. The suite does not test what a store cannot do.
//
//   - HandClock: the store's time is the clock's, to the nanosecond. Without it, the suite leaves out tests in which
//     time must pass, and judges the rest by the times that the store reports.
//   - AtomicTake: several buckets are decided in one step, and a refused take is never visible in any of them. Without
//     it, the suite reads several buckets only after Quiesce, and checks their net counters.
//   - Ahead: tokens may be debited ahead of requests, and refusals repeated from memory. Torture then accepts that a
//     bucket shows more spent than callers were told, and refuses what would fit; never less, and never more admitted.
//   - Remote: each call crosses a network. The suite uses fewer repetitions, as with go test -short.
//   - LateUsage: another process books usage, some time later. The suite does not check usage.
//   - Quotas: limits may be quotas.
//   - Credits: limits may be balances, which are credited.
//   - Slots: limits may be of slots. A store that has none must refuse them.
//   - OwnClocks: each client decides by its own clock, which may be up to 2 s from true time.
type Caps = env.Caps

// Clock is a clock that tests advance by hand, with Now, Advance and Set. It is safe for concurrent use.
type Clock = env.Clock

// NewClock returns a clock that stands at now.
func NewClock(now time.Time) *Clock { return env.NewClock(now) }

// Run runs the conformance suite: everything but [Torture].
func Run(t *testing.T, h Harness) {
	t.Helper()
	run(t, h, suites())
}

// RunUsage runs only the usage part of the suite. It is for stores whose usage another process books: Open must return
// such a store together with a process that books after each call.
func RunUsage(t *testing.T, h Harness) {
	t.Helper()
	run(t, h, []env.Suite{catalog.Usage()})
}

// Torture lets many callers work on a few buckets for the given time: takes of several buckets, some forced, some in
// shadow, returns, peeks and lists, changes of limits in some rounds, and now and then a jump of the clock. A duration
// of 0 means [TortureTime]. It logs its seed, which WEIR_SEED sets.
//
// The callers rest between rounds. The answers that they got, and what the buckets then show, must satisfy I1 and must
// lose nothing, in whatever order the store handled the calls.
func Torture(t testing.TB, h Harness, d time.Duration) {
	t.Helper()
	torture.Run(t, h, d)
}

// TortureTime returns how long to torture: WEIR_TORTURE if set, otherwise one minute if CI is true, otherwise five
// seconds.
func TortureTime(t testing.TB) time.Duration {
	t.Helper()
	return torture.Time(t)
}

func suites() []env.Suite {
	return slices.Concat(
		buckets.Suites(), grid.Suites(), credits.Suites(), slots.Suites(), history.Suites(), phases.Suites(),
		trace.Suites(),
		catalog.Suites(), []env.Suite{catalog.Usage()},
	)
}

func run(t *testing.T, h Harness, all []env.Suite) {
	t.Helper()
	for _, su := range all {
		t.Run(su.Name, func(t *testing.T) {
			t.Parallel()
			for _, sc := range su.Scenarios {
				t.Run(sc.Name, func(t *testing.T) {
					t.Parallel()
					if h.Caps.Lacks(sc.Need) || sc.Peer && h.Peer == nil || sc.Harm && h.Harm == nil ||
						sc.Hot && h.Throttle == nil || sc.Cut && h.Cut == nil {
						t.Skip("the store does not claim what this needs")
					}
					if h.BucketsOnly && sc.Aside {
						t.Skip("tested with another configuration of the store")
					}
					sc.Run(t, h)
				})
			}
		})
	}
}
