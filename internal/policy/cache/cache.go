// Package cache caches the answers of a slow catalog.
//
// An entry, including one that means "there is none", lives for the TTL, give or take a tenth, so that a fleet does
// not reload in step. One caller at a time loads a key, in the background; the others wait for it, each until its
// context is done. If loading fails, the last known good entry is served, or [Config.Fallback] if there is none. No
// lock is held while loading.
package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a [Cache].
type Config[K comparable, V any] struct {
	TTL      time.Duration     // 0 or less: nothing is cached, every Get loads
	Max      int               // maximum number of entries; required
	Timeout  time.Duration     // of one load; required
	Fallback func(K) (V, bool) // used if loading fails and nothing is cached; must be fast; optional
	// Good reports whether Get may return a value, rather than only [Cache.Known]. Optional: nil accepts all values.
	Good func(V) bool
	// Group returns whose an entry is. If there is no room for another, the group with most gives way. Optional.
	Group func(K) string
}

// Load returns the values of keys, in order. If some are good and others not, the error is an [Errors]; the values of
// the others are returned by Known if nothing else is cached.
type Load[K comparable, V any] func(ctx context.Context, keys []K) ([]V, error)

// Errors holds the error of each key whose value is not good, and nil for the others.
type Errors []error

// Error joins the errors.
func (e Errors) Error() string { return errors.Join(e...).Error() }

// Cache maps keys to values. See [New].
type Cache[K comparable, V any] struct {
	cfg          Config[K, V]
	start        time.Time
	hits, misses atomic.Uint64

	mu      sync.Mutex
	entries map[K]entry[V]
	sizes   map[string]int // of the groups
	flights map[K]*flight[V]
	loads   sync.WaitGroup
	closed  bool
}

type entry[V any] struct {
	value   V
	expires time.Duration // since the cache's start
}

type flight[V any] struct {
	done  chan struct{} // of all flights of a load
	began time.Time
	entry entry[V]
	err   error

	expired bool       // its result may be stale: nobody joins it, and the result is at best the last known good
	prev    *flight[V] // an expired flight that has not landed
}

// New returns an empty cache.
func New[K comparable, V any](cfg Config[K, V]) *Cache[K, V] {
	cfg.TTL = min(cfg.TTL, 100*365*24*time.Hour) // practically forever, without overflowing sums of times
	return &Cache[K, V]{
		cfg: cfg, start: time.Now(), entries: make(map[K]entry[V]), sizes: make(map[string]int),
		flights: make(map[K]*flight[V]),
	}
}

// LateError reports that a context ended before a load did.
type LateError struct {
	Began time.Time // the load
	Err   error     // the context's
}

// Error returns the text of Err.
func (e *LateError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *LateError) Unwrap() error { return e.Err }

// Get returns the values of keys in order, and the time until which all of them may be used. Missing values are
// loaded, in one call for all keys that nobody else is loading at the moment.
func (c *Cache[K, V]) Get(ctx context.Context, keys []K, load Load[K, V]) ([]V, time.Time, error) {
	return c.Begin(ctx, keys, load)()
}

