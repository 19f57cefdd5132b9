package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/grpclimit"
	"github.com/weirlimits/weir/store/memory"
)

// exampleLimiter returns a limiter whose clock stands still, so that the examples print the same each time.
func exampleLimiter(limits ...weir.Limit) *weir.Limiter {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	lim, err := weir.New(weir.Config{Store: memory.New(&memory.Config{Now: func() time.Time { return now }})})
	if err != nil {
		panic(err)
	}
	if err := admin.New(lim).Limits.Set(context.Background(), admin.Scope{}, limits...); err != nil {
		panic(err)
	}
	return lim
}

// A completion spends an estimate before it is handled, and its true cost in the end.
func Example() {
	lim := exampleLimiter(weir.PerMinute("rpm", 60), weir.PerMinute("tpm", 1000)) // of the system: for all entities on all resources
	defer lim.Close()
	limit, err := grpclimit.New(grpclimit.Config{
		Limiter:  lim,
		Entity:   grpclimit.ByMetadata("x-api-key"),
		Resource: grpclimit.ByMethod,
		Tokens: func(_ context.Context, call *grpclimit.Call) (weir.Tokens, error) {
			prompt, _ := call.Request.(*wrapperspb.StringValue) // nil for a stream
			return weir.Tokens{"rpm": 1, "tpm": int64(len(prompt.GetValue())/4) + 900}, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limit.UnaryServerInterceptor()),
		grpc.ChainStreamInterceptor(limit.StreamServerInterceptor()),
	)
	used := int64(42)
	srv.RegisterService(&echoDesc, &echo{
		say: func(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
			return in, grpclimit.SetCost(ctx, weir.Tokens{"tpm": used}) // the usage that the model reports
		},
	})
	conn, stop := dial(srv)
	defer stop()

	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-api-key", "sk-alice")
	for _, used = range []int64{42, 310, 7} {
		var header metadata.MD
		err := say(ctx, conn, grpc.Header(&header))
		fmt.Println(status.Code(err), header.Get("ratelimit"))
		for _, d := range status.Convert(err).Details() {
			if retry, ok := d.(*errdetails.RetryInfo); ok {
				fmt.Println("not before 15.18s have passed:", retry.GetRetryDelay().AsDuration() >= 15180*time.Millisecond)
			}
		}
	}
	// Output:
	// OK ["rpm";r=59;t=59, "tpm";r=99;t=6]
	// OK ["rpm";r=58;t=58, "tpm";r=57;t=4]
	// ResourceExhausted []
	// not before 15.18s have passed: true
}

// dial serves in memory, and returns a client.
func dial(srv *grpc.Server) (conn *grpc.ClientConn, stop func()) {
	ln := bufconn.Listen(1 << 16)
	go func() {
		if err := srv.Serve(ln); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			panic(err)
		}
	}()
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		panic(err)
	}
	return conn, func() {
		_ = conn.Close()
		srv.Stop()
	}
}
