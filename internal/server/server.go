// Package server serves a limiter over HTTP: JSON in, JSON and problem+json out. docs/guide/http.md is its manual,
// openapi.json its contract.
//
// A server keeps no state of its own. What a client holds between two requests, a lease, is in its signed id, so that
// any instance on the same store and key can settle it.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
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
	// Principal names who makes a change, for the audit. Defaults to "http" for everybody.
	Principal func(*http.Request) string
	// Log is told about trouble and, if it wants to know, about each request, at level Debug. Defaults to nobody.
	Log *slog.Logger
	// Version is what /healthz says.
	Version string
}

func (c Config) withDefaults() Config {
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 10*time.Minute)
	c.Grace = cmp.Or(c.Grace, 15*time.Second)
	if c.Principal == nil {
		c.Principal = func(*http.Request) string { return "http" }
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
	case len(c.LeaseKey) > 0 && len(c.LeaseKey) < 16:
		return badField("Config.LeaseKey", "has %d bytes, at least 16 are needed", len(c.LeaseKey))
	case c.LeaseTTL < time.Second || c.LeaseTTL > 24*time.Hour:
		return badField("Config.LeaseTTL", "must be between 1s and 24h")
	case c.Grace < 0:
		return badField("Config.Grace", "must not be negative")
	}
	return nil
}

// Server answers HTTP requests with a limiter.
type Server struct {
	cfg     Config
	signer  *signer
	handler http.Handler
	debug   bool
	logged  atomic.Int64 // when trouble was last logged

	draining chan struct{} // closed when Serve ends
	drained  atomic.Bool
}

// New returns a server. Without a LeaseKey it asks the store for one, which the store creates once.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	key := cfg.LeaseKey
	if len(key) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var err error
		if key, err = cfg.Limiter.SigningKey(ctx); err != nil {
			return nil, fmt.Errorf("read the key of lease ids: %w", err)
		}
	}
	s := &Server{
		cfg: cfg, signer: newSigner(key), draining: make(chan struct{}),
		debug: cfg.Log.Enabled(context.Background(), slog.LevelDebug),
	}
	s.handler = s.guard(slash(s.mux()))
	return s, nil
}

// Handler returns the handler of all paths.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers requests on a listener until ctx ends. Then it accepts no more, lets those under way finish for
// [Config.Grace], and returns nil, or an error that says that some were cut off. It closes the listener. It is to be
// called once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	hs := s.httpServer(ctx, s.handler)
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

func (s *Server) httpServer(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 20 * time.Second, // the same, so that it is armed once
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      maxWait + 30*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxLeaseID + 16<<10,
		// What was begun is finished although ctx has ended.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn),
	}
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
	return badField(field, "%q can be reached from outside and nobody is authenticated: use 127.0.0.1, or --insecure behind a proxy that authenticates", addr)
}
