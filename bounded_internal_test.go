package weir

import (
	"context"
	"testing"
	"time"
)

// If a store derives a context, that context reads the error of the call's context once the call has ended. The error
// must be set, or package context panics in a goroutine of its own.
func TestBoundedSaysWhyItEnded(t *testing.T) {
	t.Parallel()
	for range 1000 {
		b := &bounded{Context: t.Context(), deadline: time.Now().Add(time.Hour)}
		derived, cancel := context.WithTimeout(b, time.Hour)
		b.end()
		<-derived.Done()
		if b.Err() == nil || derived.Err() == nil {
			t.Fatalf("ended, and says %v and %v", b.Err(), derived.Err())
		}
		cancel()
	}
}
