package grpcapi_test

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
)

// FuzzRequest compares the generated decoder with protobuf reflection. Only reflection
// refuses text that is not UTF-8, and only generated code a known field of another type.
func FuzzRequest(f *testing.F) {
	seed := func(m proto.Message) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, b...)) // merged
		f.Add(protowire.AppendVarint(protowire.AppendTag(b, 99, protowire.VarintType), 1))
	}
	full := alice(1, math.MaxInt64)
	full.Namespace, full.OnUnavailable = "blue", weirv1.OnUnavailable_ON_UNAVAILABLE_ALLOW
	seed(full)
	seed(&weirv1.AcquireRequest{Entity: "é", Tokens: map[string]int64{"": -1}, OnUnavailable: -5})
	seed(&weirv1.AcquireRequest{Wait: durationpb.New(time.Second), Limits: []*weirv1.Limit{{Name: "x"}}})
	seed(&weirv1.AcquireBatchRequest{Requests: []*weirv1.AcquireRequest{full, {}, full}, Atomic: true, Brief: true})
	f.Add([]byte("\x0a\x01\xff"))     // not UTF-8
	f.Add([]byte("\x0a\x05abc"))      // ends early
	f.Add([]byte("\x1a\x02\x10\x01")) // an entry without a key
	f.Add([]byte("\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, empty := range []func() proto.Message{
			func() proto.Message { return &weirv1.AcquireRequest{} },
			func() proto.Message { return &weirv1.AcquireBatchRequest{} },
		} {
			got, want := empty(), empty()
			err := grpcapi.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, got)
			wantErr := proto.Unmarshal(data, want)
			if wantErr != nil && strings.Contains(wantErr.Error(), "invalid UTF-8") ||
				err != nil && strings.Contains(err.Error(), "wrong wireType") {
				continue
			}
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%x: got %v, want %v", data, err, wantErr)
			}
			if err == nil && !proto.Equal(got, want) {
				t.Fatalf("%x: got %v, want %v", data, got, want)
			}
		}
	})
}

// TestAnswers reads with reflection what the generated encoder writes.
func TestAnswers(t *testing.T) {
	t.Parallel()
	number := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-2, 300), rapid.SampledFrom([]int64{0, math.MinInt64, math.MaxInt64}))
	duration := rapid.Custom(func(t *rapid.T) *durationpb.Duration {
		return rapid.SampledFrom([]*durationpb.Duration{nil, {}, {Seconds: 1}, {Seconds: -3, Nanos: -7}, {Nanos: 999_999_999}}).Draw(t, "duration")
	})
	words := rapid.OneOf(rapid.String(), rapid.StringN(0, 300, 1000))
	status := rapid.Custom(func(t *rapid.T) *weirv1.LimitStatus {
		return &weirv1.LimitStatus{
			Entity: words.Draw(t, "entity"), Resource: words.Draw(t, "resource"), Limit: words.Draw(t, "limit"),
			Source:    weirv1.Source(rapid.Int32Range(-1, 6).Draw(t, "source")),
			Requested: number.Draw(t, "requested"), Available: number.Draw(t, "available"), Amount: number.Draw(t, "amount"), Burst: number.Draw(t, "burst"),
			Period: duration.Draw(t, "period"), FullIn: duration.Draw(t, "full"), RetryAfter: duration.Draw(t, "retry"),
			Refused: rapid.Bool().Draw(t, "refused"), Shadow: rapid.Bool().Draw(t, "shadow"), WouldRefuse: rapid.Bool().Draw(t, "would"),
		}
	})
	decision := rapid.Custom(func(t *rapid.T) *weirv1.AcquireResponse {
		d := &weirv1.AcquireResponse{
			Allowed: rapid.Bool().Draw(t, "allowed"), Lease: words.Draw(t, "lease"), Degraded: rapid.Bool().Draw(t, "degraded"), Reason: words.Draw(t, "reason"),
			Limits: rapid.SliceOfN(status, 0, 4).Draw(t, "limits"), RetryAfter: duration.Draw(t, "retry"), Over: number.Draw(t, "over"),
		}
		if rapid.Bool().Draw(t, "expires") {
			d.Expires = &timestamppb.Timestamp{Seconds: number.Draw(t, "s"), Nanos: int32(number.Draw(t, "ns"))}
		}
		return d
	})
	rapid.Check(t, func(t *rapid.T) {
		one := decision.Draw(t, "decision")
		many := &weirv1.AcquireBatchResponse{Results: []*weirv1.AcquireResult{{}, {Decision: one}, {Error: &weirv1.Error{
			Code: int32(number.Draw(t, "code")), Message: words.Draw(t, "message"), Reason: "R", Field: words.Draw(t, "field"), RetryAfter: duration.Draw(t, "retry"),
		}}}, Refused: one}
		for _, m := range []proto.Message{one, many} {
			data, err := grpcapi.Codec().Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			got := m.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(data.Materialize(), got); err != nil || !proto.Equal(got, m) {
				t.Fatalf("got %v, %v, want %v", got, err, m)
			}
			data.Free()
		}
	})
}

