package cli_test

import (
	"context"
	"os"
	"strings"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// envoyAsk sends a request as Envoy does, writes the answer to the file answer, and checks the code, either gRPC's or the
// answer's: envoy-ask CODE ADDRESS JSON [TOKENFILE].
func envoyAsk(ts *testscript.TestScript, _ bool, args []string) {
	var in rlsv3.RateLimitRequest
	ts.Check(protojson.Unmarshal([]byte(args[2]), &in))
	conn, err := grpc.NewClient(args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	ts.Check(err)
	defer conn.Close()
	ctx := context.Background()
	if len(args) > 3 {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(ts.ReadFile(args[3])))
	}
	out, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &in, grpc.WaitForReady(true)) // the server may still be starting
	got := out.GetOverallCode().String()
	if err != nil {
		got = status.Code(err).String()
	}
	if got != args[0] {
		ts.Fatalf("got %s: %v %v", got, out, err)
	}
	text, err := protojson.MarshalOptions{Multiline: true}.Marshal(out)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("answer"), text, 0o600))
}
