package metrics

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimits/weir/internal/serve/auth"
)

// traffic counts requests.
type traffic struct {
	http, rpc requests
	shed      prometheus.Counter
	refused   *prometheus.CounterVec
	tracing   *Tracing
}

// requests counts the requests of one protocol.
type requests struct {
	took     *prometheus.HistogramVec // by route and class of the status, or by method and code
	inFlight prometheus.Gauge
}

func newTraffic(reg prometheus.Registerer, tracing *Tracing) traffic {
	t := traffic{
		http: newRequests(reg, "weir_http", "route", "status"), rpc: newRequests(reg, "weir_grpc", "method", "code"),
		shed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_http_shed_total", Help: "Requests rejected because there were too many.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_unauthorized_total", Help: "Requests refused because of who sent them.",
		}, []string{"reason"}),
		tracing: tracing,
	}
	for _, r := range auth.Reasons() {
		t.refused.WithLabelValues(string(r))
	}
	reg.MustRegister(t.shed, t.refused)
	return t
}

func newRequests(reg prometheus.Registerer, prefix string, labels ...string) requests {
	p := requests{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "_request_duration_seconds", Help: "Duration of requests.", Buckets: coarseBounds,
		}, labels),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "_requests_in_flight", Help: "Requests in progress.",
		}),
	}
	reg.MustRegister(p.took, p.inFlight)
	return p
}

// ended counts a request that began at the given time.
func (p *requests) ended(route, status string, began time.Time) {
	p.inFlight.Dec()
	p.took.WithLabelValues(route, status).Observe(time.Since(began).Seconds())
}

// Requests counts the requests that next handles, and records spans for them if tracing is on. It sees the routes of
// a ServeMux inside next.
func (t *traffic) Requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		t.http.inFlight.Inc()
		sw := &statusWriter{ResponseWriter: w}
		r, sp := t.tracing.request(r)
		defer func() {
			t.http.ended(routeOf(r), class(sw.status), began)
			sp.answered(r, sw.status)
		}()
		next.ServeHTTP(sw, r)
	})
}

// Shed counts a request that was rejected because there were too many.
func (t *traffic) Shed() { t.shed.Inc() }

// Unauthorized counts a request that was refused because of who sent it.
func (t *traffic) Unauthorized(reason auth.Reason) { t.refused.WithLabelValues(string(reason)).Inc() }

// routeOf returns the pattern that routed a request. There are few patterns, and they contain no IDs.
func routeOf(r *http.Request) string {
	if r.Pattern == "" {
		return "none"
	}
	return r.Pattern
}

var classes = [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}

// class returns the class of a status; no status means 200.
func class(status int) string {
	switch {
	case status == 0:
		return "2xx"
	case status < 100 || status > 599:
		return Other
	}
	return classes[status/100-1]
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status < http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

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
	t.rpc.inFlight.Inc()
	var sp *requestSpan
	if t.tracing != nil {
		md, _ := metadata.FromIncomingContext(ctx)
		from := propagation.MapCarrier{}
		for key, values := range md {
			from[key] = values[0]
		}
		ctx, sp = t.tracing.start(ctx, method, from)
	}
	return ctx, func(err error) {
		code := status.Code(err)
		t.rpc.ended(method, code.String(), began)
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
