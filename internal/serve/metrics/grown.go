package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// grown is a map that is read often and rarely grows, and from which nothing is ever removed. Reading it takes no lock.
type grown[K comparable, V any] struct {
	known atomic.Pointer[map[K]V]
	mu    sync.Mutex // held to add a key
}

// all returns the map. It must not be changed.
func (g *grown[K, V]) all() map[K]V {
	if known := g.known.Load(); known != nil {
		return *known
	}
	return nil
}

// of returns the value of a key. It creates that of a new key, with the number of known ones, unless there are most; then
// it returns the zero value.
func (g *grown[K, V]) of(k K, most int, create func(known int) V) (v V) {
	if v, ok := g.all()[k]; ok {
		return v
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.all()
	if v, ok := old[k]; ok || len(old) >= most {
		return v
	}
	v = create(len(old))
	next := maps.Clone(old)
	if next == nil {
		next = map[K]V{}
	}
	next[k] = v
	g.known.Store(&next)
	return v
}
