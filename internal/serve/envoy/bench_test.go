package envoy_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/envoy"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/store/memory"
)

// BenchmarkShouldRateLimit measures the service over gRPC, alternating with two servers with the same options: one that
// gives the same answer at once, of-floor, and one that answers only OK, of-null. ns/op covers three requests, one to
// each. Client and servers share the processors, so p99-ms, measured by the callers, is mostly time spent waiting for
// each other.
func BenchmarkShouldRateLimit(b *testing.B) {
	for _, descriptors := range []int{1, 3} {
		for _, callers := range []int{16, 64} {
			b.Run(fmt.Sprintf("descriptors=%d/callers=%d", descriptors, callers), func(b *testing.B) {
				lim := benchLimiter(b)
				svc, err := envoy.New(envoy.Config{Limiter: lim})
				if err != nil {
					b.Fatal(err)
				}
				req := &rlsv3.RateLimitRequest{Domain: "edge"}
				for i := range descriptors {
					req.Descriptors = append(req.Descriptors, entry(fmt.Sprintf("user=%d", i)))
				}
				same, err := svc.ShouldRateLimit(b.Context(), req)
				if err != nil {
					b.Fatal(err)
				}
				measured := newCallers(b, lim, svc.Register, callers)
				floor := newCallers(b, lim, fixed{answer: same}.register, callers)
				null := newCallers(b, lim, fixed{answer: &rlsv3.RateLimitResponse{OverallCode: ok}}.register, callers)
				const stretch = 2000
				for _, c := range []*clients{measured, floor, null} {
					c.run(b, stretch, req)
				}
				clear(measured.took)
				clear(floor.took)
				var took, floorTook, nullTook time.Duration
				b.ResetTimer()
				for n := b.N; n > 0; n -= stretch {
					floorTook += floor.run(b, min(n, stretch), req)
					took += measured.run(b, min(n, stretch), req)
					nullTook += null.run(b, min(n, stretch), req)
				}
				b.ReportMetric(float64(b.N)/took.Seconds(), "req/s")
				b.ReportMetric(floorTook.Seconds()/took.Seconds(), "of-floor")
				b.ReportMetric(nullTook.Seconds()/took.Seconds(), "of-null")
				b.ReportMetric(measured.millis(0.50), "p50-ms")
				b.ReportMetric(measured.millis(0.99), "p99-ms")
				b.ReportMetric(floor.millis(0.99), "floor-p99-ms")
			})
		}
	}
}

// BenchmarkAnswer measures the service without gRPC.
func BenchmarkAnswer(b *testing.B) {
	for _, descriptors := range []int{1, 3} {
		b.Run(fmt.Sprintf("descriptors=%d", descriptors), func(b *testing.B) {
			svc, err := envoy.New(envoy.Config{Limiter: benchLimiter(b)})
			if err != nil {
				b.Fatal(err)
			}
			req := &rlsv3.RateLimitRequest{Domain: "edge"}
			for i := range descriptors {
				req.Descriptors = append(req.Descriptors, entry(fmt.Sprintf("user=%d", i)))
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := svc.ShouldRateLimit(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchLimiter(b *testing.B) *weir.Limiter {
	b.Helper()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { lim.Close() })
	if err := admin.New(lim).Limits.Set(b.Context(), admin.Scope{}, weir.PerSecond("rps", 4_000_000).WithBurst(weir.MaxTokens)); err != nil {
		b.Fatal(err)
	}
	return lim
}

// fixed answers at once.
type fixed struct {
	rlsv3.UnimplementedRateLimitServiceServer
	answer *rlsv3.RateLimitResponse
}

func (f fixed) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return f.answer, nil
}

func (f fixed) register(r grpc.ServiceRegistrar) { rlsv3.RegisterRateLimitServiceServer(r, f) }

// clients are clients of one server, on four connections in total.
type clients struct {
	of   []rlsv3.RateLimitServiceClient
	took [][]time.Duration // the time of each call, by caller
}

func newCallers(b *testing.B, lim *weir.Limiter, register func(grpc.ServiceRegistrar), n int) *clients {
	b.Helper()
	s, err := grpcapi.New(grpcapi.Config{Config: decide.Config{Limiter: lim}, Services: []func(grpc.ServiceRegistrar){register}})
	if err != nil {
		b.Fatal(err)
	}
	ln, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	cs := make([]rlsv3.RateLimitServiceClient, n)
	for i := range cs {
		if i >= 4 {
			cs[i] = cs[i%4]
			continue
		}
		conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		cs[i] = rlsv3.NewRateLimitServiceClient(conn)
	}
	return &clients{cs, make([][]time.Duration, n)}
}

// millis returns a quantile of the call times in milliseconds.
func (cs *clients) millis(q float64) float64 {
	all := slices.Sorted(slices.Values(slices.Concat(cs.took...)))
	if len(all) == 0 {
		return 0
	}
	return float64(all[int(q*float64(len(all)-1))]) / 1e6
}

// run makes n calls, each caller one at a time, and returns how long they took.
func (cs *clients) run(b *testing.B, n int, req *rlsv3.RateLimitRequest) time.Duration {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	began := time.Now()
	for i, c := range cs.of {
		wg.Go(func() {
			took := cs.took[i]
			defer func() { cs.took[i] = took }()
			for left.Add(-1) >= 0 {
				asked := time.Now()
				if resp, err := c.ShouldRateLimit(b.Context(), req); err != nil || resp.GetOverallCode() != ok {
					b.Error(resp, err)
					return
				}
				took = append(took, time.Since(asked))
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}
