package metrics_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/internal/testkit/redirecttest"
)

const (
	traceID  = "0af7651916cd43dd8448eb211c80319c"
	parentID = "b7ad6b7169203331"
	sampled  = "00-" + traceID + "-" + parentID + "-01"
	ignored  = "00-" + traceID + "-" + parentID + "-00"
)

func tracing(t testing.TB, ratio float64) (*metrics.Tracing, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	tr, err := metrics.NewTracing(t.Context(), metrics.TracingConfig{Ratio: ratio, Processor: spans})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close(context.Background()) })
	return tr, spans
}

// family maps the names of spans to those of their parents.
func family(spans []sdktrace.ReadOnlySpan) map[string]string {
	names := map[string]string{parentID: "caller"}
	for _, s := range spans {
		names[s.SpanContext().SpanID().String()] = s.Name()
	}
	parents := make(map[string]string)
	for _, s := range spans {
		parents[s.Name()] = names[s.Parent().SpanID().String()]
	}
	return parents
}

// TestTraces checks that the spans of a request are nested, and that each lies within its parent's time.
func TestTraces(t *testing.T) {
	t.Parallel()
	tr, spans := tracing(t, 0)
	r := setup(t, metrics.Config{Tracing: tr})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/acquire", func(w http.ResponseWriter, req *http.Request) {
		lease, err := r.lim.Acquire(req.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rph": 1}})
		if err != nil {
			t.Error(err)
			return
		}
		_ = lease.Rollback(req.Context())
		w.WriteHeader(http.StatusTeapot)
	})
	h := r.m.Requests(mux)
	for _, parent := range []string{"", ignored, "nonsense", sampled} {
		req := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/acquire", nil)
		req.Header.Set("Traceparent", parent)
		h.ServeHTTP(httptest.NewRecorder(), req)
	}
	got := spans.Ended()
	want := map[string]string{
		"POST /v1/acquire": "caller", "decide": "POST /v1/acquire", "store get": "decide", "store take": "decide", "store settle": "POST /v1/acquire",
	}
	delete(want, "store get") // looked up by earlier requests
	parents := family(got)
	if len(got) != len(want) {
		t.Errorf("%d spans, of %v", len(got), parents)
	}
	for name, parent := range want {
		if parents[name] != parent {
			t.Errorf("%q is beneath %q", name, parents[name])
		}
	}
	byName := make(map[string]sdktrace.ReadOnlySpan)
	for _, s := range got {
		if s.SpanContext().TraceID().String() != traceID {
			t.Errorf("%q is of trace %s", s.Name(), s.SpanContext().TraceID())
		}
		byName[s.Name()] = s
	}
	for child, parent := range map[string]string{"store take": "decide", "decide": "POST /v1/acquire"} {
		c, p := byName[child], byName[parent]
		if c == nil || p == nil || c.StartTime().Before(p.StartTime()) || c.EndTime().After(p.EndTime()) {
			t.Errorf("%q is not within %q", child, parent)
		}
	}
	r.has(`weir_http_request_duration_seconds_count{route="POST /v1/acquire",status="4xx"} 4`, `weir_http_requests_in_flight 0`)
}

func TestTracesGRPC(t *testing.T) {
	t.Parallel()
	tr, spans := tracing(t, 0)
	r := setup(t, metrics.Config{Tracing: tr})
	info := &grpc.UnaryServerInfo{FullMethod: "/weir.v1.Limiter/Acquire"}
	for _, parent := range []string{ignored, sampled} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", parent))
		_, _ = r.m.Unary(ctx, nil, info, func(ctx context.Context, _ any) (any, error) {
			r.has(`weir_grpc_requests_in_flight 1`)
			return r.lim.Allow(ctx, "alice", "api")
		})
	}
	parents := family(spans.Ended())
	if parents[info.FullMethod] != "caller" || parents["decide"] != info.FullMethod || parents["store take"] != "decide" {
		t.Errorf("%v", parents)
	}
	r.has(`weir_grpc_request_duration_seconds_count{code="OK",method="/weir.v1.Limiter/Acquire"} 2`)
}

// TestTraceRatio checks that without a traceparent the ratio decides.
func TestTraceRatio(t *testing.T) {
	t.Parallel()
	for ratio, want := range map[float64]int{0: 0, 1: 1} {
		tr, spans := tracing(t, ratio)
		r := setup(t, metrics.Config{Tracing: tr})
		h := r.m.Requests(http.NotFoundHandler())
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/nowhere", nil))
		if got := len(spans.Ended()); got != want {
			t.Errorf("ratio %g: %d spans", ratio, got)
		}
		r.has(`weir_http_request_duration_seconds_count{route="none",status="4xx"} 1`)
	}
}

// A redirect is not followed: headers of OTEL_EXPORTER_OTLP_HEADERS are for the receiver that was named.
func TestTracesRedirected(t *testing.T) {
	t.Parallel()
	tr, err := metrics.NewTracing(t.Context(), metrics.TracingConfig{Endpoint: redirecttest.Start(t), Ratio: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := setup(t, metrics.Config{Tracing: tr})
	r.m.Requests(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/nowhere", nil))
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
