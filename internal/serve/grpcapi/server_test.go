package grpcapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/store/memory"
)

// TestDrain repeatedly stops a server under load: everything that it decided, it must have answered.
func TestDrain(t *testing.T) {
	t.Parallel()
	for range 5 {
		f := setup(t, grpcapi.Config{})
		if err := admin.New(f.lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerDay("n", 1_000_000)); err != nil {
			t.Fatal(err)
		}
		var allowed atomic.Int64
		var wg sync.WaitGroup
		busy := make(chan struct{}, 1000)
		for range 16 {
			wg.Go(func() {
				for {
					a, err := f.Acquire(t.Context(), &weirv1.AcquireRequest{Entity: "e", Resource: "r", Tokens: map[string]int64{"n": 1}})
					if err != nil {
						if status.Code(err) != codes.Unavailable {
							t.Errorf("got %v", err)
						}
						return
					}
					if a.GetAllowed() {
						allowed.Add(1)
					}
					select {
					case busy <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 500 {
			<-busy
		}
		f.stop()
		if err := f.ended(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		b, err := admin.New(f.lim).Buckets.Get(t.Context(), "e", "r")
		if err != nil {
			t.Fatal(err)
		}
		if spent := b.Limits[0].Debited; spent != allowed.Load() {
			t.Errorf("%d are spent, %d were answered", spent, allowed.Load())
		}
	}
}

// TestDrainCutsOff checks that calls that take longer than the grace period are cut off.
func TestDrainCutsOff(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		st := &stuck{Store: memory.New(nil), entered: make(chan struct{}), release: make(chan struct{})}
		f := over(t, st, grpcapi.Config{Config: decide.Config{Grace: 100 * time.Millisecond}})
		sent := make(chan error, 1)
		go func() {
			_, err := f.Acquire(t.Context(), alice(1, 1))
			sent <- err
		}()
		<-st.entered
		f.stop()
		go func() {
			time.Sleep(time.Second)
			close(st.release)
		}()
		if err := f.ended(); err == nil || !strings.Contains(err.Error(), "cut off after 100ms") {
			t.Errorf("got %v", err)
		}
		wants(t, <-sent, codes.Unavailable, "")
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := setup(t, grpcapi.Config{})
		h := healthpb.NewHealthClient(f.conn)
		for _, name := range []string{"", "weir.v1.Limiter"} {
			r, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
			if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
				t.Errorf("%q: got %v, %v", name, r, err)
			}
		}
		w, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := w.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("got %v, %v", r, err)
		}
		f.stop()
		if err := f.ended(); err != nil { // health watchers do not hold up the shutdown
			t.Error(err)
		}
	})
}

func TestReflection(t *testing.T) {
	t.Parallel()
	f := setup(t, grpcapi.Config{})
	stream, err := reflectpb.NewServerReflectionClient(f.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectpb.ServerReflectionRequest{MessageRequest: &reflectpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range r.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if !slices.Contains(names, "weir.v1.Limiter") || !slices.Contains(names, "grpc.health.v1.Health") {
		t.Errorf("got %q", names)
	}
	_ = stream.CloseSend()
}

// panicking is a service registered by the embedding program.
type panicking struct {
	healthpb.UnimplementedHealthServer
	principal string
}

func (p *panicking) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	p.principal = decide.CallerOf(ctx).Audit("anybody")
	panic("mistake")
}

func (p *panicking) List(ctx context.Context, _ *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	return nil, errors.New("not here")
}

// TestServices checks that services registered by others are protected like weir's own.
func TestServices(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	p := &panicking{}
	f := setup(t, grpcapi.Config{Config: decide.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, Services: []func(grpc.ServiceRegistrar){func(r grpc.ServiceRegistrar) {
		desc := healthpb.Health_ServiceDesc
		desc.ServiceName = "test.Panicking"
		r.RegisterService(&desc, p)
	}}})
	err := f.conn.Invoke(t.Context(), "/test.Panicking/Check", &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{})
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "mistake") {
		t.Errorf("got %v", err)
	}
	if p.principal != "anybody" {
		t.Errorf("comes from %q", p.principal)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "panic=mistake") {
		t.Errorf("logged %d lines: %s", n, log.String())
	}
	r, err := healthpb.NewHealthClient(f.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "test.Panicking"})
	if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", r, err)
	}
}

