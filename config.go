package weir

import (
	"cmp"
	"context"
	"time"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

// Config configures a [Limiter]. Only Store is required.
type Config struct {
	// Store makes the decisions and keeps the state. The limiter owns it: [Limiter.Close] closes it.
	Store store.Store
	// Namespace is the isolated scope in which ids are looked up. Defaults to "default", which always exists; any other
	// namespace must have been created.
	Namespace string
	// NamespaceID is the namespace's opaque id. If set, the limiter reads neither the registry of namespaces nor
	// whether the store belongs to a cell ([ErrOfCell]): a tenant's credentials need access to the namespace alone.
	NamespaceID string
	// CacheTTL is how long entities, limits and namespaces are cached, plus or minus a tenth. A change made through
	// this limiter takes effect at once; one made elsewhere, within the TTL or at the bucket's next debit, whichever is
	// first. If negative, nothing is cached. Defaults to 60 s.
	CacheTTL time.Duration
	// CacheEntries bounds how many records, and how many pairs of entity and resource, are cached. Defaults to 200,000.
	CacheEntries int
	// StoreTimeout bounds each call to the store. Defaults to 1 s.
	StoreTimeout time.Duration
	// DecideWithin bounds a decision as a whole, including everything that it has to read; after that, OnUnavailable
	// decides. A debit that the store makes too late may stay debited: DynamoDB gives it back when that write is
	// answered. A late read is cached for the next decision. [Limiter.AcquireAll] has as much again for each further
	// 100 requests and, if late, may fail with [ErrOverloaded] instead, unless the limiter has stopped calling the
	// store. The bound is neither of [Limiter.Wait] as a whole nor of changes to a [Lease]. At most StoreTimeout, which
	// is the default.
	DecideWithin time.Duration
	// OnUnavailable is how to decide when the store does not answer, if the settings stored with the limits do not set
	// it; see admin.Limits.SetOnUnavailable. A request can only be stricter. Defaults to [OnUnavailableDeny].
	OnUnavailable OnUnavailable
	// Cooldown is how long, plus up to a fifth, the limiter stops calling a store that does not answer: when at least
	// ten calls in a row have failed, over a span of at least four times DecideWithin, or when at least half of ten or
	// more calls within 2 s have failed. Unless connections fail, such a half counts only if the last calls of all
	// callers within 2 s have failed, or those of at least three callers and half of all. Callers are namespaces or, if
	// there is only one, the tops of chains of entities. During the cooldown OnUnavailable decides at once; then one
	// call probes whether the store answers again. While fewer than three fail, the store is still called for others.
	// If negative, the store is always called. Defaults to 1 s.
	Cooldown time.Duration
	// Instances returns how many processes share the limits, this one included, as far as is known. A local decision
	// admits from one such share. In a cell it counts the cell's processes, because the cell's store holds the cell's
	// limits. It must be fast. A count that is too low admits more than the limits allow, one that is too high admits
	// less. Defaults to 1.
	Instances func() int
	// LocalMax is how much of each limit, in percent, all of the Instances together may admit by local decisions. From
	// 1 to 100, the default.
	LocalMax int
	// MaxHold is how long the slots of a lease are renewed. Defaults to 1 h.
	MaxHold time.Duration
	// AuditRetention is how long audit events are kept. Defaults to 365 days.
	AuditRetention time.Duration
	// Observer receives events. Defaults to none.
	Observer *Observer
}

func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.CacheTTL = cmp.Or(c.CacheTTL, time.Minute)
	c.CacheEntries = cmp.Or(c.CacheEntries, 200_000)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, time.Second)
	c.DecideWithin = cmp.Or(c.DecideWithin, c.StoreTimeout)
	c.OnUnavailable = cmp.Or(c.OnUnavailable, OnUnavailableDeny)
	c.Cooldown = cmp.Or(c.Cooldown, time.Second)
	c.LocalMax = cmp.Or(c.LocalMax, 100)
	c.MaxHold = cmp.Or(c.MaxHold, time.Hour)
	c.AuditRetention = cmp.Or(c.AuditRetention, 365*24*time.Hour)
	c.Observer = cmp.Or(c.Observer, &Observer{})
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
	case c.DecideWithin < 0 || c.DecideWithin > c.StoreTimeout:
		return configErr("Config.DecideWithin", "must be from 0 to Config.StoreTimeout, which is %s", c.StoreTimeout)
	case c.LocalMax < 1 || c.LocalMax > 100:
		return configErr("Config.LocalMax", "must be from 1 to 100, in percent")
	case c.MaxHold < 0:
		return configErr("Config.MaxHold", "must not be negative")
	case c.AuditRetention < 0:
		return configErr("Config.AuditRetention", "must not be negative")
	}
	err := checkID("Config.Namespace", c.Namespace)
	if err == nil && c.NamespaceID != "" {
		err = checkID("Config.NamespaceID", c.NamespaceID)
	}
	return cmp.Or(err, c.OnUnavailable.validate("Config.OnUnavailable"))
}

// observe returns how calls to the store are reported.
func (c *Config) observe() parts.Observe {
	f := c.Observer.Called
	if f == nil {
		return nil
	}
	return func(ctx context.Context, op string, took time.Duration, err error) {
		f(ctx, CalledEvent{op, took, err})
	}
}

// policies returns how limits are resolved.
func (c *Config) policies(catalog store.Catalog, onLocal func(), onChange func(namespaceID string)) policy.Config {
	cfg := policy.Config{
		Catalog: catalog, TTL: c.CacheTTL, Entries: c.CacheEntries, Timeout: c.StoreTimeout,
		Default: policy.Mode(c.OnUnavailable), Retention: c.AuditRetention, OnLocal: onLocal, OnChange: onChange,
		Restricted: c.NamespaceID != "",
	}
	if f := c.Observer.Unreadable; f != nil {
		cfg.Unreadable = func(ctx context.Context, err error) { f(ctx, UnreadableEvent{err}) }
	}
	return cfg
}

// outage returns what decides without the store; nil for a store that never waits.
func (c *Config) outage(p *parts.Parts) *outage.Fallback {
	if _, ok := c.Store.(store.InProcess); ok {
		return nil
	}
	cfg := outage.Config{
		Entries: c.CacheEntries, Instances: c.Instances, LocalMax: c.LocalMax, Settle: p.Store.Settle,
		Keep:     c.OnUnavailable == OnUnavailableLocal,
		Cooldown: c.Cooldown, DecideWithin: p.Within.Get, StoreTimeout: c.StoreTimeout,
		Held: func(b store.Bucket, limit string) int64 { return p.Holds.Held(b, limit) },
	}
	if f := c.Observer.Breaker; f != nil {
		cfg.Changed = func(state string) { f(context.Background(), BreakerEvent{state}) }
	}
	return outage.New(cfg)
}

// meter returns what to count and report.
func (c *Config) meter(usage store.Usage) (m meter.Config) {
	if usage != nil {
		m.Count = usage.Count
	}
	if f := c.Observer.NearLimit; f != nil {
		m.Near = func(ctx context.Context, e meter.Event) { f(ctx, NearLimitEvent(e)) }
	}
	if f := c.Observer.WouldRefuse; f != nil {
		m.Shadow = func(ctx context.Context, namespace string, b store.Bucket, c store.Charge, allowed bool) {
			f(ctx, WouldRefuseEvent{namespace, b.Entity, b.Resource, c.Limit.Name, c.Amount / 1000, allowed})
		}
	}
	return m
}
