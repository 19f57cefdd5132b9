// Package grpcapi serves a limiter over gRPC: the native API, weir.v1.Limiter, and any other services that are
// registered with it. See docs/integrate/grpc.md for the manual and api/weir/v1/limiter.proto for the contract.
//
// It is the gRPC counterpart of internal/serve/httpapi: it uses the same terms, the same permissions and the same lease
// ids, so either server can settle leases that the other has issued.
package grpcapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/conns"
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
	maxHeaders = 8 << 10
	maxFields  = 64 // of headers: each holds a hundred bytes, if it is empty
)

// Server answers gRPC requests with a limiter.
type Server struct {
	cfg    Config
	decide *decide.Decider
	grpc   *grpc.Server
	health *health.Server
}

// New returns a server. Without a Signer, it uses the store's key, which the store creates on first use.
func New(cfg Config) (*Server, error) {
	d, err := decide.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	cfg.Config = d.Config
	s := &Server{cfg: cfg, decide: d, health: health.NewServer()}
	s.grpc = grpc.NewServer(s.options()...)
	weirv1.RegisterLimiterServer(s.grpc, &limiter{Server: s})
	for _, register := range cfg.Services {
		register(s.grpc)
	}
	healthpb.RegisterHealthServer(s.grpc, s.health)
	s.reportHealth()
	reflection.Register(s.grpc)
	return s, nil
}

// transport returns the options of a server, except its interceptors.
func transport() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.RPCDecompressor(uncompressed{}), //nolint:staticcheck // a registered one would be that of all clients, too
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(conns.MaxStreams), // more wait in the client
		grpc.NumStreamWorkers(uint32(4 * runtime.GOMAXPROCS(0))),
		grpc.ConnectionTimeout(20 * time.Second),
		grpc.ReadBufferSize(16 << 10),
		// A window that follows the bandwidth grows to 16 MiB, for every stream.
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.StaticConnWindowSize(maxMessage),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle:     10 * time.Minute,
			MaxConnectionAge:      conns.MaxAge,
			MaxConnectionAgeGrace: conns.MaxAge / 3, // only streams take longer
			Time:                  2 * time.Minute,  // then check whether the client is still there
			Timeout:               20 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             10 * time.Second,
			PermitWithoutStream: true,
		}),
	}
}

func (s *Server) options() []grpc.ServerOption {
	opts := append(transport(), grpc.InTapHandle(s.arrive))
	// Interceptors, in the order in which they are called.
	if s.cfg.Unary != nil {
		opts = append(opts, grpc.ChainUnaryInterceptor(s.cfg.Unary))
	}
	if s.cfg.Stream != nil {
		opts = append(opts, grpc.ChainStreamInterceptor(s.cfg.Stream))
	}
	opts = append(opts, grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.stream))
	creds := insecure.NewCredentials()
	if s.cfg.TLS != nil {
		creds = credentials.NewTLS(s.cfg.TLS)
	}
	return append(opts, grpc.Creds(&framing{creds, s.cfg.Held}))
}

// framing counts what the requests of each connection hold in memory.
type framing struct {
	credentials.TransportCredentials

	held *conns.Budget
}

// ServerHandshake makes the handshake of a connection.
func (f *framing) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := f.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return conns.NewHTTP2(c, f.held), info, nil
}

// Serve answers requests on a listener until ctx ends. It then stops accepting requests, reports NOT_SERVING, ends
// requests that wait or watch, gives the others [Config.Grace] to finish, and returns nil, or an error if some were cut
// off. It closes the listener. Call it only once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- s.grpc.Serve(s.decide.Bounded(ln)) }()
	if err := s.untilDone(ctx, ended); err != nil {
		s.grpc.Stop()
		return fmt.Errorf("serve gRPC: %w", err)
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

// untilDone reports the server's health until ctx ends, or returns the error of a server that has ended.
func (s *Server) untilDone(ctx context.Context, ended <-chan error) error {
	report := time.NewTicker(time.Second)
	defer report.Stop()
	for {
		select {
		case err := <-ended:
			return cmp.Or(err, grpc.ErrServerStopped)
		case <-report.C:
			s.reportHealth()
		case <-ctx.Done():
			return nil
		}
	}
}

// reportHealth reports of each service, and of the server, whether requests should come to it.
func (s *Server) reportHealth() {
	status := healthpb.HealthCheckResponse_SERVING
	if s.decide.Unready() != nil {
		status = healthpb.HealthCheckResponse_NOT_SERVING
	}
	s.health.SetServingStatus("", status)
	for name := range s.grpc.GetServiceInfo() {
		s.health.SetServingStatus(name, status)
	}
}
