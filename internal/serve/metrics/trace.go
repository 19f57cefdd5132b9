package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
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
	"github.com/weirlimits/weir/internal/serve/ratelog"
)

// Tracing records a span for each traced request, below it one for each decision, and below that one for each store
// call. A W3C traceparent in a request decides whether it is traced. Close it after use.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	context  propagation.TraceContext
}

// TracingConfig configures [Tracing].
type TracingConfig struct {
	// Endpoint is where spans are sent by OTLP over HTTP, as in http://127.0.0.1:4318. If it is "",
	// OTEL_EXPORTER_OTLP_ENDPOINT applies; the other OTEL_ variables always apply.
	Endpoint string
	// Ratio is the share of requests that are traced, between 0 and 1. If it is negative, OTEL_TRACES_SAMPLER applies.
	Ratio float64
	// Version is the version of the program.
	Version string
	// Log receives a message, at most once a minute, if spans cannot be sent. Nil discards them.
	Log *slog.Logger
	// Processor receives the spans instead of an exporter.
	Processor sdktrace.SpanProcessor
}

// TracingWanted reports whether the environment turns traces on.
func TracingWanted() bool {
	return !strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") && os.Getenv("OTEL_TRACES_EXPORTER") != "none" &&
		(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "")
}

// TracingSends returns a variable of the environment whose value is sent along with traces, or "".
func TracingSends() string {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		if os.Getenv(name) != "" {
			return name
		}
	}
	return ""
}

// SamplerWanted reports whether the environment selects what to trace.
func SamplerWanted() bool { return os.Getenv("OTEL_TRACES_SAMPLER") != "" }

// NewTracing returns a Tracing that records spans and sends them in batches.
func NewTracing(ctx context.Context, cfg TracingConfig) (*Tracing, error) {
	if cfg.Log != nil {
		log := ratelog.Every(time.Minute, cfg.Log) // the exporter reports an error for every batch that it cannot send
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			log.Warn("traces cannot be sent", slog.Any("error", err))
		}))
	}
	processor := cfg.Processor
	if processor == nil {
		opts := []otlptracehttp.Option{otlptracehttp.WithProxy(direct)}
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
		resource.WithAttributes(attribute.String("service.name", "weir"),
			attribute.String("service.version", cfg.Version)),
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

var errRedirect = errors.New("the receiver of traces redirects: name the address that it redirects to")

// direct is the proxy of the environment. It fails a request that follows a redirect: the exporter sends its headers,
// which may hold a token, wherever the redirect leads.
func direct(r *http.Request) (*url.URL, error) {
	if r.Response != nil {
		return nil, errRedirect
	}
	return http.ProxyFromEnvironment(r)
}

// tracesURL appends the traces path to an endpoint without a path, as for the environment variable.
func tracesURL(endpoint string) string {
	if _, rest, ok := strings.Cut(endpoint, "://"); ok && !strings.Contains(strings.TrimSuffix(rest, "/"), "/") {
		return strings.TrimSuffix(endpoint, "/") + "/v1/traces"
	}
	return endpoint
}

// Close sends the remaining spans, until ctx is done.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// requestSpan is the span of a traced request.
type requestSpan struct {
	trace.Span
	t   *Tracing
	ctx context.Context //nolint:containedctx // the span's context

	mu    sync.Mutex
	calls []storeCall // since the last decision
}

type storeCall struct {
	op           string
	began, ended time.Time
	err          error
}

type spanKey struct{}

// start begins the span of a request. It returns nil if the request is not traced.
func (t *Tracing) start(
	ctx context.Context, name string, from propagation.TextMapCarrier,
) (context.Context, *requestSpan) {
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
	status = cmp.Or(status, http.StatusOK)
	sp.SetName(routeOf(r))
	sp.SetAttributes(attribute.String("http.request.method", r.Method),
		attribute.Int("http.response.status_code", status))
	if status >= http.StatusInternalServerError {
		sp.SetStatus(codes.Error, http.StatusText(status))
	}
	sp.end()
}

func (sp *requestSpan) end() {
	sp.children(sp.ctx)
	sp.End()
}

// children records spans for the store calls since the previous decision.
func (sp *requestSpan) children(ctx context.Context) {
	sp.mu.Lock()
	calls := sp.calls
	sp.calls = nil
	sp.mu.Unlock()
	for _, c := range calls {
		_, span := sp.t.tracer.Start(ctx, "store "+c.op, trace.WithTimestamp(c.began),
			trace.WithSpanKind(trace.SpanKindClient))
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

// first returns the start time of a decision. It is no later than that of its first call, which was also computed
// back from its end.
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

// decided records the span of a decision, and those of its store calls.
func (t *Tracing) decided(ctx context.Context, e *weir.DecidedEvent, o outcome) {
	if t == nil {
		return
	}
	sp := spanOf(ctx)
	if sp == nil {
		return
	}
	now := time.Now()
	within, span := t.tracer.Start(sp.ctx, "decide", trace.WithTimestamp(sp.first(now.Add(-e.Took))),
		trace.WithAttributes(
			attribute.String("weir.namespace", e.Namespace), attribute.String("weir.entity", text(e.Entity)),
			attribute.String("weir.resource", text(e.Resource)), attribute.String("weir.outcome", o.String()),
		))
	if o == failed || o == noShare {
		span.SetStatus(codes.Error, e.Err.Error())
	}
	sp.children(within)
	span.End(trace.WithTimestamp(now))
}

// text returns an id as an attribute: one that is not UTF-8 would keep a whole batch of spans from being sent.
func text(id string) string { return strings.ToValidUTF8(id, "\uFFFD") }

// called remembers a store call until its decision, whose span is the parent.
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
