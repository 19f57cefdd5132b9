package cache

import (
	"errors"
	"sync/atomic"
	"time"
)

const (
	// missesPerSecond is how many lookups may find nothing, and missesAtOnce how many of them may come at once.
	missesPerSecond = 100
	missesAtOnce    = 1000

	perMiss = int64(time.Second / missesPerSecond)
)

// ErrMisses reports a lookup that is not made: only what is cached is answered, and that the entity is unknown is not
// known.
var ErrMisses = errors.New("too many entities are looked up that do not exist")

// Misses bounds how many lookups find nothing: 1,000 at once and 100 a second, since those under way count only once
// they have found nothing. Its value is the time at which 1,000 are allowed again, in nanoseconds. The zero value has
// seen none; nil bounds nothing. It is safe for concurrent use.
type Misses struct{ whole atomic.Int64 }

// Spent reports whether nothing may be looked up now.
func (m *Misses) Spent(now int64) bool {
	return m != nil && m.whole.Load() > now+(missesAtOnce-1)*perMiss
}

// Add counts a lookup that found nothing.
func (m *Misses) Add(now int64) {
	for m != nil {
		was := m.whole.Load()
		if m.whole.CompareAndSwap(was, max(was, now)+perMiss) {
			return
		}
	}
}