// TestInflight checks that requests beyond the bound are refused, and that waiting requests do not count.
func TestInflight(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		st := &stuck{Store: memory.New(nil), entered: make(chan struct{}, 9), release: make(chan struct{})}
		f := over(t, st, grpcapi.Config{Config: decide.Config{MaxInflight: 1}})
		sent := make(chan error, 1)
		go func() {
			_, err := f.Acquire(t.Context(), alice(1, 1))
			sent <- err
		}()
		<-st.entered
		_, err := f.Acquire(t.Context(), alice(1, 1))
		wants(t, err, codes.Unavailable, "retry")
		close(st.release)
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if _, err := f.Acquire(t.Context(), alice(1, 1)); err != nil {
			t.Errorf("once there is room: %v", err)
		}
	})
}

// TestConnections checks that a connection beyond the bound takes the place of the one that is idle longest, and that those
// with requests in progress keep theirs.
func TestConnections(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := setup(t, grpcapi.Config{Config: decide.Config{MaxConnections: 2}})
		watch := &weirv1.WatchRequest{Entity: "alice", Resource: "gpt-4"}
		first, second := f.dial(t), f.dial(t)
		for _, c := range []*grpc.ClientConn{first, second} {
			if stream, err := weirv1.NewLimiterClient(c).Watch(t.Context(), watch); err != nil {
				t.Fatal(err)
			} else if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		_, err := f.Acquire(t.Context(), alice(1, 1))
		wants(t, err, codes.Unavailable, "retry")
		refused := 0
		for status.Convert(err).Message() == decide.ErrConnections.Detail && refused < 3000 {
			_, err = f.Acquire(t.Context(), alice(1, 1))
			refused++
		}
		if refused < 600 || refused > 700 { // of three frames each
			t.Errorf("disconnected after %d refusals in a second: %v", refused, err)
		}
		first.Close()
		synctest.Wait()
		for range 2 {
			if _, err := weirv1.NewLimiterClient(f.dial(t)).Acquire(t.Context(), alice(1, 1)); err != nil {
				t.Errorf("once there is room: %v", err)
			}
		}
	})
}

// TestManyFields checks that a request whose headers have more than 64 names is refused.
func TestManyFields(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := setup(t, grpcapi.Config{})
		ctx := t.Context()
		for i := range 60 {
			ctx = metadata.AppendToOutgoingContext(ctx, fmt.Sprint("x-", i), "a") //nolint:fatcontext // it is to grow
		}
		if _, err := f.Acquire(ctx, alice(1, 1)); err != nil {
			t.Error(err)
		}
		for i := range 60 {
			ctx = metadata.AppendToOutgoingContext(ctx, fmt.Sprint("y-", i), "a") //nolint:fatcontext // it is to grow
		}
		_, err := f.Acquire(ctx, alice(1, 1))
		wants(t, err, codes.InvalidArgument, "headers")
	})
}

