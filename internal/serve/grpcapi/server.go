// Package grpcapi serves a limiter over gRPC: the native API, weir.v1.Limiter, and any other services that are
// registered with it. See docs/guide/grpc.md for the manual and api/weir/v1/limiter.proto for the contract.
//
// It is the gRPC counterpart of internal/serve/httpapi: it uses the same terms, the same permissions and the same lease
// ids, so either server can settle leases that the other has issued.
package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// Config configures a [Server]. Only Limiter is required.
type Config struct {
	decide.Config
	// Services register further services before the server starts. Their requests carry their caller in the context,
	// see [decide.CallerOf], and their panics are caught.
	Services []func(grpc.ServiceRegistrar)
	// Unary and Stream are the outermost interceptors of every request. Default to none.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
}

// Bounds on one request and one connection.
const (
	maxMessage = 1 << 20 // bytes of a request
	maxHeaders = 32 << 10
	maxStreams = 1000 // concurrent requests on a connection; more wait in the client
)

// Server answers gRPC requests with a limiter.
type Server struct {
	cfg    Config
	decide *decide.Decider
	grpc   *grpc.Server
	health *health.Server
	debug  bool
}

// New returns a server. Without a LeaseKey, it uses the store's key, which the store creates on first use.
func New(cfg Config) (*Server, error) {
	d, err := decide.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	cfg.Config = d.Config
	s := &Server{
		cfg: cfg, decide: d, health: health.NewServer(),
		debug: cfg.Log.Enabled(context.Background(), slog.LevelDebug),
	}
	s.grpc = grpc.NewServer(s.options()...)
	weirv1.RegisterLimiterServer(s.grpc, &limiter{Server: s})
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
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             10 * time.Second,
			PermitWithoutStream: true,
		}),
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

// Serve answers requests on a listener until ctx ends. It then stops accepting requests, reports NOT_SERVING, ends
// requests that wait or watch, gives the others [Config.Grace] to finish, and returns nil, or an error if some were cut
// off. It closes the listener. Call it only once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- s.grpc.Serve(s.decide.Bounded(ln, 0)) }()
	select {
	case err := <-ended:
		s.grpc.Stop()
		return fmt.Errorf("serve gRPC: %w", err)
	case <-ctx.Done():
	}
	s.health.Shutdown()
	s.decide.Drain()
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
