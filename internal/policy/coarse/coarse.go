// Package coarse has a clock and a counter that cost next to nothing in every decision.
package coarse

import (
	"sync/atomic"
	"time"
)

// Tick is the unit of a [Clock], in nanoseconds.
const Tick = int64(100 * time.Millisecond)

// Clock returns the number of ticks passed without asking the system each time. In use, it is at most about one tick
// behind; when it is not used, nothing runs. Reading the system's clock takes a third of the time of Allow.
type Clock struct{ now atomic.Uint32 }

// Read returns the ticks since start, at least 1.
func (c *Clock) Read(start time.Time) uint32 {
	if now := c.now.Load(); now != 0 {
		return now
	}
	now := uint32(int64(time.Since(start))/Tick) + 1
	if c.now.CompareAndSwap(0, now) {
		time.AfterFunc(time.Duration(Tick), func() { c.now.Store(0) })
	}
	return now
}

// Counter counts on several cache lines, because every decision counts.
type Counter [16]struct {
	n atomic.Uint64
	_ [56]byte
}

// Add increments one of the cache lines, which stripe determines.
func (c *Counter) Add(stripe uint8) { c[stripe%uint8(len(c))].n.Add(1) }

// Total returns what was counted.
func (c *Counter) Total() (n uint64) {
	for i := range c {
		n += c[i].n.Load()
	}
	return n
}
