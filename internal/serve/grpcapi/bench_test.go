//go:build unix

package grpcapi_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/store/memory"
)

// BenchmarkAcquire measures Acquire with two limits, alternating with a server of the same options that gives the same
// answer at once, and reports which share of that server's rate is left, by CPU time. ns/op covers a request and a floor
// request. Client and server share the processors.
func BenchmarkAcquire(b *testing.B) {
	for _, callers := range []int{16, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			acquire := newCallers(b, newServer(b), callers)
			floor := newCallers(b, floorOf(b, acquire), callers)
			inTurns(b, floor, acquire, func(ctx context.Context, c weirv1.LimiterClient) error {
				_, err := c.Acquire(ctx, acquireRequest)
				return err
			}, 1)
		})
	}
}

// BenchmarkAcquireBatch is BenchmarkAcquire with 100 requests at a time.
func BenchmarkAcquireBatch(b *testing.B) {
	for _, brief := range []bool{false, true} {
		b.Run(fmt.Sprintf("brief=%t", brief), func(b *testing.B) {
			req := &weirv1.AcquireBatchRequest{Brief: brief}
			for range 100 {
				req.Requests = append(req.Requests, acquireRequest)
			}
			acquire := newCallers(b, newServer(b), 16)
			floor := newCallers(b, floorOf(b, acquire), 16)
			inTurns(b, floor, acquire, func(ctx context.Context, c weirv1.LimiterClient) error {
				_, err := c.AcquireBatch(ctx, req)
				return err
			}, 100)
		})
	}
}

var acquireRequest = &weirv1.AcquireRequest{Entity: "key-alice", Resource: "gpt-4", Tokens: map[string]int64{"rpm": 1, "tpm": 500}}

// inTurns runs b.N calls on both, alternating in stretches, so that other load on the machine affects both.
func inTurns(b *testing.B, floor, measured callers, call func(context.Context, weirv1.LimiterClient) error, checks float64) {
	b.Helper()
	stretch := max(1, 2000/int(checks))
	measured.run(b, stretch, call)
	floor.run(b, stretch, call)
	var took, floorTook spent
	b.ReportAllocs()
	b.ResetTimer()
	for n := b.N; n > 0; n -= stretch {
		floorTook.add(floor.run(b, min(n, stretch), call))
		took.add(measured.run(b, min(n, stretch), call))
	}
	total := checks * float64(b.N)
	b.ReportMetric(total/took.wall.Seconds(), "checks/s")
	b.ReportMetric(total/floorTook.wall.Seconds(), "floor-checks/s")
	b.ReportMetric(float64(took.cpu.Nanoseconds())/total/1000, "cpu-µs/check")
	b.ReportMetric(float64(floorTook.cpu.Nanoseconds())/total/1000, "floor-cpu-µs/check")
	b.ReportMetric(float64(floorTook.cpu)/float64(took.cpu), "of-floor")
}

// callers are clients of one server, on four connections in total.
type callers []weirv1.LimiterClient

func newCallers(b *testing.B, addr string, n int) callers {
	b.Helper()
	var conns []weirv1.LimiterClient
	for range 4 {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		conns = append(conns, weirv1.NewLimiterClient(conn))
	}
	cs := make(callers, n)
	for i := range cs {
		cs[i] = conns[i%len(conns)]
	}
	return cs
}

// spent is the wall time and the CPU time of this process, client and server together.
type spent struct{ wall, cpu time.Duration }

func (s *spent) add(o spent) { s.wall, s.cpu = s.wall+o.wall, s.cpu+o.cpu }

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// run makes n calls, each caller one at a time, and returns the time spent.
func (cs callers) run(b *testing.B, n int, call func(context.Context, weirv1.LimiterClient) error) spent {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	began, used := time.Now(), cpu(b)
	for _, c := range cs {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(b.Context(), c); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return spent{time.Since(began), cpu(b) - used}
}

func newServer(b *testing.B) string {
	b.Helper()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { lim.Close() })
	err = admin.New(lim).Limits.Set(b.Context(), admin.Scope{Resource: "gpt-4"},
		weir.PerSecond("rpm", 1_000_000).WithBurst(weir.MaxTokens), weir.PerSecond("tpm", 4_000_000).WithBurst(weir.MaxTokens))
	if err != nil {
		b.Fatal(err)
	}
	return serve(b, lim)
}

func serve(b *testing.B, lim *weir.Limiter) (addr string) {
	b.Helper()
	s, err := grpcapi.New(grpcapi.Config{Config: decide.Config{Limiter: lim}})
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
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
	return ln.Addr().String()
}

// floor repeats an answer that it once got from a server, without deciding anything.
type floor struct {
	weirv1.UnimplementedLimiterServer
	one         *weirv1.AcquireResponse
	many, brief *weirv1.AcquireBatchResponse
}

func (f *floor) Acquire(context.Context, *weirv1.AcquireRequest) (*weirv1.AcquireResponse, error) {
	return f.one, nil
}

func (f *floor) AcquireBatch(_ context.Context, in *weirv1.AcquireBatchRequest) (*weirv1.AcquireBatchResponse, error) {
	if in.GetBrief() {
		return f.brief, nil
	}
	return f.many, nil
}

// floorOf starts a server that gives the same answer as the callers' server: what gRPC alone costs with these options.
func floorOf(b *testing.B, of callers) (addr string) {
	b.Helper()
	one, err := of[0].Acquire(b.Context(), acquireRequest)
	if err != nil {
		b.Fatal(err)
	}
	f := &floor{one: one, many: &weirv1.AcquireBatchResponse{}, brief: &weirv1.AcquireBatchResponse{}}
	for range 100 {
		f.many.Results = append(f.many.Results, &weirv1.AcquireResult{Decision: one})
		f.brief.Results = append(f.brief.Results, &weirv1.AcquireResult{Decision: &weirv1.AcquireResponse{Allowed: true}})
	}
	gs := grpc.NewServer(grpcapi.FloorOptions()...)
	weirv1.RegisterLimiterServer(gs, f)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = gs.Serve(ln) }()
	b.Cleanup(gs.Stop)
	return ln.Addr().String()
}
