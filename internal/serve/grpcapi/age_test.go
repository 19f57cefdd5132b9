package grpcapi_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
)

// TestAge checks that a client connects anew about every 15 minutes without losing a request, and that a stream lasts 5
// minutes longer at most.
func TestAge(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := setup(t, grpcapi.Config{})
		dials := 0
		conn, err := grpc.NewClient("passthrough:///weir", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				dials++
				return f.ln.DialContext(ctx)
			}))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client, ended := weirv1.NewLimiterClient(conn), make(chan time.Duration, 1)
		began := time.Now()
		stream, err := client.Watch(t.Context(), &weirv1.WatchRequest{Entity: "alice", Resource: "gpt-4"})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != codes.Unavailable {
				t.Errorf("the stream ended with %v", err)
			}
			ended <- time.Since(began)
		}()
		for time.Since(began) < time.Hour {
			if _, err := client.Available(t.Context(), &weirv1.AvailableRequest{Entity: "alice", Resource: "gpt-4"}); err != nil {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
			time.Sleep(time.Second) // real time: none, the test is in a bubble
		}
		if dials < 4 || dials > 5 {
			t.Errorf("connected %d times in an hour", dials)
		}
		if took := <-ended; took < 18*time.Minute || took > 22*time.Minute {
			t.Errorf("the stream ended after %s", took)
		}
	})
}
