package weir

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
)

const (
	tallyShards = 16
	// maxTallies is how many buckets a shard counts individually. It counts further ones under otherEntity.
	maxTallies = 4096
	// tallyEvery is how long counts wait before they are handed to the store.
	tallyEvery = 5 * time.Second
	// idleTally is how long a tally without changes is kept.
	idleTally = 10 * time.Minute
	// tallyChunk is how many readings are handed over at once.
	tallyChunk = 1000
)

// otherEntity stands for entities that were refused when there was no room to count them individually.
const otherEntity = DefaultResource

// tallies counts what only this process knows: refusals, adjustments, degraded decisions. Like a bucket's, the counters
// only grow under an id, so the store may receive them twice.
type tallies struct {
	core   *core
	source string
	births atomic.Uint64
	armed  atomic.Bool
	closed atomic.Bool
	seed   maphash.Seed
	shards [tallyShards]tallyShard
	order  sync.Mutex // of flushes

	mu    sync.Mutex
	plans []*plan // those with refusals
}

type tallyShard struct {
	mu    sync.Mutex
	m     map[store.Bucket]*tally
	queue []store.Reading // of past hours
}

// tally holds the counts of one bucket. Its shard's lock guards it.
type tally struct {
	id     uint64
	at     time.Time // of the last change
	counts []store.LimitFigures
	dirty  bool
}

func newTallies(c *core) *tallies {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	t := &tallies{core: c, source: hex.EncodeToString(id[:]), seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].m = make(map[store.Bucket]*tally)
	}
	return t
}

// count updates the counters of a bucket.
func (t *tallies) count(b store.Bucket, at time.Time, f func(*tally)) {
	if t == nil {
		return
	}
	s := &t.shards[maphash.Comparable(t.seed, b)%tallyShards]
	s.mu.Lock()
	ta := s.m[b]
	if ta == nil {
		if len(s.m) >= maxTallies {
			b.Entity = otherEntity
			ta = s.m[b]
		}
		if ta == nil {
			ta = &tally{id: t.births.Add(1), at: at}
			s.m[b] = ta
		}
	}
	if at.Before(ta.at) {
		at = ta.at
	}
	if ta.dirty && at.Unix()/3600 != ta.at.Unix()/3600 {
		s.queue = append(s.queue, t.reading(b, ta))
	}
	ta.at, ta.dirty = at, true
	f(ta)
	s.mu.Unlock()
	t.arm()
}

// arm schedules a flush.
func (t *tallies) arm() {
	if !t.closed.Load() && !t.armed.Load() && t.armed.CompareAndSwap(false, true) {
		time.AfterFunc(tallyEvery, func() {
			t.armed.Store(false)
			t.flush(context.Background())
		})
	}
}

func (ta *tally) of(limit string) *store.Figures {
	i := slices.IndexFunc(ta.counts, func(c store.LimitFigures) bool { return c.Limit == limit })
	if i < 0 {
		i = len(ta.counts)
		ta.counts = append(ta.counts, store.LimitFigures{Limit: limit})
	}
	return &ta.counts[i].Figures
}

func (t *tallies) reading(b store.Bucket, ta *tally) store.Reading {
	return store.Reading{Bucket: b, Source: t.source, ID: ta.id, At: ta.at, Counts: slices.Clone(ta.counts)}
}

// flush hands the counts to the store. What the store does not take is handed over again next time.
func (t *tallies) flush(ctx context.Context) {
	if t == nil {
		return
	}
	t.order.Lock()
	defer t.order.Unlock()
	t.collect()
	overs, readings := make([][]store.Reading, len(t.shards)), make([][]store.Reading, len(t.shards))
	for i := range t.shards {
		overs[i], readings[i] = t.gather(&t.shards[i])
	}
	for rest := slices.Concat(readings...); len(rest) > 0; { // a store may write everything it receives in one step
		n := min(len(rest), tallyChunk)
		if err := t.core.usage.Count(ctx, rest[:n]...); err != nil {
			for i := range t.shards {
				t.keep(&t.shards[i], overs[i], readings[i])
			}
			return
		}
		rest = rest[n:]
	}
}

