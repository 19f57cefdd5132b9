// Package storetest is the conformance suite of package store. Every driver must pass it unchanged.
//
// A driver's test calls [Run] with a [Harness] that opens fresh stores on a manually advanced [Clock], and [Torture]
// for a long random load:
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
// The suite computes the expected decisions on its own, in math/big, never with the arithmetic that the drivers use. A
// full bucket carries no information, so no test depends on whether a store still remembers it.
//
// Package interleave, which drivers' own tests can use too, runs small protocols through every interleaving of their
// steps. Package reckon is the reference that expected answers come from.
package storetest
