package grpclimit_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/grpclimit"
	"github.com/weirlimits/weir/weirtest"
)

// echo is a service that repeats a message, once or as often as requested.
type echo struct {
	say  func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
	chat func(grpc.ServerStream) error
}

const (
	sayMethod  = "/test.Echo/Say"
	chatMethod = "/test.Echo/Chat"
)

var chatDesc = grpc.StreamDesc{
	StreamName: "Chat", ServerStreams: true, ClientStreams: true,
	Handler: func(srv any, ss grpc.ServerStream) error { return srv.(*echo).chat(ss) },
}

var echoDesc = grpc.ServiceDesc{
	ServiceName: "test.Echo", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{chatDesc},
	Methods: []grpc.MethodDesc{{
		MethodName: "Say",
		Handler: func(srv any, ctx context.Context, dec func(any) error, ic grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := dec(in); err != nil {
				return nil, err
			}
			return ic(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: sayMethod}, func(ctx context.Context, req any) (any, error) {
				return srv.(*echo).say(ctx, req.(*wrapperspb.StringValue))
			})
		},
	}},
}

// buffer is a log that several goroutines write to.
type buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// setup serves an echo limited by x-api-key, at one rpm each, configured by change, and returns a client.
func setup(t *testing.T, l *weirtest.Limiter, e *echo, change func(*grpclimit.Config), opts ...grpc.DialOption) (*grpc.ClientConn, *buffer) {
	t.Helper()
	log := new(buffer)
	cfg := grpclimit.Config{
		Limiter: l.Limiter, Entity: grpclimit.ByMetadata("x-api-key"), Resource: grpclimit.ByMethod, Tokens: grpclimit.Each("rpm"),
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	limit, err := grpclimit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	// A panic that propagates is reported to the client.
	recovered := func(v any) error { return status.Errorf(codes.DataLoss, "panicked: %v", v) }
	srv := grpc.NewServer(
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (_ any, err error) {
			defer func() {
				if v := recover(); v != nil {
					err = recovered(v)
				}
			}()
			return h(ctx, req)
		}, limit.UnaryServerInterceptor()),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = recovered(v)
				}
			}()
			return h(srv, ss)
		}, limit.StreamServerInterceptor()),
	)
	if e.say == nil {
		e.say = func(_ context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) { return in, nil }
	}
	srv.RegisterService(&echoDesc, e)
	grpc_health_v1.RegisterHealthServer(srv, health.NewServer())
	ln := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:///bufconn", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		srv.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn, log
}

func as(t *testing.T, key string) context.Context {
	t.Helper()
	if key == "" {
		return t.Context()
	}
	return metadata.AppendToOutgoingContext(t.Context(), "x-api-key", key)
}

func say(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) error {
	return conn.Invoke(ctx, sayMethod, wrapperspb.String("hello"), new(wrapperspb.StringValue), opts...)
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

var alice = grpclimit.KeyID("alice")

func wantSpent(t *testing.T, l *weirtest.Limiter, method, limit string, want int64) {
	t.Helper()
	if got := l.Spent(alice, method, limit); got != want {
		t.Errorf("spent %d %s, want %d", got, limit, want)
	}
}

func detail[M any](t *testing.T, err error) (m M) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if m, ok := d.(M); ok {
			return m
		}
	}
	t.Fatalf("no %T in %v", m, status.Convert(err).Details())
	return m
}

func wantMeta(t *testing.T, md metadata.MD, key, want string) {
	t.Helper()
	if got := strings.Join(md.Get(key), "|"); got != want {
		t.Errorf("%s: got %q, want %q", key, got, want)
	}
}

func TestUnary(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 1))
	conn, log := setup(t, l, &echo{}, nil)
	var header, trailer metadata.MD
	if err := say(as(t, "alice"), conn, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	wantMeta(t, header, "ratelimit-policy", `"rpm";q=1;w=60`)
	wantMeta(t, header, "ratelimit", `"rpm";r=0;t=60`)
	wantMeta(t, header, "retry-after", "")
	if err := say(as(t, "bob"), conn); err != nil {
		t.Fatal(err)
	}

	err := say(as(t, "alice"), conn, grpc.Trailer(&trailer))
	wantCode(t, err, codes.ResourceExhausted)
	wantMeta(t, trailer, "ratelimit", `"rpm";r=0;t=60`)
	wait := detail[*errdetails.RetryInfo](t, err).GetRetryDelay().AsDuration()
	if wait < time.Minute || wait > 78*time.Second {
		t.Errorf("to wait %s", wait)
	}
	if after, err := strconv.Atoi(trailer.Get("retry-after")[0]); err != nil || time.Duration(after)*time.Second < wait {
		t.Errorf("retry-after %v, to wait %s", trailer.Get("retry-after"), wait)
	}
	if ms, err := strconv.Atoi(trailer.Get("grpc-retry-pushback-ms")[0]); err != nil || time.Duration(ms)*time.Millisecond < wait {
		t.Errorf("pushback %v, to wait %s", trailer.Get("grpc-retry-pushback-ms"), wait)
	}
	v := detail[*errdetails.QuotaFailure](t, err).GetViolations()
	if len(v) != 1 || v[0].GetSubject() != "entity:"+alice || v[0].GetQuotaMetric() != "rpm" || v[0].GetQuotaValue() != 1 ||
		v[0].GetQuotaDimensions()["resource"] != sayMethod || !strings.Contains(v[0].GetDescription(), "0 of 1 available") {
		t.Errorf("got %v", v)
	}
	l.Advance(time.Minute)
	if err := say(as(t, "alice"), conn); err != nil {
		t.Error(err)
	}
	if s := log.String(); s != "" {
		t.Errorf("logged %q", s)
	}
}

