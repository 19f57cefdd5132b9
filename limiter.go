package weir

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/breaker"
	"github.com/weirlimits/weir/internal/catalogcache"
	"github.com/weirlimits/weir/store"
)

// Config configures a [Limiter]. Only Store is required.
type Config struct {
	// Store decides and remembers. The limiter owns it: Close closes it.
	Store store.Store
	// Namespace is the isolated world in which ids are looked up. Defaults to "default", which always exists; any
	// other must have been created.
	Namespace string
	// NamespaceID is the namespace's opaque id. With it the registry of namespaces is never read, so that a tenant's
	// credentials need no access to it.
	NamespaceID string
	// CacheTTL is how long entities, limits and namespaces are remembered, give or take a tenth. A change through
	// this limiter is seen at once, one made elsewhere within the TTL or at the bucket's next debit. Negative means
	// that nothing is remembered. Defaults to 60 s.
	CacheTTL time.Duration
	// CacheEntries bounds how many records, and how many pairs of entity and resource, are remembered. Defaults to
	// 200,000.
	CacheEntries int
	// StoreTimeout bounds every call of the store. What comes of a late answer is up to OnUnavailable. Defaults
	// to 1 s.
	StoreTimeout time.Duration
	// DecideWithin bounds a decision as a whole, with all that it has to read: after that OnUnavailable answers. What
	// the store debits too late stays debited, and what it reads too late is there for the next. It is for as
	// long as whoever asks waits: [Limiter.Wait] and the changes of a [Lease] take what they take. At most, and by
	// default, StoreTimeout.
	DecideWithin time.Duration
	// OnUnavailable says what to answer when the store does not and neither the request nor what is set with the limits
	// says otherwise; see [Limiter.SetOnUnavailable]. Defaults to Deny.
	OnUnavailable Unavailable
	// Cooldown is how long, and up to a fifth longer, a store that has stopped answering is not asked: after ten failed
	// calls in a row over four times DecideWithin, or when half of at least ten calls in 2 s failed. Until then OnUnavailable answers, at once; then one
	// call finds out whether the store answers again. Negative: it is always asked. Defaults to 1 s.
	Cooldown time.Duration
	// Instances says how many processes share the limits, this one included, as far as is known: of so many a Local
	// decision takes one share. In a cell it counts those of the cell, whose store has the cell's limits. It must be fast.
	// Too few admit more than the limits allow, too many less. Defaults to 1.
	Instances func() int
	// LastGood, if not nil, is asked for what is known of records, all of one namespace, where the store does not answer,
	// or what it answers cannot be used, and nothing of them is remembered: what they were when the process that ran
	// before read them, say. A record of Version 0 is known not to exist; who needs one that cannot be read is refused. It
	// must be fast.
	LastGood func(keys []store.Key) (got store.Got, ok bool)
	// AuditRetention is how long audit events are kept. Defaults to 365 days.
	AuditRetention time.Duration
	// Observer is told what happens. Defaults to nobody.
	Observer *Observer
	// Shares, if not nil, says by which part of the limits this process goes, as one of a cell that shares them with other
	// cells. Defaults to the whole.
	Shares Shares
}

func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.CacheTTL = cmp.Or(c.CacheTTL, time.Minute)
	c.CacheEntries = cmp.Or(c.CacheEntries, 200_000)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, time.Second)
	c.DecideWithin = cmp.Or(c.DecideWithin, c.StoreTimeout)
	c.OnUnavailable = cmp.Or(c.OnUnavailable, Deny)
	c.Cooldown = cmp.Or(c.Cooldown, time.Second)
	if c.Instances == nil {
		c.Instances = func() int { return 1 }
	}
	c.AuditRetention = cmp.Or(c.AuditRetention, 365*24*time.Hour)
	if c.Observer == nil {
		c.Observer = &Observer{}
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Store == nil:
		return configErr("Config.Store", "is required: memory.New(nil), disk.Open(…)")
	case c.CacheEntries < 0:
		return configErr("Config.CacheEntries", "must not be negative")
	case c.StoreTimeout < 0:
		return configErr("Config.StoreTimeout", "must not be negative")
	case c.DecideWithin < 0:
		return configErr("Config.DecideWithin", "must not be negative")
	case c.DecideWithin > c.StoreTimeout:
		return configErr("Config.DecideWithin", "must be at most Config.StoreTimeout, which is %s", c.StoreTimeout)
	case c.AuditRetention < 0:
		return configErr("Config.AuditRetention", "must not be negative")
	}
	if err := checkID("Config.Namespace", c.Namespace); err != nil {
		return err
	}
	if c.NamespaceID != "" {
		if err := checkID("Config.NamespaceID", c.NamespaceID); err != nil {
			return err
		}
	}
	return c.OnUnavailable.validate("Config.OnUnavailable")
}

// Limiter decides whether entities may spend tokens on resources, within one namespace of one store. It never admits
// more than the limits allow. It is safe for concurrent use. See [New].
type Limiter struct {
	core   *core
	name   string // of the namespace
	pinned *space // of a namespace whose id is known
	found  atomic.Pointer[foundSpace]
	owner  bool
}

// foundSpace is a namespace that was looked up.
type foundSpace struct {
	space    *space
	until    int64  // nanoseconds since the limiter's start
	registry uint64 // core.registry, before the look-up
}

