// Package decide makes a limiter's decisions for clients on a network, in the same way for every protocol: it checks
// permissions and namespaces, bounds how many requests run at once, shares the store fairly between them, turns leases
// into IDs and back, and drains.
// httpapi and grpcapi only convert their requests and answers.
package decide

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/admission"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/conns"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/internal/serve/ratelog"
	"github.com/weirlimits/weir/internal/serve/watch"
)

// The default bounds on a server's concurrent load.
const (
	DefaultConnections = 10_000
	DefaultInflight    = 4096
	DefaultHeld        = 64 << 20
)

// MaxWait is the longest time that a request may wait for its tokens.
const MaxWait = time.Minute

// Config configures a [Decider] and the server around it. Only Limiter is required.
type Config struct {
	// Limiter makes the decisions. The server does not close it.
	Limiter *weir.Limiter
	// Book holds the tokens that requests must present. Defaults to nil: every caller may do everything.
	Book *auth.Book
	// Signer returns what signs lease ids; it may change. Instances that share a store must accept each other's ids.
	// Defaults to one with the store's own key.
	Signer func() *leaseid.Signer
	// LeaseTTL is how long a lease can be adjusted or rolled back; after that it counts as committed. At most 24 h.
	// Defaults to 10 min.
	LeaseTTL time.Duration
	// Grace is how long requests in progress may take after Serve's context has ended. Defaults to 15 s.
	Grace time.Duration
	// MaxConnections bounds the connections of Serve on which an authenticated request was made, one token's to three
	// quarters; see [conns.Listener]. [conns.DefaultUnauthenticated] others may be open. Defaults to
	// [DefaultConnections].
	MaxConnections int
	// MaxInflight bounds, separately, the requests being processed, the requests waiting for tokens and the streams;
	// more are refused. With a Book, one token may use at most three slots for each free one. Defaults to
	// [DefaultInflight].
	MaxInflight int
	// MaxBuckets bounds the live buckets of each namespace, and is what a namespace may have for which nothing is set;
	// see [parts.Quota]. All servers on the limiter share the first's. Defaults to what is set for the namespace, and
	// [parts.DefaultBuckets] where nothing is.
	MaxBuckets int
	// Held bounds what unfinished requests hold in memory. Servers may share it. Defaults to a budget of the server's
	// own, of [DefaultHeld] bytes.
	Held *conns.Budget
	// TLS secures the connections of Serve. Defaults to none.
	TLS *tls.Config
	// Watch polls buckets for all watchers. Defaults to a poller of the server's own that ticks every second.
	Watch *watch.Poller
	// Log receives problems and each request. Defaults to none.
	Log *slog.Logger
	// Ready returns why this process cannot decide although its store answers, or nil. It is called once a second, and
	// with each readiness probe. Defaults to nil, which is always ready.
	Ready func() error
	// LogRequests logs each request at level Info instead of Debug.
	LogRequests bool
	// Refusals counts and logs requests that are refused because of who sends them. Defaults to one for Log.
	Refusals *auth.Refusals
}

func (c Config) withDefaults() Config {
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 10*time.Minute)
	c.Grace = cmp.Or(c.Grace, 15*time.Second)
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultConnections)
	c.MaxInflight = cmp.Or(c.MaxInflight, DefaultInflight)
	if c.Held == nil {
		c.Held = conns.NewBudget(DefaultHeld)
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Refusals == nil {
		c.Refusals = &auth.Refusals{Log: c.Log}
	}
	return c
}

func (c Config) validate() error {
	bad := func(field, reason string) error { return &weir.ConfigError{Field: "Config." + field, Reason: reason} }
	switch {
	case c.Limiter == nil:
		return bad("Limiter", "is required")
	case c.LeaseTTL < time.Second || c.LeaseTTL > 24*time.Hour:
		return bad("LeaseTTL", "must be between 1s and 24h")
	case c.Grace < 0:
		return bad("Grace", "must not be negative")
	case c.MaxConnections < 0:
		return bad("MaxConnections", "must not be negative")
	case c.MaxInflight < 0:
		return bad("MaxInflight", "must not be negative")
	case c.MaxBuckets < 0:
		return bad("MaxBuckets", "must not be negative")
	}
	return nil
}

// Decider decides the requests of one server. It is safe for concurrent use.
type Decider struct {
	Config // with defaults

	running, waiting, streaming *admission.Slots
	batches                     batches

	drained context.Context //nolint:containedctx // ends when the server shuts down
	drain   context.CancelFunc

	logs
}

