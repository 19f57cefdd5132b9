// Package raced skips tests that are too slow for the race detector.
package raced

import "testing"

// Skip skips a test that the race detector makes slow and in which it would find nothing, because only one goroutine
// runs at a time or the same is done elsewhere. make test runs it without the detector.
func Skip(t testing.TB) {
	t.Helper()
	if On {
		t.Skip("takes long with the race detector")
	}
}
