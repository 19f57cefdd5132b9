package inmem

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/clock"
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

// stamp records that a locked bucket is about to change. If its last change was in an earlier minute, stamp first
// takes a reading of its counters.
func (t *Table) stamp(b *Bucket, now int64) {
	if m := t.minute.Load(); uint64(b.at-m) >= t.span || uint64(now-m) >= t.span {
		t.turn(b, now)
	}
	b.at = now
}

// turn is stamp at the first change of a bucket in a minute.
func (t *Table) turn(b *Bucket, now int64) {
	was, is := minuteOf(b.at), minuteOf(now)
	t.minute.Store(is)
	// Without a meter, reached only for the nanosecond before the epoch.
	if t.cfg.Meter == nil || was == is || !b.counted() {
		return
	}
	const hour = 60 * minute
	t.cfg.Meter.read(b, false, was-was%hour != is-is%hour)
}

// gone takes a reading of a locked bucket whose counters are about to go away.
func (t *Table) gone(b *Bucket) {
	if t.cfg.Meter != nil && b.counted() {
		t.cfg.Meter.read(b, true, true)
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
	counts := ledger.AddCount(make([]ledger.Count, 0, 1+2*b.len()), "", ledger.Requests, b.takes)
	for i := range b.len() {
		s := b.slot(i)
		counts = ledger.AddCount(counts, s.limit.Name, ledger.Debited, s.debited)
		counts = ledger.AddCount(counts, s.limit.Name, ledger.Returned, s.returned)
	}
	return ledger.Observation{Bucket: parseKey(b.key), Reading: ledger.Reading{
		ID: b.id, Minute: ledger.MinuteOf(clock.Time(b.at)), Counts: counts, Ended: ended,
	}}
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

// Read calls f with the readings of all buckets that have changed since an instant, some hundred at a time. It may
// miss a change in progress.
func (t *Table) Read(since int64, f func([]ledger.Observation) error) error {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		bs := make([]*Bucket, 0, s.buckets.len())
		for b := range s.buckets.all() {
			bs = append(bs, b)
		}
		s.mu.RUnlock()
		var out []ledger.Observation
		for _, b := range bs {
			b.mu.Lock()
			if !b.dead() && b.at >= since && b.counted() {
				out = append(out, b.observation(false))
			}
			b.mu.Unlock()
		}
		if len(out) > 0 {
			if err := f(out); err != nil {
				return err
			}
		}
	}
	return nil
}

// unmetered is the span of a minute if nothing is read.
const unmetered = math.MaxUint64
