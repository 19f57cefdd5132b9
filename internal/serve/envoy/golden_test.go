package envoy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

var update = flag.Bool("update", false, "rewrite the golden answers")

// exchange is a request as Envoy sends it, and the answer.
type exchange struct {
	About    string          `json:"about"`
	Request  json.RawMessage `json:"request"`
	Response json.RawMessage `json:"response,omitempty"`
	Error    string          `json:"error,omitempty"`
}

var jitter = regexp.MustCompile(`("key": "Retry-After",\s*"value": )"[0-9]+"`)

// TestGolden sends the requests in testdata in order, with fresh buckets for each file. alice charges acme, whose limit
// has less left.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.set("", "", weir.PerHour("rph", 100), weir.PerSecond("rps", 5).WithBurst(10))
			b.set("acme", "", weir.PerDay("rpd", 3))
			b.set("tokens", "", weir.PerMinute("tpm", 1000))
			for _, e := range []admin.Entity{{ID: "acme"}, {ID: "alice", Parent: "acme", Cascade: true}} {
				if err := admin.New(b.lim).Entities.Create(b.ctx, e); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var all []exchange
			if err := json.Unmarshal(text, &all); err != nil {
				t.Fatal(err)
			}
			for i := range all {
				b.exchange(&all[i])
			}
			got, err := json.MarshalIndent(all, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(jitter.ReplaceAll(got, []byte(`$1"(jittered)"`)), '\n')
			switch {
			case *update:
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
			case !bytes.Equal(got, text):
				t.Errorf("got %s", got)
			}
		})
	}
}

func (b *bundle) exchange(e *exchange) {
	b.t.Helper()
	var req rlsv3.RateLimitRequest
	if err := protojson.Unmarshal(e.Request, &req); err != nil {
		b.t.Fatalf("%s: %v", e.About, err)
	}
	resp, err := b.svc.ShouldRateLimit(b.ctx, &req)
	e.Response, e.Error = nil, ""
	if err != nil {
		e.Error = status.Code(err).String() + ": " + status.Convert(err).Message()
		return
	}
	// A round trip over the wire: parts shared between answers must be complete too.
	wire, err := proto.Marshal(resp)
	if err != nil {
		b.t.Fatal(err)
	}
	var read rlsv3.RateLimitResponse
	if err := proto.Unmarshal(wire, &read); err != nil {
		b.t.Fatal(err)
	}
	text, err := protojson.Marshal(&read)
	if err != nil {
		b.t.Fatal(err)
	}
	e.Response = text
}
