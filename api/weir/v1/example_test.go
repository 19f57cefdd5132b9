package weirv1_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/store/memory"
)

// A call spends an estimate, and settles its true cost afterwards.
func ExampleNewLimiterClient() {
	address, stop := serve()
	defer stop()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	client, ctx := weirv1.NewLimiterClient(conn), context.Background()

	got, err := client.Acquire(ctx, &weirv1.AcquireRequest{
		Entity: "key-alice", Resource: "gpt-4", Tokens: map[string]int64{"rpm": 1, "tpm": 500},
	})
	switch {
	case err != nil: // a mistake, or no answer: see status.Code(err)
		fmt.Println(err)
		return
	case !got.GetAllowed():
		fmt.Println("come back in", got.GetRetryAfter().AsDuration())
		return
	}
	used := int64(380)
	if _, err := client.Adjust(ctx, &weirv1.AdjustRequest{
		Lease: got.GetLease(), Tokens: map[string]int64{"tpm": used - 500},
	}); err != nil {
		fmt.Println(err)
		return
	}

	left, err := client.Available(ctx, &weirv1.AvailableRequest{Entity: "key-alice", Resource: "gpt-4"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, limit := range left.GetLimits() {
		fmt.Printf("%s: %d of %d\n", limit.GetLimit(), limit.GetAvailable(), limit.GetBurst())
	}
	// Output:
	// rpm: 59 of 60
	// tpm: 49620 of 50000
}

// Several decisions in one call, each made on its own.
func ExampleLimiterClient_acquireBatch() {
	address, stop := serve()
	defer stop()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	in := &weirv1.AcquireBatchRequest{Brief: true} // no lease will be settled
	for _, tokens := range []int64{60_000, 50_000, 20_000} {
		in.Requests = append(in.Requests, &weirv1.AcquireRequest{
			Entity: fmt.Sprint("key-", tokens), Resource: "gpt-4", Tokens: map[string]int64{"tpm": tokens},
		})
	}
	out, err := weirv1.NewLimiterClient(conn).AcquireBatch(context.Background(), in)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range out.GetResults() {
		switch {
		case r.GetError() != nil:
			fmt.Println(r.GetError().GetReason())
		default:
			fmt.Println("allowed:", r.GetDecision().GetAllowed())
		}
	}
	// Output:
	// EXCEEDS_BURST
	// allowed: true
	// allowed: true
}

// serve stands in for weir serve: gpt-4 has rpm:60/hour and tpm:50K/hour for everybody.
func serve() (address string, stop func()) {
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	must(admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "gpt-4"}, weir.PerHour("rpm", 60), weir.PerHour("tpm", 50_000)))
	srv, err := grpcapi.New(grpcapi.Config{Config: decide.Config{Limiter: lim}})
	must(err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, ln) }()
	return ln.Addr().String(), func() {
		cancel()
		<-ended
		lim.Close()
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