// Begin is Get in two steps: it begins to load what is missing, and the function that it returns waits.
func (c *Cache[K, V]) Begin(ctx context.Context, keys []K, load Load[K, V]) func() ([]V, time.Time, error) {
	now := time.Since(c.start)
	values := make([]V, len(keys))
	until := now + c.cfg.TTL + c.cfg.TTL/10 // the longest that any entry may live
	type wait struct {
		of int
		*flight[V]
	}
	var waits []wait
	var mine []K
	var fs []*flight[V] // of mine
	done := make(chan struct{})
	c.mu.Lock()
	for i, k := range keys {
		if e, ok := c.entries[k]; ok && now < e.expires {
			values[i] = e.value
			until = min(until, e.expires)
			c.hits.Add(1)
			continue
		}
		c.misses.Add(1)
		f, begun := c.join(k, done)
		if begun {
			mine, fs = append(mine, k), append(fs, f)
		}
		waits = append(waits, wait{i, f})
	}
	background := len(mine) > 0 && !c.closed
	if background {
		c.loads.Add(1)
	}
	c.mu.Unlock()
	switch {
	case background:
		go func() {
			defer c.loads.Done()
			c.fly(ctx, mine, fs, load)
		}()
	case len(mine) > 0:
		c.fly(ctx, mine, fs, load) // after Close, nothing is left running
	}
	return func() ([]V, time.Time, error) {
		for _, f := range waits {
			select {
			case <-f.done:
			case <-ctx.Done():
				return nil, time.Time{}, &LateError{f.began, ctx.Err()}
			}
			if f.err != nil {
				return nil, time.Time{}, f.err
			}
			values[f.of] = f.entry.value
			until = min(until, f.entry.expires)
		}
		return values, c.start.Add(until), nil
	}
}

// join returns the flight that loads a key, and whether the caller has to begin it, with done. The cache is locked.
func (c *Cache[K, V]) join(k K, done chan struct{}) (f *flight[V], begun bool) {
	f = c.flights[k]
	if f != nil && !f.expired {
		return f, false
	}
	f = &flight[V]{done: done, began: time.Now(), prev: f}
	if f.prev != nil {
		f.prev.prev = nil
	}
	c.flights[k] = f
	return f, true
}

// fly loads keys for all who wait for their flights. A caller that gives up does not cancel the load for the others.
func (c *Cache[K, V]) fly(ctx context.Context, keys []K, fs []*flight[V], load Load[K, V]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Timeout)
	defer cancel()
	values, err := load(ctx, keys)
	c.finish(keys, fs, values, err)
}