// TestNotUTF8 sends names that generated code accepts and reflection would refuse.
func TestNotUTF8(t *testing.T) {
	t.Parallel()
	f := setup(t, grpcapi.Config{})
	const bad = "a\xff"
	for field, in := range map[string]*weirv1.AcquireRequest{
		"entity":         {Entity: bad, Resource: "gpt-4"},
		"resource":       {Entity: "alice", Resource: bad},
		"namespace":      {Entity: "alice", Resource: "gpt-4", Namespace: bad},
		"tokens.a\uFFFD": {Entity: "alice", Resource: "gpt-4", Tokens: map[string]int64{bad: 1}},
	} {
		raw := grpc.ForceCodecV2(grpcapi.Codec())
		if _, err := f.Acquire(t.Context(), in, raw); status.Code(err) != codes.InvalidArgument && status.Code(err) != codes.NotFound {
			t.Errorf("%s: got %v", field, err)
		}
		out, err := f.AcquireBatch(t.Context(), &weirv1.AcquireBatchRequest{Requests: []*weirv1.AcquireRequest{in, alice(1, 1)}}, raw)
		if err != nil {
			t.Errorf("%s: got %v", field, err)
			continue
		}
		if _, err := proto.Marshal(out); err != nil {
			t.Errorf("%s: the answer cannot be read: %v", field, err)
		}
		if e := out.GetResults()[0].GetError(); e.GetField() != field && field != "namespace" || !out.GetResults()[1].GetDecision().GetAllowed() {
			t.Errorf("%s: got %v", field, out)
		}
	}
}

// TestOptions checks that every enum of the API is understood.
func TestOptions(t *testing.T) {
	t.Parallel()
	f := setup(t, grpcapi.Config{})
	for n := range weirv1.OnUnavailable_name {
		in := alice(0, 0)
		in.OnUnavailable = weirv1.OnUnavailable(n)
		if _, err := f.Acquire(t.Context(), in); err != nil {
			t.Errorf("%v: %v", in.GetOnUnavailable(), err)
		}
	}
}

// TestManyParts checks that a message with many parts is refused before it takes a hundred times its size, however deep they
// are, and that compressed messages are refused.
func TestManyParts(t *testing.T) {
	t.Parallel()
	empties := func(field byte, n int) []byte { return bytes.Repeat([]byte{field<<3 | 2, 0}, n) }
	within := func(field byte, b []byte) []byte {
		return append(protowire.AppendVarint([]byte{field<<3 | 2}, uint64(len(b))), b...)
	}
	for name, tt := range map[string]struct {
		text []byte
		into proto.Message
		ok   bool
	}{
		"as many as may be": {empties(1, 20_000), &weirv1.AcquireBatchRequest{}, true},
		"requests":          {empties(1, 20_001), &weirv1.AcquireBatchRequest{}, false},
		"limits":            {empties(5, 20_001), &weirv1.AcquireRequest{}, false},
		"tokens":            {empties(3, 20_001), &weirv1.AcquireRequest{}, false},
		"limits of one":     {within(1, empties(5, 20_000)), &weirv1.AcquireBatchRequest{}, false},
		"descriptors":       {empties(2, 20_001), &rlsv3.RateLimitRequest{}, false},
		"entries":           {within(2, empties(1, 20_000)), &rlsv3.RateLimitRequest{}, false},
		"a long text":       {within(1, bytes.Repeat([]byte{10, 0}, 100_000)), &weirv1.AcquireRequest{}, true},
	} {
		err := grpcapi.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(tt.text)}, tt.into)
		if (err == nil) != tt.ok {
			t.Errorf("%s: got %v", name, err)
		}
	}
	f := setup(t, grpcapi.Config{})
	if _, err := f.Acquire(t.Context(), alice(1, 1), grpc.UseCompressor("gzip")); status.Code(err) != codes.Internal ||
		!strings.Contains(err.Error(), "must not be compressed") {
		t.Errorf("compressed: got %v", err)
	}
}
