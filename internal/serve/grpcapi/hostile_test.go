package grpcapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // as the program has it, for traces

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/conns"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/envoy"
	"github.com/weirlimits/weir/internal/serve/gcpace"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// siege is a server on sockets, with a quiet tenant and one that attacks.
type siege struct {
	*tenants
	target
}

// newSiege serves the tenants on sockets.
func newSiege(t testing.TB, st store.Store, within time.Duration, token bool) *siege {
	t.Helper()
	s := &siege{newTenants(t, st, within), target{}}
	if token {
		s.Token, s.Second = s.tokens["noisy"], s.tokens["noisy-2"]
	}
	cfg := decide.Config{Limiter: s.lim, Book: s.cfg.Book, Held: conns.NewBudget(decide.DefaultHeld), Grace: time.Millisecond}
	mapping, err := envoy.ReadMapping(strictyaml.Source{
		Name: "envoy.yaml", Text: []byte("domains: {noisy: {namespace: noisy, builtin: true}, quiet: {namespace: quiet, builtin: true}}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	service, err := envoy.New(envoy.Config{
		Limiter: s.lim, Mapping: func() *envoy.Mapping { return mapping },
		May: func(ctx context.Context, a auth.Access) bool { return decide.CallerOf(ctx).May(a) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	gs, err := grpcapi.New(grpcapi.Config{Config: cfg, Services: []func(grpc.ServiceRegistrar){service.Register}})
	if err != nil {
		t.Fatal(err)
	}
	hs, err := httpapi.New(httpapi.Config{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	serve := func(serve func(context.Context, net.Listener) error) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, ln) }()
		t.Cleanup(func() {
			stop()
			<-ended
		})
		return ln.Addr().String()
	}
	s.GRPC, s.HTTP = serve(gs.Serve), serve(hs.Serve)
	conn, err := grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s.LimiterClient = weirv1.NewLimiterClient(conn)
	return s
}

// footprint samples how much memory the process uses until end is called, which returns the most, in MB.
func footprint() (end func() float64) {
	debug.FreeOSMemory()
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	stop, done := make(chan struct{}), make(chan float64)
	go func() {
		most := uint64(0)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			metrics.Read(samples)
			most = max(most, samples[0].Value.Uint64()-samples[1].Value.Uint64())
			select {
			case <-tick.C:
			case <-stop:
				done <- float64(most) / 1e6
				return
			}
		}
	}()
	return func() float64 {
		close(stop)
		return <-done
	}
}

// hostile is the variable with the file of the assault that a process of this program makes instead of running tests.
const hostile = "WEIR_TEST_HOSTILE"

// assault is an attack on a number of connections or, without a name, what one cost.
type assault struct {
	target
	Name string
	N    int
	Cost cost
}

// cost is how long a process had computed by some times since its start.
type cost []struct{ At, Used time.Duration }

// assail makes an attack until the standard input ends, and prints what it cost.
func assail(of string) {
	var a assault
	text, err := os.ReadFile(of)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println("ready")
	spent := measureCost(ctx)
	for _, known := range attacks {
		if known.name == a.Name {
			known.run(&a.target, ctx, a.N)
		}
	}
	a.Cost.repeat(ctx)
	if err := json.NewEncoder(os.Stdout).Encode(spent()); err != nil {
		panic(err)
	}
}

// measureCost measures what the process computes until ctx ends.
func measureCost(ctx context.Context) (end func() cost) {
	var c cost
	began, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			c = append(c, struct{ At, Used time.Duration }{time.Since(began), cpuTime()})
		}
	}()
	return func() cost {
		<-done
		return c
	}
}

// repeat computes as long as the process that was measured, at the same times.
func (c cost) repeat(ctx context.Context) {
	began, at := time.Now(), time.Duration(0)
	for _, next := range c {
		time.Sleep(time.Until(began.Add(at))) // real time: none, tests are in a bubble
		if at = next.At; ctx.Err() != nil {
			return
		}
		var wg sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			wg.Go(func() {
				for cpuTime() < next.Used && time.Since(began) < next.At {
				}
			})
		}
		wg.Wait()
	}
}

