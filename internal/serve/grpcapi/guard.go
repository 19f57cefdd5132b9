package grpcapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/conns"
	"github.com/weirlimits/weir/internal/serve/decide"
)

// unary recovers from a handler's panic, and logs at level Debug.
func (s *Server) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (resp any, err error) {
	defer func() {
		if v := recover(); v != nil {
			resp, err = nil, s.survived(ctx, v)
		}
	}()
	c := decide.CallerOf(ctx)
	c.Received()
	c.Conn.Begin()
	defer c.Conn.End()
	if s.decide.LogsRequests() {
		defer s.logged(ctx, c, info.FullMethod, time.Now(), &err)
	}
	if err := s.decide.Begin(ctx, c); err != nil {
		return nil, s.fail(ctx, err)
	}
	defer c.End()
	resp, err = next(ctx, req)
	c.End() // what it holds from now on is its answer
	if err == nil && !c.Conn.AddAnswer(ctx, sizeOf(resp)) {
		if c.Unsent != nil {
			c.Unsent()
		}
		return nil, s.fail(ctx, decide.ErrUnread)
	}
	return resp, err
}

// stream is unary for streams. They also end when the server shuts down, or their token is revoked.
func (s *Server) stream(
	srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) (err error) {
	ctx := ss.Context()
	defer func() {
		if v := recover(); v != nil {
			err = s.survived(ctx, v)
		}
	}()
	c := decide.CallerOf(ctx)
	c.Conn.Begin()
	defer c.Conn.End()
	if s.decide.LogsRequests() {
		defer s.logged(ctx, c, info.FullMethod, time.Now(), &err)
	}
	if err := s.decide.Stream(c); err != nil {
		return s.fail(ctx, err)
	}
	defer c.End()
	ctx, end := s.decide.Long(ctx)
	defer end()
	err = next(srv, &stream{ss, ctx})
	var own *decide.Error
	if errors.As(context.Cause(ctx), &own) || errors.As(err, &own) { // not the client has ended it
		return s.fail(ctx, own)
	}
	return err
}

// stream is a server stream with a different context.
type stream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream carries its context
}

// Context returns the context of the stream.
func (s *stream) Context() context.Context { return s.ctx }

// SendMsg sends a message.
func (s *stream) SendMsg(m any) error {
	if !decide.CallerOf(s.ctx).Conn.AddAnswer(s.ctx, sizeOf(m)) {
		return decide.ErrUnread
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg receives a message. It returns when the context ends, although the client may hold the stream open. After an
// error, m may still be written to, so callers do not use it.
func (s *stream) RecvMsg(m any) error {
	received := make(chan error, 1)
	go func() { received <- s.ServerStream.RecvMsg(m) }() // ends when the handler has returned
	select {
	case err := <-received:
		decide.CallerOf(s.ctx).Received()
		return err
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// arrive authenticates a request by its headers, before its message is received, and returns its context with the
// caller. The health service is open to everyone. It must be fast: the connection waits for it.
func (s *Server) arrive(ctx context.Context, info *tap.Info) (context.Context, error) {
	c := &decide.Caller{Principal: auth.Anybody()}
	var conn *tls.ConnectionState
	if p, ok := peer.FromContext(ctx); ok {
		c.Conn = conns.Of(p.Addr)
		c.Conn.Yield()
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			conn = &info.State
		}
	}
	if n := len(info.Header); n > maxFields {
		c.Conn.Refuse()
		return ctx, s.fail(ctx, badField("headers", "must have at most %d names, have %d", maxFields, n))
	}
	if s.cfg.Book != nil {
		p, ok := s.cfg.Book.Authenticate(auth.Bearer(info.Header.Get("authorization")), conn)
		if !ok && !strings.HasPrefix(info.FullMethodName, "/grpc.health.v1.Health/") {
			c.Conn.Refuse()
			err := &decide.RefusalError{Answer: decide.ErrUnauthenticated, Reason: auth.NoToken}
			f := &failure{
				Fault: s.decide.Fault(ctx, err, From(ctx), slog.String("method", info.FullMethodName)),
			}
			if s.decide.LogsRequests() {
				var failed error = f
				s.logged(metadata.NewIncomingContext(ctx, info.Header), c, info.FullMethodName, time.Now(), &failed)
			}
			return ctx, f
		}
		c.Principal = p
	}
	if c.Principal != nil && !c.Conn.Authenticate(c.Name) {
		c.Conn.Refuse()
		return ctx, s.fail(ctx, decide.ErrConnections)
	}
	return decide.Receive(ctx, c), nil
}

// in returns the limiter for a request, if the caller may access it so; see [decide.Decider.In].
func (s *Server) in(ctx context.Context, a auth.Access) (*weir.Limiter, error) {
	return s.decide.In(decide.CallerOf(ctx), a)
}

// From returns the address of the client that sent a request.
func From(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// survived logs a panic and returns the failure for the client.
func (s *Server) survived(ctx context.Context, v any) *failure {
	return s.fail(ctx, s.decide.Panicked(ctx, v, method(ctx)))
}

// logged logs a request that has ended.
func (s *Server) logged(ctx context.Context, c *decide.Caller, route string, began time.Time, err *error) {
	var f *failure
	if errors.As(*err, &f) {
		c.RefusedBy = f.RefusedBy
	}
	given, _ := metadata.FromIncomingContext(ctx)
	id := decide.RequestID(strings.Join(given.Get("x-request-id"), ""))
	s.decide.Request(ctx, c, From(ctx), id, began, *err, slog.String("method", "gRPC"), slog.String("route", route),
		slog.String("code", status.Code(*err).String()))
}
