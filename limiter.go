package weir

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/parts/holds"
	"github.com/weirlimits/weir/internal/parts/queue"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// MaxDepth is the maximum number of entities in a chain: an entity, its parent, and so on.
const MaxDepth = policy.MaxDepth

// DefaultResource is the name under which an entity's limits for all other resources are stored and shown. No entity,
// resource, limit or namespace can have this name.
const DefaultResource = record.DefaultResource

// TotalResource is the resource of an entity's limits on all resources together. No request can name it.
const TotalResource = store.Total

// GroupResource returns the resource of limits on a group; see admin.Limits.SetGroup. No request can name it.
func GroupResource(group string) string { return store.GroupPrefix + group }

// DefaultNamespace is the namespace that exists in every store. Its opaque id is its name.
const DefaultNamespace = record.DefaultNamespace

// Limiter decides whether entities may spend tokens on resources, within one namespace of one store. It never admits
// more than the limits allow. It is safe for concurrent use. Create one with [New].
type Limiter struct {
	handle
	policies *policy.Namespace // which limits apply to which entity
	outage   *outage.Fallback  // decides without the store; nil for a store that never waits
	holds    *holds.Holds      // what leases hold of limits of slots
	meter    *meter.Recorder   // counts and reports
	ready    *parts.Ready      // whether it can decide

	cfg       *Config
	store     store.Store
	inProcess store.InProcess              // the store, if it never waits
	queues    *queue.Queues[[]LimitStatus] // of Wait
	closing   *closing
	owner     bool // Close closes the store
}

type handle = parts.Handle

type closing struct {
	ended atomic.Bool // Close was called
	once  sync.Once
	err   error
}

// New returns a limiter over a store. It does not access the store yet.
func New(cfg Config) (*Limiter, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := parts.Parts{
		Trips: &parts.Trips{}, Ready: &parts.Ready{},
		Gate: &parts.Gate{}, Quota: &parts.Quota{}, Within: &parts.Within{},
	}
	p.Within.Set(cfg.DecideWithin)
	p.Store, p.Usage = parts.Bound(cfg.Store, cfg.StoreTimeout, cfg.observe(), &p)
	p.Outage, p.Meter = cfg.outage(&p), meter.New(cfg.meter(p.Usage))
	p.Holds = holds.New(holds.Config{
		Settle: p.Store.Settle, Outage: p.Outage, Timeout: cfg.StoreTimeout, Max: cfg.MaxHold,
	})
	l := &Limiter{
		cfg: &cfg, store: p.Store, queues: &queue.Queues[[]LimitStatus]{}, closing: &closing{}, owner: true,
		outage: p.Outage, holds: p.Holds, meter: p.Meter, ready: p.Ready,
	}
	l.inProcess, _ = cfg.Store.(store.InProcess)
	resolver := policy.New(cfg.policies(p.Store, p.Outage.Want, l.queues.Changed))
	l.join(p, resolver.Namespace(cfg.Namespace, cfg.NamespaceID))
	return l, nil
}

// join makes the limiter that of a namespace.
func (l *Limiter) join(p parts.Parts, n *policy.Namespace) {
	l.policies, p.Policies = n, n
	l.handle = parts.Join(p)
}

// In returns a limiter for another namespace of the same store. It is cheap, shares this limiter's caches, and need not
// be closed. The first call that needs the namespace checks that it exists.
func (l *Limiter) In(namespace string) *Limiter {
	if namespace == l.Namespace() {
		return l
	}
	other := *l
	other.owner = false
	other.join(*parts.Of(l), l.policies.Namespace(namespace, ""))
	return &other
}

// Namespace returns the name of the limiter's namespace.
func (l *Limiter) Namespace() string { return l.policies.Name() }

// Close waits for operations in progress and closes the store. It is idempotent. On a limiter that [Limiter.In]
// returned for another namespace, it does nothing.
func (l *Limiter) Close() error {
	if !l.owner {
		return nil
	}
	l.closing.once.Do(func() {
		l.closing.ended.Store(true)
		l.policies.Close()
		l.holds.Close()
		l.outage.Close()
		l.meter.Close()
		l.closing.err = l.store.Close()
		l.queues.Changed("") // wakes the waiters
	})
	return l.closing.err
}

// estimate sets when slots that a request was refused may be free.
func (l *Limiter) estimate(s *LimitStatus, of *store.Limit, b *store.Bucket) {
	if !of.IsSlots() {
		return
	}
	if s.typical = l.holds.Typical(*b, of.Name); s.Refused {
		s.RetryAfter, s.Estimated = s.within(s.typical), true
	}
}

// policyOf returns the policy for a request. It may return one together with an error of the cell's share.
func (l *Limiter) policyOf(ctx context.Context, req *Request) (*policy.Policy, error) {
	p, err := l.policies.Resolve(ctx, req.Entity, req.Resource, req.usesOwn())
	if err != nil {
		err = resolveError(err)
	}
	return p, err
}

// resolveError returns an error of the policies as this package defines it.
func resolveError(err error) error {
	if errors.Is(err, policy.ErrNoShare) || errors.Is(err, ErrOfCell) {
		return &unavailableError{err}
	}
	return publicError(err)
}
