// Package weirtest makes limiters for tests of code that is limited: real ones, on a store in memory, with a clock that
// the test turns by hand and faults that the test asks for.
//
//	func TestRefusesTheSecond(t *testing.T) {
//		l := weirtest.New(t, weir.PerMinute("rpm", 1))
//		svc := NewService(l.Limiter) // takes a *weir.Limiter
//		…
//		l.Advance(time.Minute) // and the limit has been issued anew
//	}
//
// Nothing is faked above the store: what a test sees admitted and refused is what production would.
package weirtest
