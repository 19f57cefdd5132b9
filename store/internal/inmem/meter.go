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
	queue []reading
}

// reading is the state of a bucket's counters.
type reading struct {
	key   string
	id    uint64
	at    int64
	takes int64
	first tally
	rest  []tally
	ended bool
}

type tally struct {
	limit             string
	debited, returned int64
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
	r := b.reading()
	r.ended = ended
	m.mu.Lock()
	defer m.mu.Unlock()
	if must || len(m.queue) < maxQueue {
		m.queue = append(m.queue, r)
		if len(m.queue) == highQueue {
			m.high.Store(true)
		}
	}
}

func (b *Bucket) reading() reading {
	r := reading{key: b.key, id: b.id, at: b.at, takes: b.takes}
	for i := range b.len() {
		s := b.slot(i)
		if t := (tally{s.limit.Name, s.debited, s.returned}); i == 0 {
			r.first = t
		} else {
			r.rest = append(r.rest, t)
		}
	}
	return r
}

// High reports whether so many readings are queued that they should be drained soon.
func (m *Meter) High() bool { return m.high.Load() }

// Drain removes and returns the queued readings, in order.
func (m *Meter) Drain() []ledger.Observation {
	m.mu.Lock()
	q := m.queue
	m.queue = nil
	m.high.Store(false)
	m.mu.Unlock()
	out := make([]ledger.Observation, len(q))
	for i := range q {
		out[i] = q[i].observation()
	}
	return out
}

func (r *reading) observation() ledger.Observation {
	counts := ledger.AddCount(make([]ledger.Count, 0, 3+2*len(r.rest)), "", ledger.Requests, r.takes)
	counts = r.first.add(counts)
	for i := range r.rest {
		counts = r.rest[i].add(counts)
	}
	return ledger.Observation{Bucket: parseKey(r.key), Reading: ledger.Reading{
		ID: r.id, Minute: ledger.MinuteOf(clock.Time(r.at)), Counts: counts, Ended: r.ended,
	}}
}

// add appends a limit's counters.
func (c *tally) add(counts []ledger.Count) []ledger.Count {
	counts = ledger.AddCount(counts, c.limit, ledger.Debited, c.debited)
	return ledger.AddCount(counts, c.limit, ledger.Returned, c.returned)
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
				r := b.reading()
				out = append(out, r.observation())
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
