package weir

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/cache"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Config configures a [Limiter]. Only Store is required.
type Config struct {
	// Store makes the decisions and keeps the state. The limiter owns it: [Limiter.Close] closes it.
	Store store.Store
	// Namespace is the isolated scope in which ids are looked up. Defaults to "default", which always exists; any other
	// namespace must have been created.
	Namespace string
	// NamespaceID is the namespace's opaque id. If set, the limiter never reads the registry of namespaces, so a
	// tenant's credentials need no access to it.
	NamespaceID string
	// CacheTTL is how long entities, limits and namespaces are cached, plus or minus a tenth. A change made through
	// this limiter takes effect at once; one made elsewhere, within the TTL or at the bucket's next debit, whichever is
	// first. If negative, nothing is cached. Defaults to 60 s.
	CacheTTL time.Duration
	// CacheEntries bounds how many records, and how many pairs of entity and resource, are cached. Defaults to 200,000.
	CacheEntries int
	// StoreTimeout bounds each call to the store. If a decision gets no answer in time, OnUnavailable decides. Defaults
	// to 1 s.
	StoreTimeout time.Duration
	// DecideWithin bounds a decision as a whole, including everything that it has to read; after that, OnUnavailable
	// decides. A debit that the store makes too late stays debited, and a late read is cached for the next decision. It
	// does not bound [Limiter.Wait] as a whole, nor changes to a [Lease]. At most StoreTimeout, which is the default.
	DecideWithin time.Duration
	// OnUnavailable says how to decide when the store does not answer, if neither the request nor the settings stored
	// with the limits say so; see [Limiter.SetOnUnavailable]. Defaults to [OnUnavailableDeny].
	OnUnavailable OnUnavailable
	// Cooldown is how long, plus up to a fifth, the limiter stops calling a store that does not answer: once ten or
	// more calls in a row have failed over four times DecideWithin, or half of at least ten calls within 2 s. During
	// the cooldown OnUnavailable decides at once; then one call probes whether the store answers again. If negative,
	// the store is always called. Defaults to 1 s.
	Cooldown time.Duration
	// Instances returns how many processes share the limits, this one included, as far as is known. A local decision
	// admits from one such share. In a cell it counts the cell's processes, because the cell's store holds the cell's
	// limits. It must be fast. A count that is too low admits more than the limits allow, one that is too high admits
	// less. Defaults to 1.
	Instances func() int
	// LastGood, if not nil, returns what is known of records, all of one namespace, when the store does not answer, or
	// answers with something unusable, and they are not cached: for example, what the previous process last read. A
	// record of Version 0 is known not to exist. Requests that need a record that cannot be read are refused. It must
	// be fast.
	LastGood func(keys []store.Key) (got store.Got, ok bool)
	// AuditRetention is how long audit events are kept. Defaults to 365 days.
	AuditRetention time.Duration
	// Observer receives events. Defaults to none.
	Observer *Observer
	// Shares, if not nil, says which part of the limits this process may use, as a member of a cell that shares them
	// with other cells. Defaults to the whole.
	Shares Shares
}

func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.CacheTTL = cmp.Or(c.CacheTTL, time.Minute)
	c.CacheEntries = cmp.Or(c.CacheEntries, 200_000)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, time.Second)
	c.DecideWithin = cmp.Or(c.DecideWithin, c.StoreTimeout)
	c.OnUnavailable = cmp.Or(c.OnUnavailable, OnUnavailableDeny)
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
		return configErr("Config.Store", "is required, such as memory.New(nil) or disk.Open(…)")
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
// more than the limits allow. It is safe for concurrent use. Create one with [New].
type Limiter struct {
	handle
	core   *core
	name   string // of the namespace
	pinned *space // of a namespace whose id is known without a lookup
	found  atomic.Pointer[foundSpace]
	owner  bool
}

type handle = parts.Handle

// foundSpace is the result of a namespace lookup.
type foundSpace struct {
	space    *space
	until    int64  // nanoseconds since the limiter's start
	registry uint64 // core.registry, before the lookup
}

// core is what a limiter and its views of other namespaces share.
type core struct {
	cfg       Config
	store     store.Store
	inProcess store.InProcess // the store, if it never waits
	usage     store.Usage     // the store, if it keeps usage
	meter     *meter.Recorder
	outage    *outage.Fallback // nil for a store that never waits
	coarse    coarseClock
	start     time.Time
	views     *cache.Cache[viewKey, view]
	parts     scaledSets // of limits, as Config.Shares says

	staleShare atomic.Uint64 // its epoch: a bucket may follow a newer one

	audit    policy.Auditor
	registry atomic.Uint64 // how many changes to namespaces were made through this process

	mu     sync.Mutex
	spaces map[string]*space // by opaque id
	ended  atomic.Bool       // Close was called
	close  sync.Once
	closed error
}

// New returns a limiter over a store. It does not access the store yet.
func New(cfg Config) (*Limiter, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	inProcess, _ := cfg.Store.(store.InProcess)
	c := &core{
		cfg: cfg, inProcess: inProcess, start: time.Now(), spaces: make(map[string]*space),
		audit: policy.Auditor{Retention: cfg.AuditRetention},
	}
	calls := newCalls(&cfg)
	c.store = calls
	c.views = cache.New(cache.Config[viewKey, view]{
		TTL: cfg.CacheTTL, Max: cfg.CacheEntries, Timeout: cfg.StoreTimeout, Fallback: c.lastGood, Good: view.good,
	})
	c.outage = c.newOutage()
	if calls.usage != nil {
		c.usage = calls
	}
	c.meter = meter.New(cfg.meter(c.usage))
	l := c.in(cfg.Namespace)
	l.owner = true
	if cfg.NamespaceID != "" {
		l.pinned = c.space(cfg.NamespaceID)
	}
	return l, nil
}

