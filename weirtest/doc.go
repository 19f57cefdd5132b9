// Package weirtest provides limiters for tests of code that is limited: real limiters on an in-memory store, with a
// clock that the test advances and faults that the test injects.
//
//	func TestRefusesTheSecond(t *testing.T) {
//		l := weirtest.New(t, weir.PerMinute("rpm", 1))
//		svc := NewService(l.Limiter) // takes a *weir.Limiter
//		…
//		l.Advance(time.Minute) // and the tokens have been issued again
//	}
//
// Nothing above the store is faked: a test's limiter admits and refuses what it would in production.
package weirtest
