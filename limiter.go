package weir

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

// Limiter decides whether entities may spend tokens on resources, within one namespace of one store. It never admits
// more than the limits allow. It is safe for concurrent use. Create one with [New].
type Limiter struct {
	handle
	policies *policy.Namespace // who is limited by what
	outage   *outage.Fallback  // what to answer without the store; nil for a store that never waits
	meter    *meter.Recorder   // what to count and report

	cfg       *Config
	store     store.Store
	inProcess store.InProcess // the store, if it never waits
	queues    *queues         // of Wait
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
	calls := newCalls(&cfg)
	l := &Limiter{
		cfg: &cfg, store: calls, queues: &queues{}, closing: &closing{}, owner: true,
		outage: cfg.outage(calls.Settle),
	}
	l.inProcess, _ = cfg.Store.(store.InProcess)
	var usage store.Usage
	if calls.usage != nil {
		usage = calls
	}
	l.meter = meter.New(cfg.meter(usage))
	resolver := policy.New(cfg.policies(calls, l.outage.Want, l.queues.changed))
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
		l.queues.changed("") // waiters must find out
	})
	return l.closing.err
}

// resolve returns the policy for a request. It may return one together with an error of the cell's share.
func (l *Limiter) resolve(ctx context.Context, req *Request) (*policy.Policy, error) {
	p, err := l.policies.Resolve(ctx, req.Entity, req.Resource, req.usesOwn())
	return p, resolveError(err)
}

// namespaceID returns the opaque id of the limiter's namespace.
func (l *Limiter) namespaceID(ctx context.Context) (string, error) {
	id, err := l.policies.ID(ctx)
	return id, resolveError(err)
}

// resolveError returns an error of the policies as this package defines it.
func resolveError(err error) error {
	if err == nil {
		return nil // before the variable, which is on the heap
	}
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

// beginning returns the start time of a decision if an observer wants its duration.
func (l *Limiter) beginning() (began time.Time) {
	if l.cfg.Observer.Decided != nil {
		began = time.Now()
	}
	return began
}

// debited hands debits under a policy to the meter's tap.
func (l *Limiter) debited(debits []store.Debit, p *policy.Policy) {
	if l.meter.Tapped() {
		l.meter.Debited(l.Namespace(), debits, p.Share.Num, p.Share.Den)
	}
}

// countDegraded counts a request that was admitted without the store.
func (l *Limiter) countDegraded(req *Request) {
	if id := l.policies.LastID(); id != "" { // otherwise the namespace is not known
		l.meter.Request(store.Bucket{Namespace: id, Entity: req.Entity, Resource: req.Resource}, time.Now(), false)
	}
}

// countRefusal counts a refusal of Allow.
func (l *Limiter) countRefusal(p *policy.Policy) {
	l.meter.RefusedOne(&p.Refused, p.Bucket(), p.Single)
}