// New returns a decider. Without a Signer, it uses the store's key, which the store creates on first use.
func New(cfg Config) (*Decider, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Signer == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		key, err := leaseid.StoredKey(ctx, cfg.Limiter)
		if err != nil {
			return nil, fmt.Errorf("the key of lease ids in the store, which --lease-key-file replaces: %w", err)
		}
		signer := leaseid.New(key)
		cfg.Signer = func() *leaseid.Signer { return signer }
	}
	if cfg.Watch == nil {
		cfg.Watch = watch.New(cfg.Limiter)
	}
	d := &Decider{
		Config:  cfg,
		running: admission.New(cfg.MaxInflight), waiting: admission.New(cfg.MaxInflight),
		streaming: admission.New(cfg.MaxInflight),
		batches:   batches{workers: admission.New(maxOfAll)},
		logs: logs{
			cfg.Log, ratelog.New(cfg.Log), ratelog.New(cfg.Log), cfg.Refusals, cfg.MaxInflight, cfg.level(),
		},
	}
	parts.Of(cfg.Limiter).Gate.Use(shared(cfg.Limiter, cfg.MaxInflight))
	parts.Of(cfg.Limiter).Quota.Use(parts.QuotaRules{
		Most: cfg.MaxBuckets, Of: parts.Of(cfg.Limiter).Policies.MaxBuckets, Reached: func(name string, most int) {
			cfg.Log.Warn("a namespace is refused buckets: it has as many live ones on this server as it may",
				slog.String("namespace", name), slog.Int("max_buckets", most))
		},
	})
	d.drained, d.drain = context.WithCancel(context.Background())
	return d, nil
}

// Drain ends the requests that wait for tokens and the streams. It is idempotent.
func (d *Decider) Drain() { d.drain() }

// Draining reports whether Drain was called.
func (d *Decider) Draining() bool { return d.drained.Err() != nil }

// Unready returns why requests should go to other servers, as far as that is known without calling the store: the
// server drains, the store refuses writes, or the error of Config.Ready. It returns nil if they should not.
func (d *Decider) Unready() error {
	switch {
	case d.Draining():
		return ErrDraining
	case parts.Of(d.Limiter).Ready.Refused():
		return ErrRefusing
	case d.Ready != nil:
		return d.Ready()
	}
	return nil
}

// Long returns the context of a request that takes long: a stream, or one that waits. It also ends when the server
// drains, with [ErrDraining] as its cause, and at most [auth.Recheck] after the caller's token has expired, or was
// revoked or changed, with [ErrUnauthenticated]. Call end to release its resources.
func (d *Decider) Long(ctx context.Context) (_ context.Context, end func()) {
	p := CallerOf(ctx).Principal
	ctx, cancel := context.WithCancelCause(ctx)
	if d.Draining() { // AfterFunc would cancel later
		cancel(ErrDraining)
	}
	stop := context.AfterFunc(d.drained, func() { cancel(ErrDraining) })
	if p != nil && d.Book != nil {
		go d.recheck(ctx, p, cancel)
	}
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// recheck ends a request once its token is no longer what it was, until ctx ends.
func (d *Decider) recheck(ctx context.Context, p *auth.Principal, end context.CancelCauseFunc) {
	tick := time.NewTicker(auth.Recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !d.Book.Current(p) {
			end(ErrUnauthenticated)
			return
		}
	}
}

// In returns the limiter of the namespace that a request names, if the caller may access it so; "" means that it names
// none. The error does not reveal whether what the caller may not access exists.
func (d *Decider) In(c *Caller, a auth.Access) (*weir.Limiter, error) {
	if a.Namespace == "" {
		a.Namespace = c.Namespace(d.Limiter.Namespace())
	}
	if lacks := c.Lacks(a); lacks != "" {
		return nil, Refused(c.Principal, lacks, a.Role, false)
	}
	return d.Limiter.In(a.Namespace), nil
}

var override = []auth.Permission{auth.Override}

// AccessOf returns what a request to acquire needs.
func AccessOf(namespace string, req *weir.Request) auth.Access {
	a := auth.Access{Role: auth.Acquire, Namespace: namespace, Entity: req.Entity, Resource: req.Resource}
	if len(req.Limits) > 0 {
		a.Permissions = override
	}
	return a
}

// Acquire decides a request of a caller that may acquire in the limiter's namespace. If wait is positive, it waits that
// long for the tokens, but only until the server drains.
func (d *Decider) Acquire(
	ctx context.Context, c *Caller, lim *weir.Limiter, req weir.Request, wait time.Duration,
) (*weir.Lease, error) {
	if wait <= 0 {
		return lim.Acquire(ctx, req)
	}
	if err := c.move(d.waiting); err != nil {
		return nil, err
	}
	long, end := d.Long(ctx)
	defer end()
	bounded, cancel := context.WithTimeout(long, wait)
	defer cancel()
	lease, err := lim.Wait(bounded, req)
	switch {
	case err == nil, errors.Is(err, weir.ErrExceeded), bounded.Err() == nil, ctx.Err() != nil:
		return lease, err
	case long.Err() != nil:
		return nil, context.Cause(long)
	default:
		return nil, ErrTooLong
	}
}