func (c *Cache[K, V]) finish(keys []K, fs []*flight[V], values []V, err error) {
	now := time.Since(c.start)
	some, partly := err.(Errors) //nolint:errorlint // Load returns it unwrapped
	again := jitter(min(c.cfg.TTL, retryAfter))
	if errors.Is(err, ErrMisses) { // whoever asks for none that may be missing can load the others
		again = 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range keys {
		f, err := fs[i], err
		if partly {
			err = some[i]
		}
		flying := c.flights[k]
		current := flying == f // otherwise the key was noted meanwhile and the loaded value may be stale
		if current {
			delete(c.flights, k)
		}
		old, known := c.entries[k]
		good := known && c.good(old.value)
		switch {
		case err == nil:
			f.entry = entry[V]{values[i], now + jitter(c.cfg.TTL)}
		case good: // last known good, until the next try
			f.entry = entry[V]{old.value, now + again}
		case known: // newer than what the fallback may have
			f.err = err
		default:
			if v, ok := c.fallback(k); ok && c.good(v) {
				f.entry = entry[V]{v, now + again}
			} else {
				f.err = err
			}
		}
		switch {
		case c.cfg.TTL <= 0:
		case f.err != nil:
			if partly && !known {
				c.put(k, entry[V]{value: values[i]})
			}
		case current && !f.expired:
			c.put(k, f.entry)
		case err == nil && !good && f.expired && (current || flying != nil && flying.prev == f):
			c.put(k, entry[V]{value: f.entry.value})
		}
	}
	close(fs[0].done)
}

func (c *Cache[K, V]) fallback(k K) (v V, ok bool) {
	if c.cfg.Fallback == nil {
		return v, false
	}
	return c.cfg.Fallback(k)
}

// retryAfter is how long the last known good entry is served before the next try to load.
const retryAfter = 2 * time.Second

func (c *Cache[K, V]) put(k K, e entry[V]) {
	if _, ok := c.entries[k]; !ok {
		if len(c.entries) >= c.cfg.Max {
			c.makeRoom()
		}
		c.sizes[c.group(k)]++
	}
	c.entries[k] = e
}

// makeRoom removes entries of the group with most: any will do, because entries still in use are loaded again. They are
// spread over the map: one whose parts are emptied and filled in turn grows.
func (c *Cache[K, V]) makeRoom() {
	most := ""
	for g, n := range c.sizes {
		if n > c.sizes[most] {
			most = g
		}
	}
	n := min(c.sizes[most], c.cfg.Max/16+1)
	every, seen := c.sizes[most]/n, 0
	for old := range c.entries {
		if c.group(old) != most {
			continue
		}
		if seen++; seen%every == 0 {
			c.remove(old)
			n--
		}
		if n == 0 {
			return
		}
	}
}

// remove removes an entry, if there is one.
func (c *Cache[K, V]) remove(k K) {
	if _, ok := c.entries[k]; !ok {
		return
	}
	delete(c.entries, k)
	g := c.group(k)
	if c.sizes[g]--; c.sizes[g] == 0 {
		delete(c.sizes, g)
	}
}

func (c *Cache[K, V]) group(k K) string {
	if c.cfg.Group == nil {
		return ""
	}
	return c.cfg.Group(k)
}

// Note replaces what is Known of a key by what f makes of it, until the next Get, which loads the key anew. If f
// returns false, the key is forgotten. The result of a load in progress is not cached. f must not return a
// [Config.Good] value.
func (c *Cache[K, V]) Note(k K, f func(now V, known bool) (V, bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, known := c.knownLocked(k)
	delete(c.flights, k)
	if v, ok := f(v, known); ok && c.cfg.TTL > 0 {
		c.put(k, entry[V]{value: v})
	} else {
		c.remove(k)
	}
}

func (c *Cache[K, V]) good(v V) bool { return c.cfg.Good == nil || c.cfg.Good(v) }

func (c *Cache[K, V]) knownLocked(k K) (V, bool) {
	if e, ok := c.entries[k]; ok {
		return e.value, true
	}
	return c.fallback(k)
}

// Known returns the cached values of keys, however old, or else those of [Config.Fallback]. It loads nothing. ok is
// false if any key has no known value.
func (c *Cache[K, V]) Known(keys []K) (values []V, ok bool) {
	values = make([]V, len(keys))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range keys {
		if values[i], ok = c.knownLocked(k); !ok {
			return nil, false
		}
	}
	return values, true
}

// ExpireFunc expires all keys for which f holds, so that the next Get of each loads it anew. The cached values are
// kept in case loading fails, and so is the result of a load in progress, if nothing is cached.
func (c *Cache[K, V]) ExpireFunc(f func(K) bool) {
	c.ExpireWithin(func(k K) (time.Duration, bool) { return 0, f(k) })
}

// ExpireWithin is ExpireFunc with a period: each key expires at some time within it, so that they are not all loaded
// at once.
func (c *Cache[K, V]) ExpireWithin(f func(K) (within time.Duration, ok bool)) {
	now := time.Since(c.start)
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, e := range c.entries {
		if within, ok := f(k); ok && within <= 0 {
			c.entries[k] = entry[V]{value: e.value}
		} else if ok {
			c.entries[k] = entry[V]{e.value, min(e.expires, now+rand.N(within))}
		}
	}
	for k, fl := range c.flights {
		if _, ok := f(k); ok {
			fl.expired = true
		}
	}
}

// Expire is ExpireFunc for the given keys.
func (c *Cache[K, V]) Expire(keys ...K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		if e, ok := c.entries[k]; ok {
			c.entries[k] = entry[V]{value: e.value}
		}
		if f := c.flights[k]; f != nil {
			f.expired = true
		}
	}
}

// Stats returns the number of hits and misses, and of cached entries.
func (c *Cache[K, V]) Stats() (hits, misses uint64, entries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hits.Load(), c.misses.Load(), len(c.entries)
}

// Close waits for loads in progress. A later Get loads on its caller's goroutine.
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
