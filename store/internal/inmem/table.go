package inmem

import (
	"bytes"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

const (
	shards = 64
	// firstSweep is how many buckets a shard holds before the first sweep.
	firstSweep = 256
	// sweepEvery is the time after which a birth sweeps its shard even if the shard has not grown.
	sweepEvery = int64(time.Minute)
	// idle is how long a full bucket is kept, because one that fills up between its requests would be reborn with
	// each of them. When the table is full, idle buckets are not kept.
	idle = int64(10 * time.Second)
)

// Config configures a table.
type Config struct {
	Now        func() time.Time // nil: the wall clock at New, advanced by the monotonic clock
	NotBefore  time.Time        // no earlier time is ever used
	Births     uint64           // IDs of new buckets are greater
	MaxBuckets int              // buckets in use at once; required
	Retired    store.Retired    // may be nil
	Journal    Journal          // may be nil
	Meter      *Meter           // may be nil
}

// Table holds buckets. See [New].
type Table struct {
	cfg    Config
	start  time.Time // with a monotonic reading
	base   int64     // nanoseconds since clock.Epoch at start
	floor  atomic.Int64
	births atomic.Uint64
	count  atomic.Int64
	swept  atomic.Int64 // when all shards may be swept again for lack of room
	seed   maphash.Seed
	shards [shards]shard

	metering
	limits  interner
	settled settledShards
	credits credits
}

type shard struct {
	mu      sync.RWMutex
	buckets index
	sweepAt int
	sweptAt int64
	_       [64]byte // keeps shards on separate cache lines
}

// New returns an empty table.
func New(cfg Config) *Table {
	t := &Table{cfg: cfg, seed: maphash.MakeSeed(), start: time.Now()}
	t.base = clock.Nanos(t.start)
	if !cfg.NotBefore.IsZero() {
		t.base = max(t.base, clock.Nanos(cfg.NotBefore))
		t.floor.Store(clock.Nanos(cfg.NotBefore))
	} else {
		t.floor.Store(-1 << 63)
	}
	t.swept.Store(math.MinInt64)
	if t.meter, t.span = cfg.Meter, unmetered; cfg.Meter != nil {
		t.span = uint64(minute)
	}
	// IDs start from the time, so that a bucket reborn in a later process has a different one.
	t.births.Store(max(uint64(max(1, t.Now())), cfg.Births))
	for i := range t.shards {
		t.shards[i].buckets.seed = t.seed
		t.shards[i].sweepAt = firstSweep
	}
	return t
}

// Now returns the table's time in nanoseconds since clock.Epoch.
func (t *Table) Now() int64 {
	var n int64
	if t.cfg.Now != nil {
		n = clock.Nanos(t.cfg.Now())
	} else {
		n = t.base + int64(time.Since(t.start))
	}
	return max(n, t.floor.Load())
}

// raise ensures that nothing is judged at a time before now from here on.
func (t *Table) raise(now int64) {
	for f := t.floor.Load(); f < now && !t.floor.CompareAndSwap(f, now); f = t.floor.Load() {
	}
}

// Len returns the number of buckets in the table.
func (t *Table) Len() int { return int(t.count.Load()) }

// lock returns the bucket of a key, locked. If there is none, lock creates it if create is set, and returns nil
// otherwise.
func (t *Table) lock(key store.Bucket, create bool) (*Bucket, error) {
	for {
		b, err := t.get(key, create)
		if b == nil || err != nil {
			return nil, err
		}
		b.mu.Lock()
		if !b.Dead() {
			return b, nil
		}
		b.mu.Unlock() // evicted meanwhile
	}
}

// get returns the bucket of a key, not locked, perhaps dead by now.
func (t *Table) get(key store.Bucket, create bool) (*Bucket, error) {
	var buf [128]byte
	k := appendKey(buf[:0], key)
	s, hash := t.shard(k)
	s.mu.RLock()
	b := s.buckets.get(hash, k)
	s.mu.RUnlock()
	if b == nil && create {
		return t.birth(s, hash, key, k)
	}
	return b, nil
}

// birth adds an empty bucket for a key, or returns the existing one.
func (t *Table) birth(s *shard, hash uint64, key store.Bucket, k []byte) (*Bucket, error) {
	if bytes.Count(k, []byte{0}) != 2 || len(k) > maxKey || key.Namespace == "" || key.Entity == "" ||
		key.Resource == "" {
		return nil, store.ErrInvalid
	}
	now := t.Now()
	if int(t.count.Load()) >= t.cfg.MaxBuckets && !t.makeRoom(now) {
		return nil, store.ErrTooManyBuckets
	}
	s.mu.Lock()
	if b := s.buckets.get(hash, k); b != nil {
		s.mu.Unlock()
		return b, nil
	}
	var retired []store.State
	if n := s.buckets.len(); n >= s.sweepAt || now-s.sweptAt >= sweepEvery && n > 0 {
		retired = t.sweep(s, now, idle)
	}
	b := &Bucket{key: string(k)}
	b.id, b.at = t.births.Add(1), now
	s.buckets.put(hash, b)
	t.count.Add(1)
	s.mu.Unlock()
	t.retire(retired)
	return b, nil
}

// makeRoom sweeps all shards, for at most a fifth of the time, and reports whether there is room for another bucket.
func (t *Table) makeRoom(now int64) bool {
	next := t.swept.Load()
	if now >= next && t.swept.CompareAndSwap(next, math.MaxInt64) {
		began := time.Now()
		for i := range t.shards {
			s := &t.shards[i]
			s.mu.Lock()
			retired := t.sweep(s, now, 0)
			s.mu.Unlock()
			t.retire(retired)
		}
		t.swept.Store(now + 1 + 4*int64(time.Since(began)))
	}
	return int(t.count.Load()) < t.cfg.MaxBuckets
}

// sweep evicts the full buckets of a locked shard that have been idle that long. It skips buckets in use.
func (t *Table) sweep(s *shard, now, idle int64) (retired []store.State) {
	// An evicted bucket was full now, but perhaps not before.
	t.raise(now)
	s.buckets.sweep(func(b *Bucket) bool {
		if !b.mu.TryLock() {
			return false
		}
		defer b.mu.Unlock()
		if b.Dead() || now-b.at < idle || !b.full(now) {
			return false
		}
		t.gone(b)
		if t.cfg.Journal != nil {
			t.cfg.Journal.Evicted(b)
		}
		if t.cfg.Retired != nil && b.counted() {
			retired = append(retired, b.state(ParseKey(b.key), now))
		}
		b.id = 0
		t.count.Add(-1)
		return true
	})
	s.sweepAt = max(firstSweep, 2*s.buckets.len())
	s.sweptAt = now
	return retired
}

func (t *Table) retire(states []store.State) {
	for _, s := range states {
		t.cfg.Retired(s)
	}
}

// shard returns the shard of a key, and the key's hash.
func (t *Table) shard(k []byte) (*shard, uint64) {
	hash := maphash.Bytes(t.seed, k)
	return &t.shards[hash%shards], hash
}

// appendKey appends the map key of a bucket. The parts contain no NUL: birth rejects one that does.
func appendKey(dst []byte, b store.Bucket) []byte {
	dst = append(append(dst, b.Namespace...), 0)
	dst = append(append(dst, b.Entity...), 0)
	return append(dst, b.Resource...)
}

// ParseKey returns the bucket that a key names. Keys order buckets as [store.Bucket.Compare] does.
func ParseKey(k string) store.Bucket {
	ns, rest, _ := strings.Cut(k, "\x00")
	entity, resource, _ := strings.Cut(rest, "\x00")
	return store.Bucket{Namespace: ns, Entity: entity, Resource: resource}
}
