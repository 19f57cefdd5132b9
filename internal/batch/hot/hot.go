// Package hot finds items that are written too often.
package hot

import (
	"time"

	"github.com/weirlimits/weir/internal/batch/plan"
)

// Meter measures how often all processes together write an item, from its count of writes in two of our own answers.
type Meter struct {
	n      int   // the number of shards while it measures
	at     int64 // when the last reading was made, with which the next is compared
	writes int64
	hot    time.Duration // how long it has been written too often
	denied int           // number of writes in a row that were throttled for their key
}

// Rate is how many writes a second to an item are too many: 80 % of what one item can be.
const Rate = 800

const hotFor = 2 * time.Second

// Saw takes a reading of a write's answer, and reports whether the item is written too often, or refuses writes for
// that reason. What was measured while the bucket had another number of shards does not count.
func (m *Meter) Saw(on plan.Place, now int64, got *plan.Got) bool {
	if m.n != on.N {
		*m = Meter{n: on.N}
	}
	switch it := got.Item; {
	case got.Hot:
		m.denied++
	case it == nil || !it.Exists || it.Frozen || it.Shards != on.N:
		return false
	default:
		m.denied = 0
		m.Read(it.Writes, now)
	}
	return m.TooMuch()
}

// TooMuch reports once that the item is written too often.
func (m *Meter) TooMuch() bool {
	if m.hot < hotFor && m.denied < 3 {
		return false
	}
	m.hot, m.denied = 0, 0
	return true
}

// Read takes a reading of an item's count of writes.
func (m *Meter) Read(writes, now int64) {
	elapsed := now - m.at
	switch {
	case m.at == 0 || writes < m.writes || elapsed < 0:
		m.hot = 0
	case elapsed < int64(time.Second):
		return
	case float64(writes-m.writes)/(float64(elapsed)/float64(time.Second)) > Rate:
		m.hot += time.Duration(elapsed)
	default:
		m.hot = 0
	}
	m.at, m.writes = now, writes
}
