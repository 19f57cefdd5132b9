package metrics

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Unary counts the gRPC requests that next handles, and records spans for them if tracing is on.
func (t *traffic) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (resp any, err error) {
	ctx, end := t.call(ctx, info.FullMethod)
	defer func() { end(err) }()
	return next(ctx, req)
}

// Stream is [Metrics.Unary] for streams, each of which counts as one request.
func (t *traffic) Stream(
	srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) (err error) {
	ctx, end := t.call(ss.Context(), info.FullMethod)
	defer func() { end(err) }()
	return next(srv, &stream{ss, ctx})
}

// call begins a request, and returns the function that ends it.
func (t *traffic) call(ctx context.Context, method string) (context.Context, func(error)) {
	began := time.Now()
	t.rpc.inFlight.Add(1)
	var sp *requestSpan
	if t.tracing != nil {
		md, _ := metadata.FromIncomingContext(ctx)
		ctx, sp = t.tracing.start(ctx, method, carrier(md))
	}
	return ctx, func(err error) {
		t.rpc.inFlight.Add(-1)
		code := status.Code(err)
		t.rpc.took.observe(requestKey{method, code.String()}, time.Since(began))
		if sp == nil {
			return
		}
		sp.SetAttributes(attribute.String("rpc.system", "grpc"), attribute.Int("rpc.grpc.status_code", int(code)))
		switch code {
		case codes.Unavailable, codes.Internal, codes.DeadlineExceeded, codes.Unknown, codes.DataLoss,
			codes.Unimplemented:
			sp.SetStatus(otelcodes.Error, code.String())
		default:
		}
		sp.end()
	}
}

// stream carries the context of its span.
type stream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream has one
}

// Context implements grpc.ServerStream.
func (s *stream) Context() context.Context { return s.ctx }

// carrier reads a traceparent from metadata.
type carrier metadata.MD

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	if v := metadata.MD(c).Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() (keys []string) {
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}
