package metrics

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/serve/growing"
)

// timings holds distributions of durations by key. There are few keys.
type timings[K comparable] struct{ by growing.Map[K, *timing] }

// timing is one distribution, in stripes to reduce contention.
type timing struct {
	stripes [4]struct {
		mu sync.Mutex
		histogram
		_ [64]byte
	}
}

func (t *timings[K]) observe(k K, d time.Duration) {
	at, _ := t.by.Of(k, math.MaxInt, func(int) *timing { return new(timing) })
	at.observe(d)
}

// all calls f with each distribution.
func (t *timings[K]) all(f func(K, *histogram)) {
	for k, at := range t.by.All() {
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
