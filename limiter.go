package weir

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/parts"
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

// DefaultNamespace is the namespace that exists in every store. Its opaque id is its name.
const DefaultNamespace = record.DefaultNamespace

// Limiter decides whether entities may spend tokens on resources, within one namespace of one store. It never admits
// more than the limits allow. It is safe for concurrent use. Create one with [New].
type Limiter struct {
	handle
	policies *policy.Namespace // which limits apply to which entity
	outage   *outage.Fallback  // decides without the store; nil for a store that never waits
	meter    *meter.Recorder   // counts and reports

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
	st, usage := parts.Bound(cfg.Store, cfg.StoreTimeout, cfg.observe())
	l := &Limiter{
		cfg: &cfg, store: st, queues: &queue.Queues[[]LimitStatus]{}, closing: &closing{}, owner: true,
		outage: cfg.outage(st.Settle), meter: meter.New(cfg.meter(usage)),
	}
	l.inProcess, _ = cfg.Store.(store.InProcess)
	resolver := policy.New(cfg.policies(st, l.outage.Want, l.queues.Changed))
	l.join(usage, resolver.Namespace(cfg.Namespace, cfg.NamespaceID))
	return l, nil
}

// join makes the limiter that of a namespace.
func (l *Limiter) join(usage store.Usage, n *policy.Namespace) {
	l.policies = n
	l.handle = parts.Join(parts.Parts{Store: l.store, Usage: usage, Policies: n, Outage: l.outage, Meter: l.meter})
}

// In returns a limiter for another namespace of the same store. It is cheap, shares this limiter's caches, and need not
// be closed. The first call that needs the namespace checks that it exists.
func (l *Limiter) In(namespace string) *Limiter {
	if namespace == l.Namespace() {
		return l
	}
	other := *l
	other.owner = false
	other.join(parts.Of(l).Usage, l.policies.Namespace(namespace, ""))
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
		l.outage.Close()
		l.meter.Close()
		l.closing.err = l.store.Close()
		l.queues.Changed("") // wakes the waiters
	})
	return l.closing.err
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
	var none *policy.NoLimitsError
	switch {
	case errors.As(err, &none):
		return &NoLimitsError{none.Entity, none.Resource}
	case errors.Is(err, policy.ErrNoShare):
		return &unavailableError{err}
	}
	return publicError(err)
}

// decideWithin bounds a decision with all its calls; for a store that never waits, it does nothing.
func (l *Limiter) decideWithin(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.inProcess != nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, l.cfg.DecideWithin)
}
