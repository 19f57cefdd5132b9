// Package httpapi serves a limiter over HTTP: JSON in, JSON and problem+json out. See docs/guide/http.md for the manual
// and openapi.json for the contract.
//
// A server keeps no state of its own. The state of a lease is in its signed id, so any instance with the same store and
// key can settle it.
package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/serve/admission"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/internal/serve/ratelog"
)

// Config configures a [Server]. Only Limiter is required.
type Config struct {
	decide.Config
	// LegacyHeaders adds X-RateLimit-Limit, -Remaining and -Reset.
	LegacyHeaders bool
	// AllowedHosts are the host names, without port, that requests may use. Defaults to all.
	AllowedHosts []string
	// Metrics counts requests and provides /metrics and /v1/overview. Defaults to none.
	Metrics Metrics
	// LogRequests logs each request at level Info.
	LogRequests bool
	// Version is reported by /healthz.
	Version string
}

// Server answers HTTP requests with a limiter. Without a Book, the audit names "http" as the principal.
type Server struct {
	cfg     Config
	decide  *decide.Decider
	handler http.Handler
	logs    bool // whether each request is logged

	bodies    atomic.Int64     // bytes; see incoming
	declaring *admission.Slots // of requests with manifests
}

// New returns a server. Without a LeaseKey, it uses the store's key, which the store creates on first use.
func New(cfg Config) (*Server, error) {
	d, err := decide.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	cfg.Config = d.Config
	s := &Server{cfg: cfg, decide: d, declaring: admission.New(maxManifests)}
	s.logs = cfg.LogRequests || cfg.Log.Enabled(context.Background(), slog.LevelDebug)
	s.handler = s.atHome(s.guard(slash(s.mux())))
	if cfg.Metrics != nil {
		s.handler = cfg.Metrics.Requests(s.handler)
	}
	return s, nil
}

// Handler returns the handler for all paths.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers requests on a listener until ctx ends. It then stops accepting requests, gives those in progress
// [Config.Grace] to finish, and returns nil, or an error if some were cut off. It closes the listener. Call it only
// once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	hs := s.httpServer(ctx, s.probesAlone(s.handler))
	ln = s.secured(s.decide.Bounded(ln, spares))
	ended := make(chan error, 1)
	go func() { ended <- hs.Serve(ln) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	s.decide.Drain()
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

// spares is the number of connections beyond the maximum that are for probes, so that a busy server is not taken for a
// dead one and restarted.
const spares = 32

// probesAlone answers only probes on spare connections.
func (s *Server) probesAlone(next http.Handler) http.Handler {
	refuse := s.handle(func(http.ResponseWriter, *http.Request) error { return errCrowded })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !decide.Spare(r.Context()) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			next.ServeHTTP(w, r)
			return
		}
		refuse.ServeHTTP(w, r)
	})
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
		WriteTimeout:      decide.MaxWait + 30*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    leaseid.MaxLen + 16<<10,
		ConnContext:       decide.MarkSpare,
		// Requests in progress continue after ctx has ended.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		// Mostly about clients that disconnect or do not speak HTTP, which anyone can cause.
		ErrorLog: slog.NewLogLogger(ratelog.Handler(s.cfg.Log), slog.LevelWarn),
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
	return badField(field, "%q can be reached from outside and nobody is authenticated: "+
		"use --auth, or 127.0.0.1, or --insecure behind a proxy that authenticates", addr)
}
