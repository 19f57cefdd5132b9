package weir

import (
	"context"
	"testing"
	"time"
)

// A context that a store has derived looks at the one of its call when that has ended: it must say why, or package context
// panics, in a goroutine of its own.
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