// gather returns the readings of a shard to hand over: over holds those that could not be before, readings holds these
// and the changed ones.
func (t *tallies) gather(s *tallyShard) (over, readings []store.Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over, s.queue = s.queue, nil
	readings = slices.Clone(over)
	now := time.Now()
	for b, ta := range s.m {
		if ta.dirty {
			readings = append(readings, t.reading(b, ta))
			ta.dirty = false
		} else if now.Sub(ta.at) > idleTally {
			delete(s.m, b)
		}
	}
	return over, readings
}

// keep puts readings back, to be handed over again.
func (t *tallies) keep(s *tallyShard, over, readings []store.Reading) {
	if len(readings) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer t.arm()
	s.queue = append(over, s.queue...)
	if n := len(s.queue); n > maxTallies { // later readings make up for the dropped ones
		s.queue = s.queue[n-maxTallies:]
	}
	for i := range readings {
		if ta := s.m[readings[i].Bucket]; ta != nil {
			ta.dirty = true
		}
	}
}

func (t *tallies) close() {
	if t == nil || t.closed.Swap(true) {
		return
	}
	t.flush(context.Background())
}

// refused counts a refusal of Allow, for which no levels were requested, in one of its plan's counters.
func (t *tallies) refused(p *plan, n *atomic.Int64) {
	if t == nil || n.Add(1) > 1 {
		return // the plan is on the list already
	}
	t.mu.Lock()
	t.plans = append(t.plans, p)
	t.mu.Unlock()
	t.arm()
}

// collect counts the refusals of Allow since the last time. Their store times are not known, so they are counted at the
// current time of this process's clock.
func (t *tallies) collect() {
	if t == nil {
		return
	}
	t.mu.Lock()
	plans := t.plans
	t.plans = nil
	t.mu.Unlock()
	now := time.Now()
	for _, p := range plans {
		n := p.quick.Swap(0)
		p.space.hits[0].n.Add(uint64(n))
		if n += p.refusals.Swap(0); n == 0 {
			continue // it was on the list twice, once for each counter
		}
		t.count(store.Bucket{Namespace: p.space.id, Entity: p.entity, Resource: p.resource}, now, func(ta *tally) {
			ta.of("").Refused += n
			if p.one != nil { // otherwise any of the limits may have refused
				f := ta.of(p.one.Limit.Name)
				f.Refused += n
				f.RefusedTokens += n * p.one.Amount
			}
		})
	}
}

// countWouldRefuse counts a request that a limit in shadow would have refused.
func (t *tallies) countWouldRefuse(b store.Bucket, at time.Time, limit string, milli int64) {
	t.count(b, at, func(ta *tally) {
		f := ta.of(limit)
		f.WouldRefuse++
		f.WouldTokens += milli
	})
}

// countRefused counts the requests of a decision that were refused together, and what refused them.
func (d *decision) countRefused(parts []part) {
	t := d.lim.core.tallies
	if t == nil {
		return
	}
	for i := range parts {
		b := store.Bucket{Namespace: parts[i].plan.space.id, Entity: parts[i].req.Entity, Resource: parts[i].req.Resource}
		t.count(b, d.out.At, func(ta *tally) { ta.of("").Refused++ })
	}
	n := 0
	for i := range d.debits {
		for _, c := range d.debits[i].Charges {
			if d.out.Levels[n].Refused && !c.Shadow {
				t.count(d.debits[i].Bucket, d.out.At, func(ta *tally) {
					f := ta.of(c.Limit.Name)
					f.Refused++
					f.RefusedTokens += c.Amount
				})
			}
			n++
		}
	}
}

// countDegraded counts a request that was admitted although the store did not answer.
func (l *Limiter) countDegraded(entity, resource string) {
	s := l.pinned
	if f := l.found.Load(); s == nil && f != nil {
		s = f.space
	}
	if s != nil { // otherwise the namespace is not known
		l.core.tallies.count(store.Bucket{Namespace: s.id, Entity: entity, Resource: resource}, time.Now(), func(ta *tally) { ta.of("").Degraded++ })
	}
}

// countAdjusted counts a change of what a lease holds.
func (le *Lease) countAdjusted(debits []store.Debit, at time.Time) {
	for i := range debits {
		le.lim.core.tallies.count(debits[i].Bucket, at, func(ta *tally) {
			for _, c := range debits[i].Charges {
				ta.of(c.Limit.Name).Adjustments++
			}
		})
	}
}
