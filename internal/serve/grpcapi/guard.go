package grpcapi

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// unary authenticates a request, recovers from a handler's panic, and logs at level Debug.
func (s *Server) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (resp any, err error) {
	defer func() {
		if v := recover(); v != nil {
			resp, err = nil, s.survived(ctx, v)
		}
	}()
	ctx, c, err := s.admitted(ctx, info.FullMethod)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if s.debug {
		defer s.logged(ctx, info.FullMethod, time.Now(), &err)
	}
	if err := s.decide.Begin(ctx, c); err != nil {
		return nil, s.fail(ctx, err)
	}
	defer c.End()
	return next(ctx, req)
}

// stream is unary for streams. Their contexts also end when the server shuts down.
func (s *Server) stream(
	srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) (err error) {
	ctx := ss.Context()
	defer func() {
		if v := recover(); v != nil {
			err = s.survived(ctx, v)
		}
	}()
	ctx, c, err := s.admitted(ctx, info.FullMethod)
	if err != nil {
		return s.fail(ctx, err)
	}
	if s.debug {
		defer s.logged(ctx, info.FullMethod, time.Now(), &err)
	}
	if err := s.decide.Stream(c); err != nil {
		return s.fail(ctx, err)
	}
	defer c.End()
	ctx, end := s.decide.UntilDrained(ctx)
	defer end()
	return next(srv, &stream{ss, ctx})
}

// stream is a server stream with a different context.
type stream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream carries its context
}

// Context returns the context of the stream.
func (s *stream) Context() context.Context { return s.ctx }

// admitted authenticates a request and returns its context with the caller. The health service is open to everyone.
func (s *Server) admitted(ctx context.Context, method string) (context.Context, *decide.Caller, error) {
	c := &decide.Caller{Principal: auth.Anybody()}
	if s.cfg.Book != nil {
		p, ok := s.cfg.Book.Authenticate(auth.Bearer(metadata.ValueFromIncomingContext(ctx, "authorization")))
		if !ok && !strings.HasPrefix(method, "/grpc.health.v1.Health/") {
			s.refused(ctx, "no valid token")
			return ctx, nil, decide.ErrUnauthenticated
		}
		c.Principal = p
	}
	return decide.With(ctx, c), c, nil
}

// in returns the limiter of the namespace that a request names; "" means that it names none. For a namespace that the
// principal may not use, the error does not reveal whether it exists.
func (s *Server) in(ctx context.Context, role auth.Role, namespace string) (*weir.Limiter, error) {
	lim, err := s.decide.In(decide.CallerOf(ctx), role, namespace)
	if err != nil {
		s.refused(ctx, "not the role or not the namespace")
	}
	return lim, err
}

// refused logs an unauthorized request, at most once a second.
func (s *Server) refused(ctx context.Context, why string) {
	s.decide.Refused(ctx, why, method(ctx), slog.String("from", from(ctx)))
}

func from(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// survived logs a panic and returns the failure for the client.
func (s *Server) survived(ctx context.Context, v any) *failure {
	return s.fail(ctx, s.decide.Panicked(ctx, v, method(ctx)))
}

func (s *Server) logged(ctx context.Context, method string, began time.Time, err *error) {
	s.cfg.Log.LogAttrs(ctx, slog.LevelDebug, "request", slog.String("method", method),
		slog.Duration("took", time.Since(began)), slog.Any("error", *err))
}
