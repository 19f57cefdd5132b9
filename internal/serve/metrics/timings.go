package metrics

import (
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// timings holds distributions of durations by key. There are few keys.
type timings[K comparable] struct {
	by atomic.Pointer[map[K]*timing]
	mu sync.Mutex // held to add a key
}

// timing is one distribution, in stripes to reduce contention.
type timing struct {
	stripes [4]struct {
		mu sync.Mutex
		histogram
		_ [64]byte
	}
}

func (t *timings[K]) observe(k K, d time.Duration) {
	if by := t.by.Load(); by != nil {
		if at := (*by)[k]; at != nil {
			at.observe(d)
			return
		}
	}
	t.add(k).observe(d)
}

func (t *timings[K]) add(k K) *timing {
	t.mu.Lock()
	defer t.mu.Unlock()
	var old map[K]*timing
	if p := t.by.Load(); p != nil {
		old = *p
	}
	if at := old[k]; at != nil {
		return at
	}
	grown := make(map[K]*timing, len(old)+1)
	maps.Copy(grown, old)
	grown[k] = &timing{}
	t.by.Store(&grown)
	return grown[k]
}

// all calls f with each distribution.
func (t *timings[K]) all(f func(K, *histogram)) {
	p := t.by.Load()
	if p == nil {
		return
	}
	for k, at := range *p {
		h := at.sum()
		f(k, &h)
	}
}

func (t *timing) observe(d time.Duration) {
	s := &t.stripes[rand.IntN(len(t.stripes))]
	s.mu.Lock()
	s.histogram.observe(d)
	s.mu.Unlock()
}

func (t *timing) sum() (h histogram) {
	for i := range t.stripes {
		s := &t.stripes[i]
		s.mu.Lock()
		h.add(&s.histogram)
		s.mu.Unlock()
	}
	return h
}
