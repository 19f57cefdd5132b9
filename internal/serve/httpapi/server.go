// Package httpapi serves a limiter over HTTP: JSON in, JSON and problem+json out. See docs/integrate/http.md for the
// manual and openapi.json for the contract.
//
// A server keeps no state of its own. The state of a lease is in its signed id, so any instance with the same store and
// key can settle it.
package httpapi

import (
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

	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/serve/admission"
	"github.com/weirlimits/weir/internal/serve/conns"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/internal/serve/ratelog"
)

// Config configures a [Server]. Only Limiter is required.
type Config struct {
	decide.Config
	// LegacyHeaders adds X-RateLimit-Limit, -Remaining and -Reset.
	LegacyHeaders bool
	// Errors is the format of problems with requests to acquire. Clients that accept application/problem+json get that.
	Errors answer.Format
	// AllowedHosts are the host names, without port, that requests may use. Defaults to all.
	AllowedHosts []string
	// Metrics counts requests and provides /metrics and /v1/overview. Defaults to none.
	Metrics Metrics
	// Version is reported by /healthz.
	Version string
}

// Server answers HTTP requests with a limiter. Without a Book, the audit names "http" as the principal.
type Server struct {
	cfg     Config
	decide  *decide.Decider
	handler http.Handler

	listener  atomic.Pointer[conns.Listener] // nil until Serve
	declaring *admission.Slots               // of requests with manifests
	decoding  decoders
}

// New returns a server. Without a Signer, it uses the store's key, which the store creates on first use.
func New(cfg Config) (*Server, error) {
	d, err := decide.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	cfg.Config = d.Config
	s := &Server{cfg: cfg, decide: d, declaring: admission.New(maxManifests), decoding: newDecoders()}
	s.handler = s.hardened(s.checkHost(s.guard(slash(s.mux()))))
	if cfg.Metrics != nil {
		s.handler = cfg.Metrics.Requests(s.handler)
	}
	return s, nil
}

// Handler returns the handler for all paths.
func (s *Server) Handler() http.Handler { return s.handler }

// Probes returns a handler for /healthz and /readyz alone, for an address of their own.
func (s *Server) Probes() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		mux.Handle("GET "+path, s.handler)
	}
	return mux
}

// Serve answers requests on a listener until ctx ends. It then stops accepting requests, gives those in progress
// [Config.Grace] to finish, and returns nil, or an error if some were cut off. It closes the listener. Call it only
// once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	hs := s.httpServer(ctx, s.handler)
	bounded := s.decide.Bounded(ln)
	s.listener.Store(bounded)
	if s.cfg.TLS != nil {
		ln = newSecured(bounded, s.cfg.TLS, s.cfg.Log)
	} else {
		ln = bounded
	}
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

// hardened records that a request is in progress on its connection, which ends with the answer if it is old, and sets
// the header fields that protect browsers.
func (s *Server) hardened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := connOf(r)
		c.Begin()
		defer c.End()
		h := w.Header()
		h["X-Content-Type-Options"] = noSniff
		if c.Old() {
			h["Connection"] = closing
		}
		if s.cfg.TLS != nil {
			h["Strict-Transport-Security"] = onlyTLS
		}
		next.ServeHTTP(w, r)
	})
}

var (
	noSniff = []string{"nosniff"}
	closing = []string{"close"}
	onlyTLS = []string{"max-age=31536000"} // a year
)

type connKey struct{}

// connOf returns the connection of a request, or nil if Serve does not serve it.
func connOf(r *http.Request) *conns.Conn {
	c, _ := r.Context().Value(connKey{}).(*conns.Conn)
	return c
}

func (s *Server) httpServer(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: maxHeaderTime, // the same, so that the timer is set only once
		ReadTimeout:       maxHeaderTime,
		WriteTimeout:      decide.MaxWait + 30*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    leaseid.MaxLen + 16<<10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conns.Of(c.RemoteAddr()))
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateIdle {
				conns.Of(c.RemoteAddr()).Idle()
			}
		},
		// Requests in progress continue after ctx has ended.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		// Mostly about clients that disconnect or do not speak HTTP, which anyone can cause.
		ErrorLog: slog.NewLogLogger(ratelog.New(s.cfg.Log).Handler(), slog.LevelWarn),
	}
}

// CheckListen refuses an address that other machines can reach, unless safe is set.
func CheckListen(addr string, safe bool) error {
	const field = "address"
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return badField(field, "%q is not HOST:PORT, as in 127.0.0.1:8080", addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return badField(field, "%q has a bad port %q: write 0 to 65535", addr, port)
	}
	ip, err := netip.ParseAddr(host)
	if safe || host == "localhost" || err == nil && ip.IsLoopback() {
		return nil
	}
	return badField(field, "%q can be reached from outside: use --auth with --tls-cert and --tls-key, or 127.0.0.1, "+
		"or --insecure behind a proxy that authenticates or terminates TLS", addr)
}