// TestAuth tries no token, a wrong one, and each right one, in its own namespace and in others that exist or not.
func TestAuth(t *testing.T) {
	t.Parallel()
	spender, entry1, err := auth.NewEntry(auth.Entry{Name: "spender", Roles: []auth.Role{auth.Acquire}, Namespaces: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	reader, entry2, err := auth.NewEntry(auth.Entry{Name: "reader", Roles: []auth.Role{auth.Read}, Namespaces: []string{"default", "blue"}})
	if err != nil {
		t.Fatal(err)
	}
	blue, entry3, err := auth.NewEntry(auth.Entry{Name: "blue", Roles: []auth.Role{auth.Admin}, Namespaces: []string{"blue"}})
	if err != nil {
		t.Fatal(err)
	}
	f := setup(t, grpcapi.Config{Config: decide.Config{Book: openBook(t, entry1, entry2, entry3)}})
	if _, err := admin.New(f.lim).Namespaces.Create(t.Context(), "blue"); err != nil {
		t.Fatal(err)
	}
	if err := admin.New(f.lim.In("blue")).Limits.Set(t.Context(), admin.Scope{}, weir.PerSecond("rpm", 100)); err != nil {
		t.Fatal(err)
	}
	with := func(authorization ...string) context.Context {
		return metadata.NewOutgoingContext(t.Context(), metadata.MD{"authorization": authorization})
	}
	as := func(token string) context.Context { return with("Bearer " + token) }
	in := func(namespace string) *weirv1.AcquireRequest {
		return &weirv1.AcquireRequest{Entity: "alice", Resource: "gpt-4", Tokens: map[string]int64{"rpm": 1}, Namespace: namespace}
	}
	for _, tt := range []struct {
		name, namespace      string
		authorization        []string
		acquire, look, watch codes.Code
	}{
		{"no token", "", nil, codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated},
		{"wrong token", "", []string{"Bearer " + spender + "x"}, codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated},
		{"two tokens", "", []string{"Bearer " + spender, "Bearer " + spender}, codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated},
		{"basic", "", []string{"Basic " + spender}, codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated},
		{"spender", "", []string{"Bearer " + spender}, codes.OK, codes.PermissionDenied, codes.PermissionDenied},
		{"spender elsewhere", "blue", []string{"Bearer " + spender}, codes.PermissionDenied, codes.PermissionDenied, codes.PermissionDenied},
		{"spender nowhere", "none", []string{"Bearer " + spender}, codes.PermissionDenied, codes.PermissionDenied, codes.PermissionDenied},
		{"reader", "blue", []string{"Bearer " + reader}, codes.PermissionDenied, codes.OK, codes.OK},
		{"blue, unsaid", "", []string{"Bearer " + blue}, codes.OK, codes.OK, codes.OK},
		{"blue elsewhere", "default", []string{"Bearer " + blue}, codes.PermissionDenied, codes.PermissionDenied, codes.PermissionDenied},
	} {
		ctx := with(tt.authorization...)
		_, err := f.Acquire(ctx, in(tt.namespace))
		if status.Code(err) != tt.acquire {
			t.Errorf("%s acquires: %v", tt.name, err)
		}
		_, err = f.AcquireBatch(ctx, &weirv1.AcquireBatchRequest{Requests: []*weirv1.AcquireRequest{in(tt.namespace)}})
		if status.Code(err) != tt.acquire {
			t.Errorf("%s acquires a batch: %v", tt.name, err)
		}
		_, err = f.Available(ctx, &weirv1.AvailableRequest{Entity: "alice", Resource: "gpt-4", Namespace: tt.namespace})
		if status.Code(err) != tt.look {
			t.Errorf("%s looks: %v", tt.name, err)
		}
		ctx, cancel := context.WithCancel(ctx)
		stream, err := f.Watch(ctx, &weirv1.WatchRequest{Entity: "alice", Resource: "gpt-4", Namespace: tt.namespace})
		if err == nil {
			_, err = stream.Recv()
		}
		cancel()
		if status.Code(err) != tt.watch {
			t.Errorf("%s watches: %v", tt.name, err)
		}
	}

	// A lease of another namespace is treated like a forged one.
	a, err := f.Acquire(as(blue), in(""))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Rollback(as(spender), &weirv1.RollbackRequest{Lease: a.GetLease()})
	wants(t, err, codes.NotFound, "")
	_, err = f.Rollback(as(reader), &weirv1.RollbackRequest{Lease: a.GetLease()})
	wants(t, err, codes.PermissionDenied, "")
	if _, err = f.Rollback(as(blue), &weirv1.RollbackRequest{Lease: a.GetLease()}); err != nil {
		t.Error(err)
	}
	if _, err := healthpb.NewHealthClient(f.conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health without a token: %v", err)
	}
}

// openBook writes a token file and opens it.
func openBook(t testing.TB, entries ...auth.Entry) *auth.Book {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	for _, e := range entries {
		if err := auth.Add(path, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	book, err := auth.Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return book
}

// syncBuffer is a buffer that a log can be written to while it is read.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
