package policy

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy/auditlog"
	"github.com/weirlimits/weir/internal/policy/cache"
	"github.com/weirlimits/weir/internal/policy/coarse"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Config configures a [Resolver].
type Config struct {
	Catalog   store.Catalog
	TTL       time.Duration // of what is cached; negative: nothing is
	Entries   int           // bounds the cached records, and the cached policies
	Timeout   time.Duration // of a read of the catalog
	Default   Mode          // where no scope sets one
	Retention time.Duration // of audit events
	// Restricted leaves out the check that the store belongs to no cell, which reads outside the namespace.
	Restricted bool

	OnLocal    func()                       // called for each policy whose mode is ModeLocal
	OnChange   func(namespaceID string)     // called after policies of a namespace have become invalid
	Unreadable func(context.Context, error) // called for each record that cannot be used; optional
}

// Resolver resolves which limits apply, for all namespaces of a store. It is safe for concurrent use.
type Resolver struct {
	cfg     Config
	start   time.Time
	clock   coarse.Clock
	records *cache.Cache[store.Key, *catalogRecord] // they are never changed
	hits    coarse.Counter
	none    atomic.Pointer[catalogRecord] // the last one read that stands for no record
	scaled  scaledSets
	audit   *auditlog.Log

	shares     Shares        // nil if limits are not shared
	staleShare atomic.Uint64 // its epoch: a bucket may follow a newer one
	adjusted   atomic.Pointer[adjustment]
	known      func([]store.Key) (store.Got, bool)

	registry atomic.Uint64 // how many changes to namespaces were made through this process
	namespaces
}

// New returns a resolver. It does not access the catalog yet.
func New(cfg Config) *Resolver {
	r := &Resolver{
		cfg: cfg, start: time.Now(), audit: auditlog.New(cfg.Retention),
		namespaces: namespaces{states: make(map[string]*namespaceState)},
	}
	r.records = cache.New(cache.Config[store.Key, *catalogRecord]{
		TTL: cfg.TTL, Max: cfg.Entries, Timeout: cfg.Timeout, Fallback: r.lastGood, Good: (*catalogRecord).good,
		Group: func(k store.Key) string { return k.Namespace },
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
		n.pinned = r.state(id, name)
	}
	return n
}

// state returns the one state of a namespace's opaque id, creating it if needed.
func (r *Resolver) state(id, name string) *namespaceState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.states[id]
	if s == nil {
		s = &namespaceState{
			resolver: r, id: id, name: name, full: newPolicies(), parents: newPolicies(),
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

// MaxBuckets returns the name of a namespace that was used, and how many live buckets its record allows; 0 if that sets
// no number. It reads the record unless that is cached, as it is where the name was just looked up. Where the record
// cannot be read, the number is the one that was read last; 0 if none ever was.
func (r *Resolver) MaxBuckets(ctx context.Context, id string) (name string, most int) {
	s := r.used(id)
	if s == nil {
		return id, 0
	}
	rs, _, err := r.records.Get(ctx, []store.Key{record.NamespaceKey(s.name)}, r.load)
	if err == nil && rs[0].namespace.ID == id {
		s.maxBuckets.Store(int64(rs[0].namespace.MaxBuckets))
	}
	return s.name, int(s.maxBuckets.Load())
}

// NamespaceIDs returns the opaque ids of the namespaces used so far, in no particular order.
func (r *Resolver) NamespaceIDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.states))
}

// misses returns what bounds the lookup of keys, which are of one namespace; nil if nothing does.
func (r *Resolver) misses(keys []store.Key) *cache.Misses {
	s := r.used(keys[0].Namespace)
	if s == nil || !slices.ContainsFunc(keys, func(k store.Key) bool { return k.Kind == store.KindEntity }) {
		return nil
	}
	if system := s.system.Load(); system == nil || !system.known {
		return nil
	}
	return &s.unknown
}

// load reads records of one namespace in one call to the store. If the namespace only takes known entities, a flood of
// other names reads no more than [cache.Misses] allow.
func (r *Resolver) load(ctx context.Context, keys []store.Key) ([]*catalogRecord, error) {
	misses := r.misses(keys)
	if misses.Spent(r.elapsed()) {
		return nil, &store.Error{Op: "get", Key: keys[0].String(), Err: cache.ErrMisses, Extent: store.ExtentCall}
	}
	records, err := r.decoded(ctx, keys)
	for i, rec := range records {
		if keys[i].Kind == store.KindEntity && !rec.exists {
			misses.Add(r.elapsed())
		}
	}
	return records, err
}

// decoded reads and decodes records of one namespace. If only some are good, the error is a [cache.Errors].
func (r *Resolver) decoded(ctx context.Context, keys []store.Key) ([]*catalogRecord, error) {
	got, err := r.cfg.Catalog.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	records := make([]*catalogRecord, len(keys))
	none := r.none.Load()
	if none == nil || none.epoch != got.Epoch {
		none = &catalogRecord{epoch: got.Epoch}
		r.none.Store(none)
	}
	var bad cache.Errors
	for i, k := range keys {
		if got.Records[i].Version == 0 {
			records[i] = none
			continue
		}
		rec, err := decode(k, got.Records[i])
		if err != nil {
			if bad == nil { // the other records are good
				bad = make(cache.Errors, len(keys))
			}
			bad[i] = err
			if r.cfg.Unreadable != nil {
				r.cfg.Unreadable(ctx, err)
			}
		}
		rec.epoch = got.Epoch
		records[i] = &rec
	}
	if bad != nil {
		return records, bad
	}
	return records, nil
}

// lastGood returns a record from outside the process, possibly an unreadable one; see [Resolver.Use].
func (r *Resolver) lastGood(k store.Key) (*catalogRecord, bool) {
	if r.known == nil {
		return nil, false
	}
	got, ok := r.known([]store.Key{k})
	if !ok || len(got.Records) != 1 {
		return nil, false
	}
	rec, _ := decode(k, got.Records[0])
	rec.epoch = got.Epoch
	return &rec, true
}

// elapsed returns the time since the resolver was created, by the monotonic clock.
func (r *Resolver) elapsed() int64 { return int64(time.Since(r.start)) }

// asOf returns the time as of which limits apply, in nanoseconds since the clock's epoch.
func (r *Resolver) asOf() int64 {
	now := clock.Nanos(time.Now())
	if a := r.adjusted.Load(); a != nil && r.elapsed() < a.until {
		return clock.Add(now, int64(a.by))
	}
	return now
}

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
	s.Hits += r.hits.Total()
	s.Policies = int(r.kept.Load())
	return s
}

// Close waits for reads in progress.
func (r *Resolver) Close() { r.records.Close() }
