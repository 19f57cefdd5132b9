package meter

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
)

const (
	tallyShards = 16
	// maxTallies is how many buckets a shard counts individually. It counts as many further ones by their resources,
	// and the rest by their namespaces: clients may invent names of entities, resources and limits.
	maxTallies = 4096
	// maxLimits is how many limits of a bucket are counted individually, and "" for the requests: no bucket has more at
	// a time.
	maxLimits = 1 + store.MaxLimits + store.MaxOverrides
	// tallyEvery is how long counts wait before they are handed to the store.
	tallyEvery = 5 * time.Second
	// idleTally is how long a tally without changes is kept.
	idleTally = 10 * time.Minute
	// tallyChunk is how many readings are handed over at once.
	tallyChunk = 1000
)

// others stands for the entities, resources or limits for which there was no room to count them individually.
const others = "_default_"

// tallies counts what only this process sees: refusals, adjustments, degraded decisions. Like a bucket's, the counters
// only grow under an id, so the store may receive them twice.
type tallies struct {
	hand   func(context.Context, ...store.Reading) error
	source string
	births atomic.Uint64
	armed  atomic.Bool
	closed atomic.Bool
	seed   maphash.Seed
	shards [tallyShards]tallyShard
	order  sync.Mutex // of flushes

	mu       sync.Mutex
	refusals []refusals // by Allow
}

type tallyShard struct {
	mu    sync.Mutex
	m     map[store.Bucket]*tally
	queue []store.Reading // of past hours
}

// refusals is a counter of requests that were refused without being asked for levels.
type refusals struct {
	n      *atomic.Int64
	bucket store.Bucket
	only   *store.Charge // what refused; nil if several limits may have
}

// tally holds the counts of one bucket. Its shard's lock guards it.
type tally struct {
	id     uint64
	at     time.Time // of the last change
	counts []store.LimitFigures
	dirty  bool
}

func newTallies(hand func(context.Context, ...store.Reading) error) *tallies {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	t := &tallies{hand: hand, source: hex.EncodeToString(id[:]), seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].m = make(map[store.Bucket]*tally)
	}
	return t
}

// count updates the counters of a bucket. Each bucket is counted in the shard of its name, also where it stands for
// others: it has one id at a time, and a store takes none that is smaller than before.
func (t *tallies) count(b store.Bucket, at time.Time, f func(*tally)) {
	if t == nil {
		return
	}
	if !t.in(b, maxTallies, at, f) {
		if b.Entity = others; !t.in(b, 2*maxTallies, at, f) {
			b.Resource = others
			t.in(b, math.MaxInt, at, f)
		}
	}
	t.arm()
}

// in updates the counters of a bucket in its shard. It reports false if they are not there and the shard has so many.
func (t *tallies) in(b store.Bucket, most int, at time.Time, f func(*tally)) bool {
	s := &t.shards[maphash.Comparable(t.seed, b)%tallyShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	ta := s.m[b]
	if ta == nil && len(s.m) >= most {
		return false
	}
	if ta == nil {
		ta = &tally{id: t.births.Add(1), at: at}
		s.m[b] = ta
	}
	if at.Before(ta.at) {
		at = ta.at
	}
	if ta.dirty && at.Unix()/3600 != ta.at.Unix()/3600 {
		s.queue = append(s.queue, t.reading(b, ta))
	}
	ta.at, ta.dirty = at, true
	f(ta)
	return true
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
	find := func(c store.LimitFigures) bool { return c.Limit == limit }
	i := slices.IndexFunc(ta.counts, find)
	if i < 0 && len(ta.counts) >= maxLimits {
		limit = others
		i = slices.IndexFunc(ta.counts, find)
	}
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
		if err := t.hand(ctx, rest[:n]...); err != nil {
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

// refused counts a refusal in the counter n, which is 0 again once it was collected.
func (t *tallies) refused(n *atomic.Int64, b store.Bucket, only *store.Charge) {
	if t == nil || n.Add(1) > 1 {
		return // the counter is on the list already
	}
	t.mu.Lock()
	t.refusals = append(t.refusals, refusals{n, b, only})
	t.mu.Unlock()
	t.arm()
}

// collect counts the refusals of Allow since the last time. Their store times are not known, so they are counted at the
// current time of this process's clock.
func (t *tallies) collect() {
	t.mu.Lock()
	all := t.refusals
	t.refusals = nil
	t.mu.Unlock()
	now := time.Now()
	for _, r := range all {
		n := r.n.Swap(0)
		t.count(r.bucket, now, func(ta *tally) {
			ta.of("").Refused += n
			if r.only != nil {
				f := ta.of(r.only.Limit.Name)
				f.Refused += n
				f.RefusedTokens += n * r.only.Amount
			}
		})
	}
}
