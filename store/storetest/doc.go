// Package storetest is the conformance suite of package store: a driver passes it, unchanged, or it is not a driver.
//
// A driver's test calls [Run] with a [Harness] that opens fresh stores on a hand-turned [Clock], and [Torture] for
// the long random load:
//
//	func TestConformance(t *testing.T) {
//		t.Parallel()
//		storetest.Run(t, storetest.Harness{
//			Open: func(t testing.TB, clock *storetest.Clock) store.Store {
//				return memory.New(&memory.Config{Now: clock.Now})
//			},
//			Caps: storetest.Caps{HandClock: true, AtomicTake: true},
//		})
//	}
//
// What the suite expects of a decision it works out for itself, in math/big, never with the arithmetic that the
// drivers use. A bucket that is full carries no information, so no test minds whether a store still remembers it.
//
// [Explore] runs small protocols through every interleaving of their steps, for drivers' own tests too.
package storetest
