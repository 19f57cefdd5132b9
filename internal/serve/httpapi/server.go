// Package httpapi serves a limiter over HTTP: JSON in, JSON and problem+json out. See docs/guide/http.md for the manual and
// openapi.json for the contract.
//
// A server keeps no state of its own. The state of a lease is in its signed id, so any instance with the same store and key
// can settle it.
package httpapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/admission"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/internal/serve/watch"
)

// Config configures a [Server]. Only Limiter is required.
type Config struct {
	// Limiter makes the decisions. The server does not close it.
	Limiter *weir.Limiter
	// LeaseKey signs lease ids. It must have at least 16 bytes, and instances that share a store must use the same key.
	// Defaults to the store's own key.
	LeaseKey []byte
	// LeaseTTL is how long a lease can be adjusted or rolled back; after that it counts as committed. At most 24 h.
	// Defaults to 10 min.
	LeaseTTL time.Duration
	// Grace is how long requests in progress may take after Serve's context has ended. Defaults to 15 s.
	Grace time.Duration
	// LegacyHeaders adds X-RateLimit-Limit, -Remaining and -Reset.
	LegacyHeaders bool
	// Book holds the tokens that requests must present. Without a Book, requests are not authenticated and may do
	// everything; the audit then names "http" as the principal.
	Book *auth.Book
	// TLS secures the connections of Serve. Defaults to none.
	TLS *tls.Config
	// AllowedHosts are the host names, without port, that requests may use. Defaults to all.
	AllowedHosts []string
	// MaxConnections bounds the connections of Serve. A few more are accepted for probes only; all others are closed at
	// once. Defaults to [DefaultConnections].
	MaxConnections int
	// MaxInflight bounds, separately, the requests being processed, the requests waiting for tokens and the event streams;
	// more are refused. With a Book, one token may use at most three places for each free one. Defaults to
	// [DefaultInflight].
	MaxInflight int
	// Watch polls buckets for all watchers. Defaults to a poller of the server's own that ticks every second.
	Watch *watch.Poller
	// Metrics counts requests and provides /metrics and /v1/overview. Defaults to none.
	Metrics Metrics
	// Log receives problems and, at level Debug, each request. Defaults to none.
	Log *slog.Logger
	// LogRequests logs each request at level Info.
	LogRequests bool
	// Version is reported by /healthz.
	Version string
}

func (c Config) withDefaults() Config {
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 10*time.Minute)
	c.Grace = cmp.Or(c.Grace, 15*time.Second)
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultConnections)
	c.MaxInflight = cmp.Or(c.MaxInflight, DefaultInflight)
	if c.Watch == nil && c.Limiter != nil {
		c.Watch = watch.New(c.Limiter, 0)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Limiter == nil:
		return badField("Config.Limiter", "is required")
	case len(c.LeaseKey) > 0 && len(c.LeaseKey) < leaseid.MinKey:
		return badField("Config.LeaseKey", "has %d bytes, at least %d are needed", len(c.LeaseKey), leaseid.MinKey)
	case c.LeaseTTL < time.Second || c.LeaseTTL > 24*time.Hour:
		return badField("Config.LeaseTTL", "must be between 1s and 24h")
	case c.MaxConnections < 0:
		return badField("Config.MaxConnections", "must not be negative")
	case c.MaxInflight < 0:
		return badField("Config.MaxInflight", "must not be negative")
	case c.Grace < 0:
		return badField("Config.Grace", "must not be negative")
	}
	return nil
}

// Server answers HTTP requests with a limiter.
type Server struct {
	cfg     Config
	signer  *leaseid.Signer
	handler http.Handler
	logs    bool // whether each request is logged

	asked asked // the readiness check of the store

	working, waiting, streaming, declaring *admission.Slots // places for requests

	bodies   atomic.Int64 // bytes; see incoming
	decoding sync.Mutex   // one manifest at a time, since decoding can take a hundred times its size

	troubles, refusals, overloads, noises seldom // limit the rate of log lines

	draining chan struct{} // closed when Serve ends
	drained  atomic.Bool
}

