// Package server serves a limiter over HTTP: JSON in, JSON and problem+json out. docs/guide/http.md is its manual,
// openapi.json its contract.
//
// A server keeps no state of its own. What a client holds between two requests, a lease, is in its signed id, so that
// any instance on the same store and key can settle it.
package server

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
	"github.com/weirlimits/weir/internal/auth"
	"github.com/weirlimits/weir/internal/leaseid"
	"github.com/weirlimits/weir/internal/places"
	"github.com/weirlimits/weir/internal/watch"
)

// Config configures a [Server]. Only Limiter is required.
type Config struct {
	// Limiter decides. The server does not close it.
	Limiter *weir.Limiter
	// LeaseKey signs lease ids; at least 16 bytes. Instances that share a store must share it. Defaults to the
	// store's own key.
	LeaseKey []byte
	// LeaseTTL is how long a lease can be adjusted and rolled back; then it counts as committed. At most 24 h.
	// Defaults to 10 min.
	LeaseTTL time.Duration
	// Grace is how long requests under way may take after Serve was told to end. Defaults to 15 s.
	Grace time.Duration
	// LegacyHeaders adds X-RateLimit-Limit, -Remaining and -Reset.
	LegacyHeaders bool
	// Book knows the tokens that requests must have. Without one nobody is authenticated and everybody may do
	// everything; the audit then calls them "http".
	Book *auth.Book
	// TLS secures the connections of Serve. Defaults to none.
	TLS *tls.Config
	// AllowedHosts are the host names, without port, that requests may name. Defaults to all.
	AllowedHosts []string
	// MaxConnections bounds the connections of Serve; on a few more only probes are answered, the rest is closed at once.
	// Defaults to [DefaultConnections].
	MaxConnections int
	// MaxInflight bounds the requests that are worked on at once, and of its own each those that wait for tokens and
	// the streams of events; more are refused. Where there is a Book, one token has at most three for each that is free.
	// Defaults to [DefaultInflight].
	MaxInflight int
	// Watch looks at buckets for all who watch them. Defaults to one of the server's own, at a second a tick.
	Watch *watch.Poller
	// Metrics counts requests, and is what /metrics and /v1/overview show. Defaults to none.
	Metrics Metrics
	// Log is told about trouble and, if it wants to know, about each request, at level Debug. Defaults to nobody.
	Log *slog.Logger
	// LogRequests logs each request at level Info.
	LogRequests bool
	// Version is what /healthz says.
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
	logs    bool // each request

	asked asked // the store

	working, waiting, streaming, declaring *places.Places // requests

	bodies   atomic.Int64 // bytes; see incoming
	decoding sync.Mutex   // of manifests: one alone may take a hundred times its size

	troubles, refusals, overloads, noises seldom // so that their log stays short

	draining chan struct{} // closed when Serve ends
	drained  atomic.Bool
}

// New returns a server. Without a LeaseKey it asks the store for one, which the store creates once.
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
	s.working, s.waiting, s.streaming = places.New(cfg.MaxInflight), places.New(cfg.MaxInflight), places.New(cfg.MaxInflight)
	s.declaring = places.New(maxManifests)
	s.handler = s.atHome(s.guard(slash(s.mux())))
	if cfg.Metrics != nil {
		s.handler = cfg.Metrics.Requests(s.handler)
	}
	return s, nil
}

// Handler returns the handler of all paths.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers requests on a listener until ctx ends. Then it accepts no more, lets those under way finish for
// [Config.Grace], and returns nil, or an error that says that some were cut off. It closes the listener. It is to be
// called once.
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

// secured is without HTTP/2: one connection could then have any number of requests under way.
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
		ReadHeaderTimeout: 20 * time.Second, // the same, so that it is armed once
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      maxWait + 30*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    leaseid.MaxLen + 16<<10,
		ConnContext:       onSpare,
		// What was begun is finished although ctx has ended.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ErrorLog:    slog.NewLogLogger(strangers{s.cfg.Log.Handler(), &s.noises}, slog.LevelWarn),
	}
}

// strangers is a log of what net/http has to say, mostly of clients that break off or speak something else: anybody can,
// so not more than one line a second.
type strangers struct {
	slog.Handler
	now *seldom
}

// Enabled is asked before each line.
func (s strangers) Enabled(ctx context.Context, level slog.Level) bool {
	return s.Handler.Enabled(ctx, level) && s.now.due()
}

// drain makes /readyz fail and sends away who waits for tokens.
func (s *Server) drain() {
	if s.drained.CompareAndSwap(false, true) {
		close(s.draining)
	}
}

// CheckListen refuses an address that others can reach, unless insecure: nobody is authenticated.
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
