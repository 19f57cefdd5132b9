package policy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/policy/cache"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Config configures a [Resolver].
type Config struct {
	Catalog   store.Catalog
	TTL       time.Duration // of what is cached; negative: nothing is
	Entries   int           // bounds the cached records, and the cached policies of a namespace
	Timeout   time.Duration // of a read of the catalog
	Default   Mode          // where no scope sets one
	Retention time.Duration // of audit events

	OnLocal    func()                       // called for each policy whose mode is ModeLocal
	OnChange   func(namespaceID string)     // called after policies of a namespace have become invalid
	Unreadable func(context.Context, error) // called for each record that cannot be used; optional
}

// Resolver resolves which limits apply, for all namespaces of a store. It is safe for concurrent use.
type Resolver struct {
	cfg     Config
	start   time.Time
	clock   coarseClock
	records *cache.Cache[store.Key, catalogRecord]
	hits    counter
	scaled  scaledSets
	audit   auditor

	shares     Shares        // nil if limits are not shared
	staleShare atomic.Uint64 // its epoch: a bucket may follow a newer one
	known      func([]store.Key) (store.Got, bool)

	registry atomic.Uint64 // how many changes to namespaces were made through this process
	mu       sync.Mutex
	states   map[string]*namespaceState // by opaque id
}

// New returns a resolver. It does not access the catalog yet.
func New(cfg Config) *Resolver {
	r := &Resolver{
		cfg: cfg, start: time.Now(), audit: auditor{retention: cfg.Retention},
		states: make(map[string]*namespaceState),
	}
	r.records = cache.New(cache.Config[store.Key, catalogRecord]{
		TTL: cfg.TTL, Max: cfg.Entries, Timeout: cfg.Timeout, Fallback: r.lastGood, Good: catalogRecord.good,
	})
	return r
}

// Use sets the shares of the limits that this process may use, and what is known of records, all of one namespace, when
// the store does not answer, or answers with something unusable, and they are not cached: for example, what the
// previous process last read. A record of Version 0 is known not to exist. Requests that need a record that is not
// known are refused. lastGood must be fast. Either may be nil. Use must be called before the first decision.
func (r *Resolver) Use(shares Shares, lastGood func([]store.Key) (store.Got, bool)) {
	r.shares, r.known = shares, lastGood
}

// Namespace returns the namespace of a name. If id is "", the opaque id is looked up when it is first needed, except
// for that of the default namespace.
func (r *Resolver) Namespace(name, id string) *Namespace {
	if id == "" && name == record.DefaultNamespace {
		id = record.DefaultNamespace
	}
	n := &Namespace{Resolver: r, name: name}
	if id != "" {
		n.pinned = r.state(id)
	}
	return n
}

// state returns the one state of a namespace's opaque id, creating it if needed.
func (r *Resolver) state(id string) *namespaceState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.states[id]
	if s == nil {
		s = &namespaceState{
			resolver: r, id: id, full: newPolicies(r.cfg.Entries), parents: newPolicies(r.cfg.Entries),
		}
		r.states[id] = s
	}
	return s
}

// used returns the state of a namespace's opaque id; nil if it was never used.
func (r *Resolver) used(id string) *namespaceState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[id]
}

// NamespaceIDs returns the opaque ids of the namespaces used so far, in no particular order.
func (r *Resolver) NamespaceIDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]string, 0, len(r.states))
	for id := range r.states {
		ids = append(ids, id)
	}
	return ids
}

// load reads records of one namespace in one call to the store.
func (r *Resolver) load(ctx context.Context, keys []store.Key) ([]catalogRecord, error) {
	got, err := r.cfg.Catalog.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	records := make([]catalogRecord, len(keys))
	var bad cache.Errors
	for i, k := range keys {
		if records[i], err = decode(k, got.Records[i]); err != nil {
			if bad == nil { // the other records are good
				bad = make(cache.Errors, len(keys))
			}
			bad[i] = err
			if r.cfg.Unreadable != nil {
				r.cfg.Unreadable(ctx, err)
			}
		}
		records[i].epoch = got.Epoch
	}
	if bad != nil {
		return records, bad
	}
	return records, nil
}

// lastGood returns a record from outside the process, possibly an unreadable one; see [Resolver.Use].
func (r *Resolver) lastGood(k store.Key) (catalogRecord, bool) {
	if r.known == nil {
		return catalogRecord{}, false
	}
	got, ok := r.known([]store.Key{k})
	if !ok || len(got.Records) != 1 {
		return catalogRecord{}, false
	}
	rec, _ := decode(k, got.Records[0])
	rec.epoch = got.Epoch
	return rec, true
}

// elapsed returns the time since the resolver was created, by the monotonic clock.
func (r *Resolver) elapsed() int64 { return int64(time.Since(r.start)) }

// Stats describes the caches, over all namespaces.
type Stats struct {
	Hits, Misses uint64        // lookups of records; a decision on cached limits is one hit
	Entries      int           // cached records
	Policies     int           // cached pairs of entity and resource with their limits
	TTL          time.Duration // as configured; negative if nothing is cached
}

// Stats returns statistics of the caches.
func (r *Resolver) Stats() Stats {
	s := Stats{TTL: r.cfg.TTL}
	s.Hits, s.Misses, s.Entries = r.records.Stats()
	s.Hits += r.hits.total()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, st := range r.states {
		s.Policies += st.full.len() + st.parents.len()
	}
	return s
}

// Close waits for reads in progress.
func (r *Resolver) Close() { r.records.Close() }
