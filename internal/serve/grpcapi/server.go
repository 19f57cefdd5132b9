// Package grpcapi serves a limiter over gRPC: the native API, weir.v1.Limiter, and any other services that are registered with
// it. See docs/guide/grpc.md for the manual and api/weir/v1/limiter.proto for the contract.
//
// It is the gRPC counterpart of internal/serve/httpapi: it uses the same terms, the same permissions and the same lease ids, so
// either server can settle leases that the other has issued.
package grpcapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/admission"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/internal/serve/watch"
)

// Config configures a [Server]. Only Limiter is required.
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
	// Watch polls buckets for all watchers. The server does not close it. Defaults to a poller of the server's own.
	Watch *watch.Poller
	// Services register further services before the server starts. Their requests carry a principal in the context, see
	// [auth.From], and their panics are caught.
	Services []func(grpc.ServiceRegistrar)
	// Unary and Stream are the outermost interceptors of every request. Default to none.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// Grace is how long requests in progress may take after Serve's context has ended. Defaults to 15 s.
	Grace time.Duration
	// MaxConnections bounds the connections of Serve; more are closed at once. Defaults to 10,000.
	MaxConnections int
	// MaxInflight bounds, separately, the requests being processed, the requests waiting for tokens and the streams; more
	// are refused with UNAVAILABLE. With a Book, one token may use at most three places for each free one. Defaults to
	// 4096.
	MaxInflight int
	// TLS encrypts connections. Defaults to nil: no encryption.
	TLS *tls.Config
	// Log receives problems and, at level Debug, each request. Defaults to none.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 10*time.Minute)
	c.Grace = cmp.Or(c.Grace, 15*time.Second)
	c.MaxConnections = cmp.Or(c.MaxConnections, 10_000)
	c.MaxInflight = cmp.Or(c.MaxInflight, 4096)
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
	case c.Grace < 0:
		return badField("Config.Grace", "must not be negative")
	case c.MaxConnections < 0:
		return badField("Config.MaxConnections", "must not be negative")
	case c.MaxInflight < 0:
		return badField("Config.MaxInflight", "must not be negative")
	}
	return nil
}

// Bounds on one request and one connection.
const (
	maxMessage = 1 << 20 // bytes of a request
	maxHeaders = 32 << 10
	maxStreams = 1000 // concurrent requests on a connection; more wait in the client
)

// Server answers gRPC requests with a limiter.
type Server struct {
	weirv1.UnsafeLimiterServer // makes a missing method a compile error

	cfg    Config
	signer *leaseid.Signer
	poller *watch.Poller
	own    *watch.Poller // closed by the server; nil if it was given
	grpc   *grpc.Server
	health *health.Server
	debug  bool

	working, waiting, streaming *admission.Slots // places for requests

	troubles, refusals, overloads seldom       // limit the rate of log lines
	lately                        atomic.Int32 // see lateness

	draining chan struct{} // closed when Serve ends
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
		cfg: cfg, signer: signer, poller: cfg.Watch, health: health.NewServer(),
		debug: cfg.Log.Enabled(context.Background(), slog.LevelDebug), draining: make(chan struct{}),
	}
	s.working, s.waiting, s.streaming = admission.New(cfg.MaxInflight), admission.New(cfg.MaxInflight), admission.New(cfg.MaxInflight)
	if s.poller == nil {
		s.own = watch.New(cfg.Limiter, 0)
		s.poller = s.own
	}
	s.grpc = grpc.NewServer(s.options()...)
	weirv1.RegisterLimiterServer(s.grpc, s)
	for _, register := range cfg.Services {
		register(s.grpc)
	}
	healthpb.RegisterHealthServer(s.grpc, s.health)
	for name := range s.grpc.GetServiceInfo() {
		s.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	reflection.Register(s.grpc)
	return s, nil
}

// transport returns the options of a server, except its interceptors.
func transport() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.NumStreamWorkers(uint32(4 * runtime.GOMAXPROCS(0))),
		grpc.ConnectionTimeout(20 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 10 * time.Minute,
			Time:              2 * time.Minute, // then check whether the client is still there
			Timeout:           20 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
}

func (s *Server) options() []grpc.ServerOption {
	opts := transport()
	// Interceptors, in the order in which they are called.
	if s.cfg.Unary != nil {
		opts = append(opts, grpc.ChainUnaryInterceptor(s.cfg.Unary))
	}
	if s.cfg.Stream != nil {
		opts = append(opts, grpc.ChainStreamInterceptor(s.cfg.Stream))
	}
	opts = append(opts, grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.stream))
	if s.cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(s.cfg.TLS)))
	}
	return opts
}

// Serve answers requests on a listener until ctx ends. It then stops accepting requests, reports NOT_SERVING, ends requests
// that wait or watch, gives the others [Config.Grace] to finish, and returns nil, or an error if some were cut off. It
// closes the listener. Call it only once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if s.own != nil {
		defer s.own.Close()
	}
	ended := make(chan error, 1)
	go func() { ended <- s.grpc.Serve(newBounded(ln, s.cfg.MaxConnections)) }()
	select {
	case err := <-ended:
		s.grpc.Stop()
		return fmt.Errorf("serve gRPC: %w", err)
	case <-ctx.Done():
	}
	s.health.Shutdown()
	close(s.draining)
	drained := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(drained)
	}()
	grace := time.NewTimer(s.cfg.Grace)
	defer grace.Stop()
	var err error
	select {
	case <-drained:
	case <-grace.C:
		s.grpc.Stop()
		<-drained
		err = fmt.Errorf("shut down gRPC: requests were cut off after %s", s.cfg.Grace)
	}
	if served := <-ended; served != nil && !errors.Is(served, grpc.ErrServerStopped) {
		err = errors.Join(err, served)
	}
	return err
}
