package grpcapi_test

import (
	"math"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
)

// FuzzRequest compares the hand-written decoder with protobuf reflection.
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
			if wantErr := proto.Unmarshal(data, want); (err == nil) != (wantErr == nil) {
				t.Fatalf("%x: got %v, want %v", data, err, wantErr)
			}
			if err == nil && !proto.Equal(got, want) {
				t.Fatalf("%x: got %v, want %v", data, got, want)
			}
		}
	})
}

// TestAnswers reads with reflection what the hand-written encoder writes.
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

// TestCodecKnowsAllFields checks that the hand-written codec knows every field of its messages.
func TestCodecKnowsAllFields(t *testing.T) {
	t.Parallel()
	for m, known := range map[proto.Message]int{
		&weirv1.AcquireResponse{}: 8, &weirv1.LimitStatus{}: 14, &weirv1.AcquireBatchResponse{}: 2, &weirv1.AcquireResult{}: 2, &weirv1.Error{}: 5,
	} {
		if d := m.ProtoReflect().Descriptor(); d.Fields().Len() != known {
			t.Errorf("%s has %d fields, wire_encode.go writes %d", d.Name(), d.Fields().Len(), known)
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