// meter returns what to count and report.
func (c *Config) meter(usage store.Usage) (m meter.Config) {
	if usage != nil {
		m.Count = usage.Count
	}
	if f := c.Observer.NearLimit; f != nil {
		m.Near = func(ctx context.Context, e meter.Event) {
			f(ctx, NearLimitEvent{
				ID: e.ID, Namespace: e.Namespace, Entity: e.Entity, Resource: e.Resource, Limit: e.Limit,
				Override: e.Override,
				Shadow:   e.Shadow, Kind: NearLimitKind(e.Kind), Percent: e.Percent, Used: e.Used, Of: e.Of,
				WindowStart: e.WindowStart, WindowLength: e.WindowLength, At: e.At,
			})
		}
	}
	if f := c.Observer.WouldRefuse; f != nil {
		m.Shadow = func(ctx context.Context, namespace string, b store.Bucket, c store.Charge, allowed bool) {
			f(ctx, WouldRefuseEvent{namespace, b.Entity, b.Resource, c.Limit.Name, c.Amount / 1000, allowed})
		}
	}
	return m
}

// In returns a limiter for another namespace of the same store. It is cheap, shares this limiter's caches, and need not
// be closed. The first call that needs the namespace checks that it exists.
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
	l.handle = parts.Join(parts.Parts{Store: c.store, Usage: c.usage, Policies: policies{l}, Flush: c.meter.Flush})
	return l
}

// policies implements [parts.Policies].
type policies struct{ lim *Limiter }

// ID implements [parts.Policies].
func (p policies) ID(ctx context.Context) (string, error) {
	s, err := p.lim.space(ctx, p.lim.core.elapsed())
	if err != nil {
		return "", err
	}
	return s.id, nil
}

// Commit implements [parts.Policies].
func (p policies) Commit(ctx context.Context, namespaceID string, events []record.Event, writes ...store.Write) error {
	return p.lim.core.commitEvents(ctx, namespaceID, events, writes...)
}

// Changed implements [parts.Policies].
func (p policies) Changed(keys ...store.Key) { p.lim.Changed(keys...) }

// Namespace returns the name of the limiter's namespace.
func (l *Limiter) Namespace() string { return l.name }

// Close waits for operations in progress and closes the store. It is idempotent. On a limiter that [Limiter.In]
// returned for another namespace, it does nothing.
func (l *Limiter) Close() error {
	if !l.owner {
		return nil
	}
	c := l.core
	c.close.Do(func() {
		c.ended.Store(true)
		c.views.Close()
		c.outage.Close()
		c.meter.Close()
		c.closed = c.store.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spaces {
			s.queues.changed() // waiters must find out
		}
	})
	return c.closed
}

// Refresh expires everything that is cached, in all namespaces, so that changes made elsewhere take effect at once; see
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

// CacheStats describes the caches of entities, limits and namespaces, over all namespaces.
type CacheStats struct {
	Hits, Misses uint64        // lookups of records; a decision on cached limits is one hit
	Entries      int           // cached records
	Plans        int           // cached pairs of entity and resource with their limits
	TTL          time.Duration // as configured; negative if nothing is cached
	// NearLimits is the number of limits of entities whose near-limit events are remembered as sent. NearForgotten
	// counts those that were forgotten for lack of room: their events may be sent again.
	NearLimits    int
	NearForgotten uint64
}

// CacheStats returns statistics of the caches.
func (l *Limiter) CacheStats() CacheStats {
	c := l.core
	s := CacheStats{TTL: c.cfg.CacheTTL}
	s.Hits, s.Misses, s.Entries = c.views.Stats()
	s.NearLimits, s.NearForgotten = c.meter.Stats()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sp := range c.spaces {
		s.Plans += sp.plans.len() + sp.chains.len()
		s.Hits += sp.hits.total()
	}
	return s
}

// elapsed returns the time since the limiter was created, by the monotonic clock.
func (c *core) elapsed() int64 { return int64(time.Since(c.start)) }

// space returns the one space of a namespace's opaque id, creating it if needed.
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

// space returns the limiter's namespace, looking it up if needed.
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

// BackstopStats describes what happens while the store does not answer, over all namespaces since the limiter was
// created.
type BackstopStats struct {
	// Breaker is the breaker's state: "closed", "open" or "half-open"; "" if the store is always called.
	Breaker string
	// Openings counts how often the limiter stopped calling the store.
	Openings uint64
	// The decisions made without the store, admitted or not, by cause.
	TimedOut, Failed, NotAsked uint64
	// Shares is the number of buckets for which this process keeps a share; Instances is the number of processes that
	// share the limits.
	Shares, Instances int
	// Admitted counts the tokens admitted from shares, over all limits; Refused counts the requests that shares
	// refused.
	Admitted, Refused uint64
	// Owing is the number of buckets with tokens admitted but not yet charged to the store. Charged and Lost count the
	// tokens that were charged to it, and those that never will be. Time has covered the rest.
	Owing         int
	Charged, Lost uint64
}

// BackstopStats returns statistics of what happens while the store does not answer.
func (l *Limiter) BackstopStats() BackstopStats {
	s := l.core.outage.Stats()
	return BackstopStats{
		Breaker: s.Breaker, Openings: s.Openings, TimedOut: s.TimedOut, Failed: s.Failed, NotAsked: s.NotCalled,
		Shares: s.Shares, Instances: s.Instances, Admitted: s.Admitted, Refused: s.Refused,
		Owing: s.Owing, Charged: s.Charged, Lost: s.Lost,
	}
}
