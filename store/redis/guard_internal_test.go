package redis

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A look that fails is repeated after 10 ms, and after more and more up to a second, although it connects in vain. A new
// connection begins again with that. A look that succeeds is repeated once a minute, and after each new connection.
func TestGuardPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := guard{dialed: make(chan struct{}, 1)}
		var looks atomic.Int32
		var right atomic.Bool
		g.watch(lookEvery, func(context.Context) bool {
			if looks.Add(1) < 100 && !right.Load() {
				g.look()
			}
			return right.Load()
		})
		defer g.close()
		want := func(after time.Duration, n int32) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if looks := looks.Swap(0); looks != n {
				t.Errorf("%d looks, want %d", looks, n)
			}
		}
		g.look()
		want(0, 1)
		want(310*time.Millisecond, 5)
		want(30*time.Second, 30)
		g.look() // another process has taken over, and somebody has connected to it
		want(0, 1)
		want(10*time.Millisecond, 1)
		want(20*time.Millisecond, 1)
		want(3*time.Second, 5) // after 40, 80 and 160 ms, and two seconds
		right.Store(true)
		want(time.Second, 1)
		want(lookEvery, 1)
		g.look()
		want(0, 1)
	})
}
