// Package growing has a map for a few values that every request reads.
package growing

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Map is a map that is read often and rarely grows, and from which nothing is ever removed. Reading takes no lock. The
// zero value is empty and ready to use.
type Map[K comparable, V any] struct {
	known atomic.Pointer[map[K]V]
	mu    sync.Mutex // held to add a key
}

// All returns the map as it is now. It must not be changed.
func (m *Map[K, V]) All() map[K]V {
	if known := m.known.Load(); known != nil {
		return *known
	}
	return nil
}

// Of returns the value of a key. It creates that of a new key, with the number of known ones, unless there are most:
// then it returns the zero value and false.
func (m *Map[K, V]) Of(k K, most int, create func(known int) V) (V, bool) {
	if v, ok := m.All()[k]; ok || len(m.All()) >= most {
		return v, ok
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.All()
	if v, ok := old[k]; ok || len(old) >= most {
		return v, ok
	}
	v, next := create(len(old)), make(map[K]V, len(old)+1)
	maps.Copy(next, old)
	next[k] = v
	m.known.Store(&next)
	return v, true
}
