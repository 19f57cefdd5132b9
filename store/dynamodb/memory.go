package dynamodb

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/store"
)

// memory is what the process remembers of a bucket.
type memory struct {
	s   *Store
	key store.Bucket

	views atomic.Pointer[[]*view] // of recent debits

	shards  atomic.Pointer[[]*shard] // as many as any shard is known to be split into
	growing sync.Mutex
	scouts  map[int]*shard // others that were tried; guarded by growing
	deep    atomic.Int32   // the depth of the shard that was seen last
	flat    atomic.Int32   // the first shard of the generation of which one was last found missing; 0: none
	flatAt  atomic.Int64   // when it was found missing
	doubts  doubts
}

// maxViews is how many views a bucket remembers: usually those of a take and of a few adjustments.
const maxViews = 8

// view returns the view of some charges.
func (m *memory) view(charges []store.Charge) (*view, error) {
	old := m.views.Load()
	if old != nil {
		for _, v := range *old {
			if v.of(charges) {
				return v, nil
			}
		}
	}
	v, err := newView(charges)
	if err != nil {
		return nil, err
	}
	views := []*view{v}
	if old != nil {
		views = append(views, (*old)[:min(len(*old), maxViews-1)]...)
	}
	m.views.Store(&views) // of two concurrent calls, one may lose its view, which is then made again
	return v, nil
}

// root returns shard 0.
func (m *memory) root() *shard { return m.all()[0] }

// all returns the known shards.
func (m *memory) all() []*shard { return *m.shards.Load() }

// asked returns the known shards and the others that were tried.
func (m *memory) asked() []*shard {
	m.growing.Lock()
	defer m.growing.Unlock()
	if len(m.scouts) == 0 {
		return m.all()
	}
	return slices.AppendSeq(slices.Clone(m.all()), maps.Values(m.scouts))
}

// grow makes room for n shards.
func (m *memory) grow(n int) {
	if n <= len(m.all()) {
		return
	}
	m.growing.Lock()
	defer m.growing.Unlock()
	old := m.all()
	if n <= len(old) {
		return
	}
	shards := make([]*shard, n)
	copy(shards, old)
	for k := len(old); k < n; k++ {
		if shards[k] = m.scouts[k]; shards[k] == nil {
			shards[k] = m.s.newShard(m, k)
		}
		delete(m.scouts, k)
	}
	m.shards.Store(&shards)
}

// idle reports whether nothing is under way on the bucket, and nothing is held for it.
func (m *memory) idle() bool {
	for _, sh := range m.asked() {
		sh.lane.Lock()
		idle := sh.lane.Idle() && !sh.holds()
		sh.lane.Unlock()
		if !idle {
			return false
		}
	}
	return true
}

// memories are the memories of all recently used buckets.
type memories struct {
	mu sync.Mutex
	m  map[store.Bucket]*memory
}

// recall returns a bucket's memory.
func (s *Store) recall(key store.Bucket, ref *store.Ref) *memory {
	if m := store.Recall[memory](ref); m != nil && m.s == s {
		return m
	}
	s.memories.mu.Lock()
	defer s.memories.mu.Unlock()
	m := s.memories.m[key]
	if m == nil {
		if len(s.memories.m) >= s.cfg.MaxBuckets {
			s.memories.forget(s.cfg.MaxBuckets / 16)
		}
		m = &memory{s: s, key: key}
		m.shards.Store(&[]*shard{s.newShard(m, 0)})
		s.memories.m[key] = m
	}
	store.Remember(ref, m)
	return m
}

// forget drops about n memories that have nothing under way. A caller may still hold a dropped memory while another one
// is made for its bucket. The two then work side by side like two processes.
func (ms *memories) forget(n int) {
	for k, m := range ms.m {
		if n--; n < 0 {
			return
		}
		if m.idle() {
			delete(ms.m, k)
		}
	}
}
