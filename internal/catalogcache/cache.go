// Package catalogcache remembers what a slow catalog said, for a while.
//
// An entry, also one that says "there is none", lives for the TTL, give or take a tenth, so that a fleet does not ask
// in step. One caller at a time loads a key, in the background; the others wait for it, each as long as its context
// lets it. When loading fails, the last known good entry serves on. No lock is held while loading.
package catalogcache

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a [Cache].
type Config struct {
	TTL     time.Duration // 0 or less: nothing is remembered, every Get loads
	Max     int           // entries at most; required
	Timeout time.Duration // of one load; required
}

// Load returns the values of keys, in their order.
type Load[K comparable, V any] func(ctx context.Context, keys []K) ([]V, error)

// Cache maps keys to values. See [New].
type Cache[K comparable, V any] struct {
	cfg          Config
	hits, misses atomic.Uint64

	mu      sync.Mutex
	entries map[K]entry[V]
	flights map[K]*flight[V]
	loads   sync.WaitGroup
	closed  bool
}

type entry[V any] struct {
	value   V
	expires time.Time
}

type flight[V any] struct {
	done  chan struct{}
	entry entry[V]
	err   error
}

// New returns an empty cache.
func New[K comparable, V any](cfg Config) *Cache[K, V] {
	cfg.TTL = min(cfg.TTL, 100*365*24*time.Hour) // for ever, but sums of times do not overflow
	return &Cache[K, V]{cfg: cfg, entries: make(map[K]entry[V]), flights: make(map[K]*flight[V])}
}

// Get returns the values of keys in their order, and until when all of them may be used. What is missing is loaded,
// in one call for all keys that nobody else is loading just now.
func (c *Cache[K, V]) Get(ctx context.Context, keys []K, load Load[K, V]) ([]V, time.Time, error) {
	now := time.Now()
	values := make([]V, len(keys))
	until := now.Add(c.cfg.TTL + c.cfg.TTL/10) // as long as any may live
	var waits map[int]*flight[V]
	var mine []K
	c.mu.Lock()
	for i, k := range keys {
		if e, ok := c.entries[k]; ok && now.Before(e.expires) {
			values[i] = e.value
			until = earlier(until, e.expires)
			c.hits.Add(1)
			continue
		}
		c.misses.Add(1)
		f := c.flights[k]
		if f == nil {
			f = &flight[V]{done: make(chan struct{})}
			c.flights[k] = f
			mine = append(mine, k)
		}
		if waits == nil {
			waits = make(map[int]*flight[V])
		}
		waits[i] = f
	}
	background := len(mine) > 0 && !c.closed
	if background {
		c.loads.Add(1)
	}
	c.mu.Unlock()
	if len(mine) > 0 {
		fs := make([]*flight[V], 0, len(mine))
		for i := range keys {
			if f := waits[i]; f != nil && len(fs) < len(mine) && mine[len(fs)] == keys[i] {
				fs = append(fs, f)
			}
		}
		run := func() {
			// A caller that gives up must not spoil it for the others.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Timeout)
			defer cancel()
			values, err := load(ctx, mine)
			c.finish(mine, fs, values, err)
		}
		if background {
			go func() {
				defer c.loads.Done()
				run()
			}()
		} else {
			run() // after Close nothing is left running
		}
	}
	for i, f := range waits {
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, time.Time{}, ctx.Err()
		}
		if f.err != nil {
			return nil, time.Time{}, f.err
		}
		values[i] = f.entry.value
		until = earlier(until, f.entry.expires)
	}
	return values, until, nil
}

func (c *Cache[K, V]) finish(keys []K, fs []*flight[V], values []V, err error) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range keys {
		f := fs[i]
		current := c.flights[k] == f // else the key was evicted meanwhile: what was loaded may be old
		if current {
			delete(c.flights, k)
		}
		old, known := c.entries[k]
		switch {
		case err == nil:
			f.entry = entry[V]{values[i], now.Add(jitter(c.cfg.TTL))}
		case known: // last known good, until the next try
			f.entry = entry[V]{old.value, now.Add(jitter(min(c.cfg.TTL, retryAfter)))}
		default:
			f.err = err
		}
		if current && f.err == nil && c.cfg.TTL > 0 {
			c.put(k, f.entry)
		}
		close(f.done)
	}
}

// retryAfter is how long the last known good entry serves before the next try to load.
const retryAfter = 2 * time.Second

func (c *Cache[K, V]) put(k K, e entry[V]) {
	if _, ok := c.entries[k]; !ok && len(c.entries) >= c.cfg.Max {
		n := 0
		for old := range c.entries { // any: what matters is loaded again
			delete(c.entries, old)
			if n++; n > c.cfg.Max/16 {
				break
			}
		}
	}
	c.entries[k] = e
}

// Evict forgets keys at once. What is being loaded for them is not remembered either.
func (c *Cache[K, V]) Evict(keys ...K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		delete(c.entries, k)
		delete(c.flights, k)
	}
}

// EvictFunc forgets all keys for which f holds.
func (c *Cache[K, V]) EvictFunc(f func(K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.entries {
		if f(k) {
			delete(c.entries, k)
		}
	}
	for k := range c.flights {
		if f(k) {
			delete(c.flights, k)
		}
	}
}

// Stats returns how often keys were found and not found, and how many are remembered.
func (c *Cache[K, V]) Stats() (hits, misses uint64, entries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hits.Load(), c.misses.Load(), len(c.entries)
}

// Close waits for loads under way. A Get that comes later loads on its caller's goroutine.
func (c *Cache[K, V]) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.loads.Wait()
}

func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d - d/10 + rand.N(d/5+1)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
