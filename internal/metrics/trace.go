package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimits/weir"
)

// Tracing records a span for each request that is to be traced, beneath it one for each decision, and beneath that one
// for each call of the store. A request that comes with a W3C traceparent goes by what that says. Close it.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	context  propagation.TraceContext
}

// TracingConfig configures [Tracing].
type TracingConfig struct {
	// Endpoint is where spans go by OTLP over HTTP, as in http://127.0.0.1:4318. "" leaves it to
	// OTEL_EXPORTER_OTLP_ENDPOINT; the other OTEL_ variables count in any case.
	Endpoint string
	// Ratio is the share of requests that are traced, between 0 and 1. Negative leaves it to OTEL_TRACES_SAMPLER.
	Ratio float64
	// Version is that of the program.
	Version string
	// Log is told, at most once a minute, that spans cannot be sent. Defaults to nobody.
	Log *slog.Logger
	// Processor takes the spans in place of an exporter.
	Processor sdktrace.SpanProcessor
}

// TracingWanted reports whether the environment asks for traces.
func TracingWanted() bool {
	return !strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") && os.Getenv("OTEL_TRACES_EXPORTER") != "none" &&
		(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "")
}

// SamplerWanted reports whether the environment says what is to be traced.
func SamplerWanted() bool { return os.Getenv("OTEL_TRACES_SAMPLER") != "" }

// NewTracing returns what records spans and sends them now and then.
func NewTracing(ctx context.Context, cfg TracingConfig) (*Tracing, error) {
	if cfg.Log != nil {
		otel.SetErrorHandler(seldom(cfg.Log))
	}
	processor := cfg.Processor
	if processor == nil {
		var opts []otlptracehttp.Option
		if cfg.Endpoint != "" {
			opts = append(opts, otlptracehttp.WithEndpointURL(tracesURL(cfg.Endpoint)))
		}
		exporter, err := otlptracehttp.New(ctx, opts...)
		if err != nil {
			return nil, fmt.Errorf("traces: %w", err)
		}
		processor = sdktrace.NewBatchSpanProcessor(exporter)
	}
	res, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "weir"), attribute.String("service.version", cfg.Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithSpanProcessor(processor), sdktrace.WithResource(res)}
	if cfg.Ratio >= 0 {
		opts = append(opts, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.Ratio))))
	}
	t := &Tracing{provider: sdktrace.NewTracerProvider(opts...)}
	t.tracer = t.provider.Tracer("github.com/weirlimits/weir", trace.WithInstrumentationVersion(cfg.Version))
	return t, nil
}

// seldom logs what the exporter reports, which it does for every batch that it cannot send.
func seldom(log *slog.Logger) otel.ErrorHandlerFunc {
	var last atomic.Int64
	return func(err error) {
		now, was := time.Now().UnixNano(), last.Load()
		if now-was >= int64(time.Minute) && last.CompareAndSwap(was, now) {
			log.Warn("traces cannot be sent", slog.Any("error", err))
		}
	}
}

// tracesURL adds the path of traces to an endpoint without one, as the variable's is.
func tracesURL(endpoint string) string {
	if _, rest, ok := strings.Cut(endpoint, "://"); ok && !strings.Contains(strings.TrimSuffix(rest, "/"), "/") {
		return strings.TrimSuffix(endpoint, "/") + "/v1/traces"
	}
	return endpoint
}

// Close sends what was not sent yet, until ctx ends.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// requestSpan is the span of a request that is traced.
type requestSpan struct {
	trace.Span
	t   *Tracing
	ctx context.Context //nolint:containedctx // that of the span

	mu    sync.Mutex
	calls []storeCall // since the last decision
}

type storeCall struct {
	op           string
	began, ended time.Time
	err          error
}

type spanKey struct{}

// start begins the span of a request, and returns nil if it is not to be traced.
func (t *Tracing) start(ctx context.Context, name string, from propagation.TextMapCarrier) (context.Context, *requestSpan) {
	if t == nil {
		return ctx, nil
	}
	traced, span := t.tracer.Start(t.context.Extract(ctx, from), name, trace.WithSpanKind(trace.SpanKindServer))
	if !span.IsRecording() {
		return ctx, nil
	}
	sp := &requestSpan{Span: span, t: t, ctx: traced}
	return context.WithValue(traced, spanKey{}, sp), sp
}

// request begins the span of an HTTP request.
func (t *Tracing) request(r *http.Request) (*http.Request, *requestSpan) {
	ctx, sp := t.start(r.Context(), r.Method, propagation.HeaderCarrier(r.Header))
	if sp == nil {
		return r, nil
	}
	return r.WithContext(ctx), sp
}

// answered ends the span of an HTTP request.
func (sp *requestSpan) answered(r *http.Request, status int) {
	if sp == nil {
		return
	}
	if status == 0 {
		status = http.StatusOK
	}
	sp.SetName(routeOf(r))
	sp.SetAttributes(attribute.String("http.request.method", r.Method), attribute.Int("http.response.status_code", status))
	if status >= http.StatusInternalServerError {
		sp.SetStatus(codes.Error, http.StatusText(status))
	}
	sp.end()
}

func (sp *requestSpan) end() {
	sp.children(sp.ctx)
	sp.End()
}

// children makes spans of the calls of the store since the last time.
func (sp *requestSpan) children(ctx context.Context) {
	sp.mu.Lock()
	calls := sp.calls
	sp.calls = nil
	sp.mu.Unlock()
	for _, c := range calls {
		_, span := sp.t.tracer.Start(ctx, "store "+c.op, trace.WithTimestamp(c.began), trace.WithSpanKind(trace.SpanKindClient))
		if result := resultOf(c.err); c.err != nil {
			span.SetAttributes(attribute.String("weir.result", result))
			if troubled(result) {
				span.SetStatus(codes.Error, c.err.Error())
			}
		}
		span.End(trace.WithTimestamp(c.ended))
	}
}

func spanOf(ctx context.Context) *requestSpan {
	sp, _ := ctx.Value(spanKey{}).(*requestSpan)
	return sp
}

// first returns when a decision began: not after its first call, of which the time was also taken back from the end.
func (sp *requestSpan) first(began time.Time) time.Time {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for _, c := range sp.calls {
		if c.began.Before(began) {
			began = c.began
		}
	}
	return began
}

// decided makes the span of a decision that was made, and of the calls of the store that it took.
func (t *Tracing) decided(ctx context.Context, e *weir.DecidedEvent, o outcome) {
	if t == nil {
		return
	}
	sp := spanOf(ctx)
	if sp == nil {
		return
	}
	now := time.Now()
	within, span := t.tracer.Start(sp.ctx, "decide", trace.WithTimestamp(sp.first(now.Add(-e.Took))), trace.WithAttributes(
		attribute.String("weir.namespace", e.Namespace), attribute.String("weir.entity", e.Entity),
		attribute.String("weir.resource", e.Resource), attribute.String("weir.outcome", o.String()),
	))
	if o == failed {
		span.SetStatus(codes.Error, e.Err.Error())
	}
	sp.children(within)
	span.End(trace.WithTimestamp(now))
}

// called remembers a call of the store: the span above it is made when the decision is.
func (t *Tracing) called(ctx context.Context, e *weir.CalledEvent) {
	if t == nil {
		return
	}
	sp := spanOf(ctx)
	if sp == nil {
		return
	}
	now := time.Now()
	sp.mu.Lock()
	sp.calls = append(sp.calls, storeCall{e.Op, now.Add(-e.Took), now, e.Err})
	sp.mu.Unlock()
}
