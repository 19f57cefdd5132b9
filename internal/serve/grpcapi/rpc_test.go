package grpcapi_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func TestMain(m *testing.M) {
	if of := os.Getenv(hostile); of != "" {
		assail(of)
		return
	}
	goleak.VerifyTestMain(m)
}

// fixture is a server over a limiter in memory, with an HTTP server beside it. gpt-4 has rpm:10/min and tpm:1000/min for
// every entity.
type fixture struct {
	weirv1.LimiterClient
	conn *grpc.ClientConn
	ln   *bufconn.Listener
	lim  *weir.Limiter
	http http.Handler
	stop context.CancelFunc
	end  chan error // what Serve returned
}

func setup(t *testing.T, cfg grpcapi.Config) *fixture {
	t.Helper()
	return over(t, memory.New(nil), cfg)
}

// over creates a fixture over a store.
func over(t *testing.T, st store.Store, cfg grpcapi.Config) *fixture {
	t.Helper()
	return overLimiter(t, weir.Config{Store: st}, cfg)
}

// overLimiter creates a fixture over a limiter.
func overLimiter(t testing.TB, of weir.Config, cfg grpcapi.Config) *fixture {
	t.Helper()
	lim, err := weir.New(of)
	if err != nil {
		t.Fatal(err)
	}
	err = admin.New(lim).Limits.Set(t.Context(), admin.Scope{Resource: "gpt-4"}, weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Limiter = lim
	s, err := grpcapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	hs, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: lim, Book: cfg.Book, Ready: cfg.Ready}})
	if err != nil {
		t.Fatal(err)
	}
	ln := bufconn.Listen(256 << 10)
	ctx, stop := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- s.Serve(ctx, ln) }()
	f := &fixture{ln: ln, lim: lim, http: hs.Handler(), stop: stop, end: end}
	f.conn = f.dial(t)
	f.LimiterClient = weirv1.NewLimiterClient(f.conn)
	t.Cleanup(func() {
		f.conn.Close()
		stop()
		<-end
		lim.Close()
	})
	return f
}

// dial returns a connection of its own, which is closed when the test ends.
func (f *fixture) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///weir", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return f.ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ended waits until Serve has returned, and returns its error. The fixture can still be cleaned up afterwards.
func (f *fixture) ended() error {
	err := <-f.end
	close(f.end)
	return err
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func alice(rpm, tpm int64) *weirv1.AcquireRequest {
	return &weirv1.AcquireRequest{Entity: "alice", Resource: "gpt-4", Tokens: map[string]int64{"rpm": rpm, "tpm": tpm}}
}

// acquire spends tokens and returns the lease's id.
func (f *fixture) acquire(t *testing.T, rpm, tpm int64) string {
	t.Helper()
	a, err := f.Acquire(t.Context(), alice(rpm, tpm))
	if err != nil || !a.GetAllowed() {
		t.Fatalf("got %v, %v", a, err)
	}
	return a.GetLease()
}

// left returns how much tpm alice has left.
func (f *fixture) left(t *testing.T) int64 {
	t.Helper()
	av, err := f.Available(t.Context(), &weirv1.AvailableRequest{Entity: "alice", Resource: "gpt-4"})
	if err != nil {
		t.Fatal(err)
	}
	return av.GetLimits()[1].GetAvailable()
}

// wants checks an error's code, and its reason or field in the details if one is given.
func wants(t *testing.T, err error, code codes.Code, detail string) {
	t.Helper()
	st := status.Convert(err)
	got := ""
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			got = d.GetReason()
		case *errdetails.BadRequest:
			got = d.GetFieldViolations()[0].GetField()
		case *errdetails.RetryInfo:
			if d.GetRetryDelay().AsDuration() >= time.Second {
				got = "retry"
			}
		}
	}
	if st.Code() != code || got != detail {
		t.Errorf("got %v with %q, want %v with %q", err, got, code, detail)
	}
}

// In a namespace at its quota of live buckets, a request that needs one more fails, alone and in a batch.
func TestBucketQuota(t *testing.T) {
	t.Parallel()
	f := setup(t, grpcapi.Config{Config: decide.Config{MaxBuckets: 1}})
	f.acquire(t, 1, 1)
	mallory := alice(1, 1)
	mallory.Entity = "mallory"
	_, err := f.Acquire(t.Context(), mallory)
	wants(t, err, codes.ResourceExhausted, "BUCKET_QUOTA")
	out, err := f.AcquireBatch(t.Context(), &weirv1.AcquireBatchRequest{Requests: []*weirv1.AcquireRequest{mallory, alice(1, 1)}})
	if err != nil || out.GetResults()[0].GetError().GetReason() != "BUCKET_QUOTA" || !out.GetResults()[1].GetDecision().GetAllowed() {
		t.Errorf("got %v, %v", out, err)
	}
}

// failing is a store that fails decisions.
type failing struct {
	store.Store
	err error
}

func (f *failing) Take(context.Context, store.Take) (store.Outcome, error) {
	return store.Outcome{}, f.err
}

var errDown = &store.Error{Op: "take", Err: errors.New("down")}

// stuck is a store that signals each call and answers once it is released.
type stuck struct {
	store.Store
	entered, release chan struct{}
}

func (s *stuck) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	s.entered <- struct{}{}
	<-s.release
	return s.Store.Take(ctx, t)
}
