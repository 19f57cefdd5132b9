// Package decide makes a limiter's decisions for clients on a network, in the same way for every protocol: it checks
// permissions and namespaces, bounds how many requests run at once, turns leases into IDs and back, and drains.
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
	"github.com/weirlimits/weir/internal/serve/admission"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/internal/serve/ratelog"
	"github.com/weirlimits/weir/internal/serve/watch"
)

// The default bounds on a server's concurrent load.
const (
	DefaultConnections = 10_000
	DefaultInflight    = 4096
)

// MaxWait is the longest time that a request may wait for its tokens.
const MaxWait = time.Minute

// Config configures a [Decider] and the server around it. Only Limiter is required.
type Config struct {
	// Limiter makes the decisions. The server does not close it.
	Limiter *weir.Limiter
	// Book holds the tokens that requests must present. Defaults to nil: every caller may do everything.
	Book *auth.Book
	// LeaseKey signs lease ids. It must have at least 16 bytes, and instances that share a store must use the same key.
	// Defaults to the store's own key.
	LeaseKey []byte
	// LeaseTTL is how long a lease can be adjusted or rolled back; after that it counts as committed. At most 24 h.
	// Defaults to 10 min.
	LeaseTTL time.Duration
	// Grace is how long requests in progress may take after Serve's context has ended. Defaults to 15 s.
	Grace time.Duration
	// MaxConnections bounds the connections of Serve. Others are closed at once, but for a few that HTTP keeps for
	// probes. Defaults to [DefaultConnections].
	MaxConnections int
	// MaxInflight bounds, separately, the requests being processed, the requests waiting for tokens and the streams;
	// more are refused. With a Book, one token may use at most three slots for each free one. Defaults to
	// [DefaultInflight].
	MaxInflight int
	// TLS secures the connections of Serve. Defaults to none.
	TLS *tls.Config
	// Watch polls buckets for all watchers. Defaults to a poller of the server's own that ticks every second.
	Watch *watch.Poller
	// Log receives problems and, at level Debug, each request. Defaults to none.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 10*time.Minute)
	c.Grace = cmp.Or(c.Grace, 15*time.Second)
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultConnections)
	c.MaxInflight = cmp.Or(c.MaxInflight, DefaultInflight)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	bad := func(field, format string, args ...any) error {
		return &weir.ConfigError{Field: "Config." + field, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case c.Limiter == nil:
		return bad("Limiter", "is required")
	case len(c.LeaseKey) > 0 && len(c.LeaseKey) < leaseid.MinKey:
		return bad("LeaseKey", "has %d bytes, at least %d are needed", len(c.LeaseKey), leaseid.MinKey)
	case c.LeaseTTL < time.Second || c.LeaseTTL > 24*time.Hour:
		return bad("LeaseTTL", "must be between 1s and 24h")
	case c.Grace < 0:
		return bad("Grace", "must not be negative")
	case c.MaxConnections < 0:
		return bad("MaxConnections", "must not be negative")
	case c.MaxInflight < 0:
		return bad("MaxInflight", "must not be negative")
	}
	return nil
}

// Decider decides the requests of one server. It is safe for concurrent use.
type Decider struct {
	Config // with defaults

	signer *leaseid.Signer

	running, waiting, streaming *admission.Slots

	drained context.Context //nolint:containedctx // ends when the server shuts down
	drain   context.CancelFunc

	logs
}

// New returns a decider. Without a LeaseKey, it uses the store's key, which the store creates on first use.
func New(cfg Config) (*Decider, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	signer, err := leaseid.Open(cfg.Limiter, cfg.LeaseKey)
	if err != nil {
		return nil, err
	}
	if cfg.Watch == nil {
		cfg.Watch = watch.New(cfg.Limiter, 0)
	}
	d := &Decider{
		Config: cfg, signer: signer,
		running: admission.New(cfg.MaxInflight), waiting: admission.New(cfg.MaxInflight),
		streaming: admission.New(cfg.MaxInflight),
		logs:      logs{cfg.Log, ratelog.New(cfg.Log), ratelog.New(cfg.Log), ratelog.New(cfg.Log), cfg.MaxInflight},
	}
	d.drained, d.drain = context.WithCancel(context.Background())
	return d, nil
}

// Drain ends the requests that wait for tokens and the streams. It is idempotent.
func (d *Decider) Drain() { d.drain() }

// Draining reports whether Drain was called.
func (d *Decider) Draining() bool { return d.drained.Err() != nil }

// UntilDrained returns a context that also ends, with [ErrDraining] as its cause, when the server drains. Call end to
// release its resources.
func (d *Decider) UntilDrained(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if d.Draining() { // AfterFunc would cancel later
		cancel(ErrDraining)
	}
	stop := context.AfterFunc(d.drained, func() { cancel(ErrDraining) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// In returns the limiter of the namespace that a request names, if the caller has the role there; "" means that it
// names none. For a namespace that the caller may not use, the error does not reveal whether it exists.
func (d *Decider) In(c *Caller, role auth.Role, namespace string) (*weir.Limiter, error) {
	own := d.Limiter.Namespace()
	if namespace == "" {
		namespace = c.Namespace(own)
	}
	switch {
	case !c.May(role, namespace):
		return nil, ErrForbidden
	case namespace == own:
		return d.Limiter, nil
	}
	return d.Limiter.In(namespace), nil
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
	undrained, end := d.UntilDrained(ctx)
	defer end()
	bounded, cancel := context.WithTimeout(undrained, wait)
	defer cancel()
	lease, err := lim.Wait(bounded, req)
	switch {
	case err == nil, errors.Is(err, weir.ErrExceeded), bounded.Err() == nil, ctx.Err() != nil:
		return lease, err
	case undrained.Err() != nil:
		return nil, ErrDraining
	default:
		return nil, ErrTooLong
	}
}