// attacked is a server's behavior during an attack.
type attacked struct {
	*answers         // the quiet tenant's
	mb       float64 // the most memory that was in use
	cpus     float64 // how many were busy, on average
	cost     cost    // of the attacker
}

// beside measures the server while another process attacks it, which yields to it.
func (s *siege) beside(t testing.TB, during time.Duration, a assault) attacked {
	t.Helper()
	a.target = s.target
	what, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.NewEncoder(what).Encode(a), what.Close()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "nice", "-n", "10", os.Args[0])
	cmd.Env = append(os.Environ(), hostile+"="+what.Name())
	cmd.Stderr = os.Stderr
	stop, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	end := footprint()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	began, used := time.Now(), cpuTime()
	beside := s.quiet(during)
	cpus := (cpuTime() - used).Seconds() / time.Since(began).Seconds()
	_ = stop.Close()
	result := attacked{answers: beside, cpus: cpus}
	if err := errors.Join(json.NewDecoder(out).Decode(&result.cost), cmd.Wait()); err != nil {
		t.Error(err)
	}
	result.mb = end()
	return result
}

// cpuTime returns how long the process has computed.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestHostile checks that one tenant, with a token or without, neither fills the memory nor keeps another from being
// answered.
//
//nolint:paralleltest // what the whole process uses is measured
func TestHostile(t *testing.T) {
	for _, token := range []bool{false, true} {
		for _, a := range attacks {
			t.Run(fmt.Sprintf("%s/token=%t", a.name, token), func(t *testing.T) {
				s := newSiege(t, memory.New(nil), time.Second, token)
				s.quiet(100 * time.Millisecond)
				n, most := 20, 250.0
				if a.name == "streams" {
					n = 100
				}
				if !token || a.name == "streams" {
					most = 200
				}
				beside := s.beside(t, 500*time.Millisecond, assault{Name: a.name, N: n})
				if 100*beside.degraded > beside.all {
					t.Errorf("%d of %d were not answered right: %v", beside.degraded, beside.all, beside.last)
				}
				if beside.mb > most {
					t.Errorf("the process used %.0f MB", beside.mb)
				}
				t.Logf("%.0f MB, %.2f CPUs, p99 %s", beside.mb, beside.cpus, beside.quantile(0.99))
			})
		}
	}
}

// BenchmarkBesideHostile measures a tenant's requests, 100 a second, while another attacks on 100 connections or more. Run
// it with -benchtime=60x: a round takes a second. Attacker and server have the same processors, so the control is measured
// afterwards, for as long: a process that computes as much as the attacker did, at the same times, and sends nothing. The
// ratio is that to the control: what the attack does beyond that the machine is busy.
func BenchmarkBesideHostile(b *testing.B) {
	for _, token := range []bool{false, true} {
		for _, a := range attacks {
			b.Run(fmt.Sprintf("%s/token=%t", a.name, token), func(b *testing.B) {
				gcpace.Least(64 << 20) // this and the time for a decision as in weir serve
				s := newSiege(b, onRedis(b), 60*time.Millisecond, token)
				s.quiet(time.Second)
				alone, during := s.quiet(2*time.Second), time.Duration(b.N)*time.Second
				b.ResetTimer()
				beside := s.beside(b, during, assault{Name: a.name, N: 100})
				s.quiet(2 * time.Second) // until nothing is left of the attack
				control := s.beside(b, during, assault{Cost: beside.cost})
				ms := func(a *answers) float64 { return a.quantile(0.99).Seconds() * 1000 }
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(beside.mb, "MB")
				b.ReportMetric(beside.cpus, "CPUs")
				b.ReportMetric(beside.undegraded(), "%right")
				b.ReportMetric(ms(alone), "p99-alone-ms")
				b.ReportMetric(ms(control.answers), "p99-control-ms")
				b.ReportMetric(ms(beside.answers), "p99-beside-ms")
				b.ReportMetric(ms(beside.answers)/ms(control.answers), "p99-ratio")
			})
		}
	}
}