// core is what the views of one limiter share.
type core struct {
	cfg       Config
	store     store.Store
	immediate store.Immediate  // the store, if it never waits
	usage     store.Usage      // the store, if it keeps usage
	tallies   *tallies         // what this process counts itself; nil if the store keeps no usage
	near      *near            // nil if nobody is to be told
	breaker   *breaker.Breaker // nil if the store is always asked
	local     *local           // nil for a store that never waits
	coarse    coarseClock
	start     time.Time
	views     *catalogcache.Cache[viewKey, view]
	parts     parts // of limits, as Config.Shares says

	staleShare atomic.Uint64 // its epoch: a bucket may follow a newer one

	events   eventIDs
	registry atomic.Uint64 // how many changes of namespaces were made through this process

	mu     sync.Mutex
	spaces map[string]*space // by opaque id
	ended  atomic.Bool       // Close was called
	close  sync.Once
	closed error
}

// New returns a limiter over a store. It reads and writes nothing yet.
func New(cfg Config) (*Limiter, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	immediate, _ := cfg.Store.(store.Immediate)
	c := &core{
		cfg: cfg, store: cfg.Store, immediate: immediate, start: time.Now(),
		spaces: make(map[string]*space),
	}
	c.views = catalogcache.New(catalogcache.Config[viewKey, view]{
		TTL: cfg.CacheTTL, Max: cfg.CacheEntries, Timeout: cfg.StoreTimeout, Fallback: c.lastGood, Good: view.good,
	})
	c.guard()
	if c.usage, _ = cfg.Store.(store.Usage); c.usage != nil {
		c.tallies = newTallies(c)
	}
	if tell := cfg.Observer.NearLimit; tell != nil {
		c.near = newNear(tell)
	}
	l := c.in(cfg.Namespace)
	l.owner = true
	if cfg.NamespaceID != "" {
		l.pinned = c.space(cfg.NamespaceID)
	}
	return l, nil
}

// In returns a view of another namespace. It is cheap, shares the caches, and need not be closed. That the namespace
// exists is found out with the first call that needs it.
func (l *Limiter) In(namespace string) *Limiter {
	if namespace == l.name {
		return l
	}
	return l.core.in(namespace)
}

func (c *core) in(namespace string) *Limiter {
	l := &Limiter{core: c, name: namespace}
	if namespace == DefaultNamespace {
		l.pinned = c.space(DefaultNamespace)
	}
	return l
}

// Namespace returns the name of the limiter's namespace.
func (l *Limiter) Namespace() string { return l.name }

// Close waits for what is under way and closes the store. It is idempotent. Closing a view that [Limiter.In]
// returned does nothing.
func (l *Limiter) Close() error {
	if !l.owner {
		return nil
	}
	c := l.core
	c.close.Do(func() {
		c.ended.Store(true)
		c.views.Close()
		c.local.close()
		c.tallies.close()
		c.closed = c.store.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spaces {
			s.queues.changed() // whoever waits is to find out
		}
	})
	return c.closed
}

// Refresh has what is cached of all namespaces read anew, so that changes made elsewhere are seen at once; see
// [Limiter.Changed].
func (l *Limiter) Refresh() {
	c := l.core
	c.views.ExpireFunc(func(viewKey) bool { return true })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spaces {
		s.changed(change{all: true})
	}
	c.registry.Add(1)
}

// CacheStats is how the caches of entities, limits and namespaces fare, over all namespaces.
type CacheStats struct {
	Hits, Misses uint64        // of records; a decision on known limits looks up none
	Entries      int           // records remembered
	Plans        int           // pairs of entity and resource whose limits are remembered
	TTL          time.Duration // as configured; negative: off
	// NearLimits is of how many limits of entities it is remembered which near-limit events were told, and NearForgotten
	// of how many that was forgotten for lack of room: their events may be told again.
	NearLimits    int
	NearForgotten uint64
}

// CacheStats returns how the caches fare.
func (l *Limiter) CacheStats() CacheStats {
	c := l.core
	c.tallies.collect()
	s := CacheStats{TTL: c.cfg.CacheTTL}
	s.Hits, s.Misses, s.Entries = c.views.Stats()
	s.NearLimits, s.NearForgotten = c.near.stats()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sp := range c.spaces {
		s.Plans += sp.plans.len() + sp.chains.len()
		s.Hits += sp.hits.total()
	}
	return s
}

// elapsed returns the time since the limiter was made, by the monotonic clock.
func (c *core) elapsed() int64 { return int64(time.Since(c.start)) }

// space returns the one space of a namespace's opaque id.
func (c *core) space(id string) *space {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.spaces[id]
	if s == nil {
		s = newSpace(id, c.cfg.CacheEntries)
		c.spaces[id] = s
	}
	return s
}

// space returns the limiter's namespace, which it looks up when it must.
func (l *Limiter) space(ctx context.Context, now int64) (*space, error) {
	if l.pinned != nil {
		return l.pinned, nil
	}
	registry := l.core.registry.Load()
	if f := l.found.Load(); f != nil && now < f.until && f.registry == registry {
		return f.space, nil
	}
	if err := checkID("namespace", l.name); err != nil {
		return nil, err
	}
	vs, until, err := l.core.views.Get(ctx, []viewKey{{kind: namespaceView, id: l.name}}, l.core.loadViews)
	if err != nil {
		return nil, err
	}
	if !vs[0].exists || vs[0].namespace.Deleted != nil {
		return nil, notFound("namespace", l.name)
	}
	s := l.core.space(vs[0].namespace.ID)
	l.found.Store(&foundSpace{s, int64(until.Sub(l.core.start)), registry})
	return s, nil
}
