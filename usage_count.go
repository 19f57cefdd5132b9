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
	// maxTallies is how many buckets a shard counts for at once. For more it counts under the name of others.
	maxTallies = 4096
	// tallyEvery is how long what was counted waits before it is handed to the store.
	tallyEvery = 5 * time.Second
	// idleTally is after how long without a change a tally goes.
	idleTally = 10 * time.Minute
	// tallyChunk is how many readings are handed over at once.
	tallyChunk = 1000
)

// otherEntity stands for entities that were refused while there was no room to count for each.
const otherEntity = DefaultResource

// tallies are what only this process knows: refusals, adjustments, degraded decisions. They are growing counters under an
// id, as those of a bucket, so that the store may be handed them twice.
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
	plans []*plan // whose refusals are not 0
}

type tallyShard struct {
	mu    sync.Mutex
	m     map[store.Bucket]*tally
	queue []store.Reading // of hours that are over
}

// tally counts for one bucket. Its shard's lock guards it.
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

// count changes the counters of a bucket.
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

// arm has what was counted handed over soon.
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

// flush hands what was counted to the store. What it does not take is handed over again with the next.
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
	for rest := slices.Concat(readings...); len(rest) > 0; { // a store may write as many as it is handed in one go
		n := min(len(rest), tallyChunk)
		if err := t.core.call(ctx, "count", func(ctx context.Context) error { return t.core.usage.Count(ctx, rest[:n]...) }); err != nil {
			for i := range t.shards {
				t.keep(&t.shards[i], overs[i], readings[i])
			}
			return
		}
		rest = rest[n:]
	}
}

// gather returns what is to be handed over of a shard: what could not be before, and that with what has changed since.
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

// keep has readings handed over again.
func (t *tallies) keep(s *tallyShard, over, readings []store.Reading) {
	if len(readings) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer t.arm()
	s.queue = append(over, s.queue...)
	if n := len(s.queue); n > maxTallies { // the later ones make up for them
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

// refused counts a refusal of Allow, whose levels nobody has asked for, with one of its plan's counters.
func (t *tallies) refused(p *plan, n *atomic.Int64) {
	if t == nil || n.Add(1) > 1 {
		return // somebody has put the plan on the list
	}
	t.mu.Lock()
	t.plans = append(t.plans, p)
	t.mu.Unlock()
	t.arm()
}

// collect counts what Allow has refused since the last time. Nobody has asked the store when that was, so that it goes by
// this process's clock, as of now.
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
			continue // it was on the list for both
		}
		t.count(store.Bucket{Namespace: p.space.id, Entity: p.entity, Resource: p.resource}, now, func(ta *tally) {
			ta.of("").Refused += n
			if p.one != nil { // else it may have been any of them
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

// tally counts what came of a request, other than that it was admitted.
func (l *Limiter) tally(ctx context.Context, req *Request, lease *Lease, err error) {
	if lease != nil && lease.degraded != nil {
		l.countDegraded(req.Entity, req.Resource)
	}
	if err != nil {
		l.countRefused(ctx, []Request{*req}, err)
	}
}

func (l *Limiter) tallyAll(ctx context.Context, reqs []Request, leases []*Lease, err error) {
	for i := range leases {
		if err == nil && leases[i].degraded != nil {
			l.countDegraded(reqs[i].Entity, reqs[i].Resource)
		}
	}
	l.countRefused(ctx, reqs, err)
}

// countRefused counts the refusal of requests that were refused together.
func (l *Limiter) countRefused(ctx context.Context, reqs []Request, err error) {
	over, ok := err.(*ExceededError) //nolint:errorlint // nobody has wrapped it yet, and refusals are many
	if !ok || l.core.tallies == nil {
		return
	}
	s, err := l.space(ctx, l.core.elapsed()) // known: there was a decision
	if err != nil {
		return
	}
	t := l.core.tallies
	for i := range reqs {
		b := store.Bucket{Namespace: s.id, Entity: reqs[i].Entity, Resource: reqs[i].Resource}
		t.count(b, over.At, func(ta *tally) { ta.of("").Refused++ })
	}
	for i := range over.Statuses {
		if st := &over.Statuses[i]; st.Refused {
			t.count(store.Bucket{Namespace: s.id, Entity: st.Entity, Resource: st.Resource}, over.At, func(ta *tally) {
				f := ta.of(st.Limit)
				f.Refused++
				f.RefusedTokens += st.Requested * 1000
			})
		}
	}
}

// countDegraded counts a request that was admitted though the store did not answer.
func (l *Limiter) countDegraded(entity, resource string) {
	s := l.pinned
	if f := l.found.Load(); s == nil && f != nil {
		s = f.space
	}
	if s != nil { // else nobody knows where to count it
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