// A client with built-in retries waits as long as it is told.
func TestRetriesWhenTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.New(t, weir.PerMinute("rpm", 1))
		l.RunClock()
		conn, _ := setup(t, l, &echo{}, nil, grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{
			"maxAttempts":2,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]}`))
		began := time.Now()
		for range 2 {
			if err := say(as(t, "alice"), conn); err != nil { // the second waits slightly more than a minute, not 1 ms
				t.Error(err)
			}
		}
		if took := time.Since(began); took < time.Minute || took > 79*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	secret := errors.New("the password is 1234")
	for name, tt := range map[string]struct {
		set    func(*grpclimit.Config, *weirtest.Limiter)
		key    string
		code   codes.Code
		logged bool
	}{
		"no key": {func(*grpclimit.Config, *weirtest.Limiter) {}, "", codes.Unauthenticated, false},
		"key function": {func(c *grpclimit.Config, _ *weirtest.Limiter) {
			c.Entity = func(context.Context, *grpclimit.Call) (string, error) { return "", secret }
		}, "alice", codes.Internal, true},
		"chosen": {func(c *grpclimit.Config, _ *weirtest.Limiter) {
			c.Resource = func(context.Context, *grpclimit.Call) (string, error) {
				return "", status.Error(codes.PermissionDenied, "go away")
			}
		}, "alice", codes.PermissionDenied, false},
		"chosen badly": {func(c *grpclimit.Config, _ *weirtest.Limiter) {
			c.Resource = func(context.Context, *grpclimit.Call) (string, error) { return "", fine{} }
		}, "alice", codes.Internal, true},
		"tokens": {func(c *grpclimit.Config, _ *weirtest.Limiter) {
			c.Tokens = func(context.Context, *grpclimit.Call) (weir.Tokens, error) { return nil, secret }
		}, "alice", codes.Internal, true},
		"no such limit": {func(c *grpclimit.Config, _ *weirtest.Limiter) { c.Tokens = grpclimit.Each("rmp") }, "alice", codes.Internal, true},
		"no limits":     {func(c *grpclimit.Config, l *weirtest.Limiter) { c.Limiter = weirtest.New(t).Limiter }, "alice", codes.Internal, true},
		"burst": {func(c *grpclimit.Config, _ *weirtest.Limiter) {
			c.Tokens = func(context.Context, *grpclimit.Call) (weir.Tokens, error) { return weir.Tokens{"rpm": 3}, nil }
		}, "alice", codes.FailedPrecondition, false},
		"unavailable": {func(_ *grpclimit.Config, l *weirtest.Limiter) { l.Fail(secret) }, "alice", codes.Unavailable, true},
		"replaced by nothing": {func(c *grpclimit.Config, l *weirtest.Limiter) {
			l.Fail(secret)
			c.OnRefused = func(context.Context, *grpclimit.Call, *grpclimit.Refusal) error { return nil }
		}, "alice", codes.Unavailable, true},
		"replaced": {func(c *grpclimit.Config, l *weirtest.Limiter) {
			l.Fail(secret)
			c.OnRefused = func(_ context.Context, call *grpclimit.Call, ref *grpclimit.Refusal) error {
				if call.Method != sayMethod || ref.Status.Code() != codes.Unavailable || !errors.Is(ref.Err, secret) || ref.RetryAfter < time.Second {
					t.Errorf("got %+v", ref)
				}
				return status.Error(codes.Aborted, "busy")
			}
		}, "alice", codes.Aborted, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := weirtest.New(t, weir.PerMinute("rpm", 2))
			e := &echo{say: func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
				t.Error("it was handled")
				return nil, secret
			}}
			conn, log := setup(t, l, e, func(c *grpclimit.Config) { tt.set(c, l) })
			err := say(as(t, tt.key), conn)
			wantCode(t, err, tt.code)
			if strings.Contains(err.Error(), "1234") {
				t.Errorf("got %v", err)
			}
			if got := log.String(); (got != "") != tt.logged {
				t.Errorf("logged %q", got)
			}
		})
	}
}

// TestBalance checks that no time to retry is sent where a balance refuses.
func TestBalance(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t)
	scope := admin.Scope{Resource: sayMethod}
	if err := admin.New(l.Limiter).Limits.Set(t.Context(), scope, weir.PerMinute("rpm", 2), weir.Limit{Name: "credits", Balance: true}); err != nil {
		t.Fatal(err)
	}
	conn, _ := setup(t, l, &echo{}, func(c *grpclimit.Config) { c.Tokens = grpclimit.Each("credits") })
	var trailer metadata.MD
	err := conn.Invoke(as(t, "alice"), sayMethod, wrapperspb.String("x"), new(wrapperspb.StringValue), grpc.Trailer(&trailer))
	wantCode(t, err, codes.ResourceExhausted)
	if len(status.Convert(err).Details()) > 1 || len(trailer.Get("retry-after")) > 0 || !strings.Contains(err.Error(), "until it is topped up") {
		t.Errorf("%v, %v, %v", err, status.Convert(err).Details(), trailer)
	}
}

// fine is an error whose status is OK.
type fine struct{}

func (fine) Error() string              { return "fine" }
func (fine) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

func TestPasses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set      func(*grpclimit.Config, *weirtest.Limiter)
		degraded string
		limited  bool
	}{
		"skipped": {func(c *grpclimit.Config, _ *weirtest.Limiter) {
			c.Skip = func(_ context.Context, call *grpclimit.Call) bool { return call.Method == sayMethod }
		}, "", false},
		"unlimited": {func(c *grpclimit.Config, _ *weirtest.Limiter) {
			c.Limiter, c.AdmitUnlimited = weirtest.New(t).Limiter, true
		}, "", false},
		"degraded": {func(_ *grpclimit.Config, l *weirtest.Limiter) {
			admits(t, l)
			l.Fail(errors.New("cable cut"))
		}, "store-unavailable", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := weirtest.New(t, weir.PerMinute("rpm", 1))
			e := &echo{say: func(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
				if got := grpclimit.Lease(ctx) != nil; got != tt.limited {
					t.Errorf("has a lease: %t", got)
				}
				return in, grpclimit.SetCost(ctx, weir.Tokens{"rpm": 3})
			}}
			conn, _ := setup(t, l, e, func(c *grpclimit.Config) { tt.set(c, l) })
			for range 2 {
				var header metadata.MD
				if err := say(as(t, "alice"), conn, grpc.Header(&header)); err != nil {
					t.Error(err)
				}
				wantMeta(t, header, "weir-degraded", tt.degraded)
				wantMeta(t, header, "ratelimit", "")
			}
			wantSpent(t, l, sayMethod, "rpm", 0)
		})
	}
}

func TestHealthIsSkipped(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 1))
	conn, _ := setup(t, l, &echo{}, nil)
	for range 3 {
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Error(err)
	}
}

// Internal details appear neither in metadata nor in status details.
func TestTell(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 5))
	l.SetLimits("org-1", "", weir.PerMinute("rpm", 1))
	for _, e := range []admin.Entity{{ID: "org-1"}, {ID: alice, Parent: "org-1", Cascade: true}} {
		if err := admin.New(l.Limiter).Entities.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	conn, _ := setup(t, l, &echo{}, func(c *grpclimit.Config) {
		c.Tell = func(st *weir.LimitStatus) bool { return st.Entity == alice }
	})
	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		var header, trailer metadata.MD
		err := say(as(t, "alice"), conn, grpc.Header(&header), grpc.Trailer(&trailer))
		wantCode(t, err, want)
		md := metadata.Join(header, trailer)
		if strings.Contains(strings.Join(md.Get("ratelimit"), ""), "org-1") || strings.Contains(status.Convert(err).Proto().String(), "org-1") {
			t.Errorf("told of the parent: %v, %v", md, status.Convert(err).Proto())
		}
		wantMeta(t, md, "ratelimit-policy", `"rpm";q=5;w=60`)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := grpclimit.New(grpclimit.Config{OnUnavailable: "locally"})
	for _, field := range []string{"Limiter", "Entity", "Resource", "Tokens", "OnUnavailable"} {
		if err == nil || !strings.Contains(err.Error(), "Config."+field+": ") {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
}

// admits makes a limiter admit while the store does not answer.
func admits(t *testing.T, l *weirtest.Limiter) {
	t.Helper()
	if err := admin.New(l.Limiter).Limits.SetOnUnavailable(t.Context(), admin.Scope{}, weir.OnUnavailableAllow); err != nil {
		t.Fatal(err)
	}
}

// TestStricter: the interceptor can refuse where the limiter would admit, but not admit where it would refuse.
func TestStricter(t *testing.T) {
	t.Parallel()
	for _, mode := range []weir.OnUnavailable{weir.OnUnavailableDeny, weir.OnUnavailableAllow} {
		l := weirtest.New(t, weir.PerMinute("rpm", 1))
		if mode == weir.OnUnavailableDeny {
			admits(t, l)
		}
		conn, _ := setup(t, l, &echo{}, func(c *grpclimit.Config) { c.OnUnavailable = mode })
		l.Fail(errors.New("cable cut"))
		wantCode(t, say(as(t, "alice"), conn), codes.Unavailable)
	}
}
