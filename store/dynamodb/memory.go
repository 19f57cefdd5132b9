package dynamodb

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/store"
)

// maxViews is how many views a bucket remembers: usually those of a take and of a few adjustments.
const maxViews = 8

// viewCache are the views of recent debits.
type viewCache struct{ views atomic.Pointer[[]*view] }

// view returns the view of some charges.
func (c *viewCache) view(charges []store.Charge) (*view, error) {
	old := c.views.Load()
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
	c.views.Store(&views) // of two concurrent calls, one may lose its view, which is then made again
	return v, nil
}

// shardList are the shards that a bucket is known to have.
type shardList struct {
	mu   sync.Mutex // held while the list is replaced
	list atomic.Pointer[[]*shard]
}

// resize makes the list n long, and returns it.
func (l *shardList) resize(n int, open func(k int) *shard) []*shard {
	l.mu.Lock()
	defer l.mu.Unlock()
	var shards []*shard
	if old := l.list.Load(); old != nil {
		shards = append(shards, (*old)[:min(n, len(*old))]...)
	}
	for k := len(shards); k < n; k++ {
		shards = append(shards, open(k))
	}
	l.list.Store(&shards)
	return shards
}

// root returns shard 0.
func (m *memory) root() *shard { return m.all()[0] }

// all returns the shards.
func (m *memory) all() []*shard { return *m.shards.list.Load() }

// idle reports whether nothing is under way on the bucket, and nothing is held for it.
func (m *memory) idle() bool {
	for _, sh := range m.all() {
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
func (s *Store) recall(key store.Bucket) *memory {
	s.memories.mu.Lock()
	defer s.memories.mu.Unlock()
	m := s.memories.m[key]
	if m == nil {
		if len(s.memories.m) >= s.cfg.MaxBuckets {
			s.memories.forget(s.cfg.MaxBuckets / 16)
		}
		m = &memory{s: s, key: key, laying: make(chan struct{}, 1)}
		m.follow(1)
		s.memories.m[key] = m
	}
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
