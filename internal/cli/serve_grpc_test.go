package cli_test

import (
	"context"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
)

// grpcAcquire spends tokens over gRPC: grpc-acquire CODE ADDRESS REQUEST [TOKENFILE], with the request as JSON. The
// response is written to the file "answer".
func grpcAcquire(ts *testscript.TestScript, _ bool, args []string) {
	var in weirv1.AcquireRequest
	ts.Check(protojson.Unmarshal([]byte(args[2]), &in))
	conn, err := grpc.NewClient(args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	ts.Check(err)
	defer conn.Close()
	ctx := context.Background()
	if len(args) > 3 {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(ts.ReadFile(args[3])))
	}
	out, err := weirv1.NewLimiterClient(conn).Acquire(ctx, &in, grpc.WaitForReady(true)) // the server may still be starting
	if got := status.Code(err).String(); got != args[0] {
		ts.Fatalf("got %s: %v", got, err)
	}
	text, err := protojson.Marshal(out)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("answer"), text, 0o600))
}
