package inmem

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store/internal/ledger"
)

// Meter collects the readings of buckets' counters that must not be missed: the last of each minute, and the last
// before a bucket goes away. [Table.Read] returns those of the current minute.
type Meter struct {
	high  atomic.Bool
	_     [64]byte // separate, because every take reads high
	mu    sync.Mutex
	queue []ledger.Observation
}

// maxQueue is the queue length above which readings are dropped that only make minutes exact. A later reading makes
// up for them.
const maxQueue = 1 << 18

// highQueue is the queue length at which it should be drained soon.
const highQueue = 1 << 14

const minute = int64(time.Minute)

// minuteOf returns the start of a minute. The epoch is one.
func minuteOf(at int64) int64 {
	m := at % minute
	if m < 0 {
		m += minute
	}
	return at - m
}

// metering has a meter read the counters of buckets when a minute in which they changed is over, and when they go.
type metering struct {
	meter   *Meter // nil: nothing is read
	span    uint64 // a minute, or unmetered
	current atomic.Int64
}

// unmetered is the span of a minute if nothing is read.
const unmetered = math.MaxUint64

// stamp records that a locked bucket is about to change. If its last change was in an earlier minute, stamp first
// takes a reading of its counters.
func (m *metering) stamp(b *Bucket, now int64) {
	if start := m.current.Load(); uint64(b.at-start) >= m.span || uint64(now-start) >= m.span {
		m.turn(b, now)
	}
	b.at = now
}

// turn is stamp at the first change of a bucket in a minute.
func (m *metering) turn(b *Bucket, now int64) {
	was, is := minuteOf(b.at), minuteOf(now)
	m.current.Store(is)
	// Without a meter, reached only for the nanosecond before the epoch.
	if m.meter == nil || was == is || !b.counted() {
		return
	}
	const hour = 60 * minute
	m.meter.read(b, false, was-was%hour != is-is%hour)
}

// gone takes a reading of a locked bucket whose counters are about to go away.
func (m *metering) gone(b *Bucket) {
	if m.meter != nil && b.counted() {
		m.meter.read(b, true, true)
	}
}

func (m *Meter) read(b *Bucket, ended, must bool) {
	o := b.observation(ended)
	m.mu.Lock()
	defer m.mu.Unlock()
	if must || len(m.queue) < maxQueue {
		m.queue = append(m.queue, o)
		if len(m.queue) == highQueue {
			m.high.Store(true)
		}
	}
}

// observation returns a reading of a locked bucket's counters.
func (b *Bucket) observation(ended bool) ledger.Observation {
	st := b.state(ParseKey(b.key), b.at)
	o := ledger.Observation{Bucket: st.Bucket, Reading: ledger.ReadingOf(&st)}
	o.Ended = ended
	return o
}

// High reports whether so many readings are queued that they should be drained soon.
func (m *Meter) High() bool { return m.high.Load() }

// Drain removes and returns the queued readings, in order.
func (m *Meter) Drain() []ledger.Observation {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queue
	m.queue = nil
	m.high.Store(false)
	return q
}