// New returns a server. Without a LeaseKey, it uses the store's key, which the store creates on first use.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	signer, err := leaseid.Open(cfg.Limiter, cfg.LeaseKey)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, signer: signer, draining: make(chan struct{}),
		logs: cfg.LogRequests || cfg.Log.Enabled(context.Background(), slog.LevelDebug),
	}
	s.working, s.waiting, s.streaming = admission.New(cfg.MaxInflight), admission.New(cfg.MaxInflight), admission.New(cfg.MaxInflight)
	s.declaring = admission.New(maxManifests)
	s.handler = s.atHome(s.guard(slash(s.mux())))
	if cfg.Metrics != nil {
		s.handler = cfg.Metrics.Requests(s.handler)
	}
	return s, nil
}

// Handler returns the handler for all paths.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers requests on a listener until ctx ends. It then stops accepting requests, gives those in progress
// [Config.Grace] to finish, and returns nil, or an error if some were cut off. It closes the listener. Call it only once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	hs := s.httpServer(ctx, s.probesAlone(s.handler))
	ln = s.secured(s.limited(ln))
	ended := make(chan error, 1)
	go func() { ended <- hs.Serve(ln) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	s.drain()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Grace)
	defer cancel()
	err := hs.Shutdown(grace)
	if err != nil {
		err = errors.Join(fmt.Errorf("shut down: requests were cut off after %s: %w", s.cfg.Grace, err), hs.Close())
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// limited bounds the connections of a listener.
func (s *Server) limited(ln net.Listener) net.Listener {
	full := func() {
		if s.overloads.due() {
			s.cfg.Log.Warn("too many connections: new ones are refused", slog.Int("max", s.cfg.MaxConnections))
		}
	}
	return &limitedListener{ln, make(chan struct{}, s.cfg.MaxConnections), make(chan struct{}, spares), full}
}

// secured adds TLS without HTTP/2, because an HTTP/2 connection could carry any number of concurrent requests.
func (s *Server) secured(ln net.Listener) net.Listener {
	if s.cfg.TLS == nil {
		return ln
	}
	cfg := s.cfg.TLS.Clone()
	cfg.NextProtos = []string{"http/1.1"}
	return tls.NewListener(ln, cfg)
}

func (s *Server) httpServer(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 20 * time.Second, // the same, so that the timer is set only once
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      maxWait + 30*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    leaseid.MaxLen + 16<<10,
		ConnContext:       onSpare,
		// Requests in progress continue after ctx has ended.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ErrorLog:    slog.NewLogLogger(strangers{s.cfg.Log.Handler(), &s.noises}, slog.LevelWarn),
	}
}

// strangers logs the messages of net/http, mostly about clients that disconnect or do not speak HTTP. Since anyone can cause
// them, it logs at most one line per second.
type strangers struct {
	slog.Handler
	now *seldom
}

// Enabled reports whether a line may be logged now.
func (s strangers) Enabled(ctx context.Context, level slog.Level) bool {
	return s.Handler.Enabled(ctx, level) && s.now.due()
}

// drain makes /readyz fail and ends the requests that wait for tokens.
func (s *Server) drain() {
	if s.drained.CompareAndSwap(false, true) {
		close(s.draining)
	}
}

// CheckListen refuses an address that other machines can reach, unless insecure is set: there is no authentication.
func CheckListen(addr string, insecure bool) error {
	const field = "http address"
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return badField(field, "%q is not HOST:PORT, as in 127.0.0.1:8080", addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return badField(field, "%q has a bad port %q: write 0 to 65535", addr, port)
	}
	ip, err := netip.ParseAddr(host)
	if insecure || host == "localhost" || err == nil && ip.IsLoopback() {
		return nil
	}
	return badField(field, "%q can be reached from outside and nobody is authenticated: use --auth, or 127.0.0.1, or --insecure behind a proxy that authenticates", addr)
}
