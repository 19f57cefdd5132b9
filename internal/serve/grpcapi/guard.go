package grpcapi

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/auth"
)

// unary authenticates a request, recovers from a handler's panic, and logs at level Debug.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if v := recover(); v != nil {
			resp, err = nil, s.survived(ctx, info.FullMethod, v)
		}
	}()
	ctx, who, err := s.admitted(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if s.debug {
		defer s.logged(ctx, info.FullMethod, time.Now(), &err)
	}
	if !s.working.Try(who) {
		return nil, s.overloaded(ctx, info.FullMethod)
	}
	defer s.working.Free(who)
	return next(ctx, req)
}

// stream is unary for streams. Their contexts also end when the server shuts down.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	ctx := ss.Context()
	defer func() {
		if v := recover(); v != nil {
			err = s.survived(ctx, info.FullMethod, v)
		}
	}()
	ctx, who, err := s.admitted(ctx, info.FullMethod)
	if err != nil {
		return err
	}
	if s.debug {
		defer s.logged(ctx, info.FullMethod, time.Now(), &err)
	}
	if !s.streaming.Try(who) {
		return s.overloaded(ctx, info.FullMethod)
	}
	defer s.streaming.Free(who)
	ctx, end := s.untilDrained(ctx)
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

// untilDrained returns a context that ends with ctx, or when the server shuts down, with errDraining as its cause.
func (s *Server) untilDrained(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s.draining:
			cancel(errDraining)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// strangers is the name under which all callers without a token are counted. No token can have this name.
const strangers = "no token"

// admitted authenticates a request. It returns the request's context with the principal, and the principal's name. The
// health service is open to everyone.
func (s *Server) admitted(ctx context.Context, method string) (_ context.Context, who string, err error) {
	if s.cfg.Book == nil {
		return auth.With(ctx, auth.Anybody()), "", nil
	}
	if strings.HasPrefix(method, "/grpc.health.v1.Health/") {
		return ctx, strangers, nil
	}
	p, ok := s.cfg.Book.Authenticate(auth.Bearer(metadata.ValueFromIncomingContext(ctx, "authorization")))
	if !ok {
		s.refused(ctx, method, "no valid token")
		return ctx, "", errUnauthenticated
	}
	return auth.With(ctx, p), p.Name, nil
}

// in returns the limiter of the namespace that a request names; "" means that it names none. For a namespace that the
// principal may not use, the error does not reveal whether it exists.
func (s *Server) in(ctx context.Context, role auth.Role, namespace string) (*weir.Limiter, error) {
	p, own := auth.From(ctx), s.cfg.Limiter.Namespace()
	if namespace == "" {
		namespace = p.Namespace(own)
	}
	switch {
	case !p.May(role, namespace):
		method, _ := grpc.Method(ctx)
		s.refused(ctx, method, "not the role or not the namespace")
		return nil, errForbidden
	case namespace == own:
		return s.cfg.Limiter, nil
	}
	return s.cfg.Limiter.In(namespace), nil
}

// refused logs an unauthorized request, at most once a second.
func (s *Server) refused(ctx context.Context, method, why string) {
	if s.refusals.due() {
		s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "a request was refused", slog.String("why", why),
			slog.String("method", method), slog.String("from", from(ctx)), slog.String("principal", auth.From(ctx).Audit("")))
	}
}

// overloaded returns the failure for a request that is refused because of overload, and logs it at most once a second.
func (s *Server) overloaded(ctx context.Context, method string) *failure {
	if s.overloads.due() {
		s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "too many requests at once", slog.String("method", method), slog.Int("most", s.cfg.MaxInflight),
			slog.String("principal", auth.From(ctx).Audit("")))
	}
	return errOverloaded
}

func from(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// trouble logs an error, at most one per second: when the store is down, every request has one.
func (s *Server) trouble(ctx context.Context, what string, err error) {
	if s.troubles.due() {
		method, _ := grpc.Method(ctx)
		s.cfg.Log.LogAttrs(ctx, slog.LevelError, "trouble with a request",
			slog.String("what", what), slog.String("method", method), slog.Any("error", err))
	}
}

// survived logs a panic and returns the failure for the client.
func (s *Server) survived(ctx context.Context, method string, v any) *failure {
	s.cfg.Log.LogAttrs(ctx, slog.LevelError, "a request panicked",
		slog.String("method", method), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
	return errInternal
}

func (s *Server) logged(ctx context.Context, method string, began time.Time, err *error) {
	s.cfg.Log.LogAttrs(ctx, slog.LevelDebug, "request", slog.String("method", method),
		slog.Duration("took", time.Since(began)), slog.Any("error", *err))
}

// seldom permits something at most once a second.
type seldom struct{ last atomic.Int64 }

func (s *seldom) due() bool {
	now := time.Now().UnixNano()
	last := s.last.Load()
	return now-last >= int64(time.Second) && s.last.CompareAndSwap(last, now)
}
