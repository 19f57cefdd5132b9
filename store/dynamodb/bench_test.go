package dynamodb_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// canned answers every write at once, with the answer to the last write before it was frozen. What remains is the store's
// own work.
type canned struct {
	*dynamotest.Fake

	frozen atomic.Bool
	calls  atomic.Int64
	out    *sdk.UpdateItemOutput
	err    error
	delay  time.Duration
}

func (c *canned) UpdateItem(ctx context.Context, in *sdk.UpdateItemInput, opts ...func(*sdk.Options)) (*sdk.UpdateItemOutput, error) {
	c.calls.Add(1)
	if !c.frozen.Load() {
		c.out, c.err = c.Fake.UpdateItem(ctx, in, opts...)
	} else if c.delay > 0 {
		time.Sleep(c.delay) // real time: the duration of a call
	}
	return c.out, c.err
}

// warm returns a store that has debited a limit's bucket a few times, and the debit for the next take.
func warm(t testing.TB, limit *store.Limit, uses int) (*canned, *dynamodb.Store, store.Take) {
	t.Helper()
	c := &canned{Fake: newStage(t).fake}
	s, err := dynamodb.New(dynamodb.Config{Client: c, Table: stageTable})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	d := of(bkt("e"), limit, 1)
	take := store.Take{Debits: []store.Debit{d}}
	for range uses {
		if _, err := s.Take(t.Context(), take); err != nil {
			t.Fatal(err)
		}
	}
	c.frozen.Store(true)
	return c, s, take
}

// plenty has a clock that hardly moves, and a burst that is never used up.
var plenty = per("rps", 1, 366*24*time.Hour, 1_000_000_000)

// maxAllocs is the maximum number of allocations of a take of one bucket. Half of them belong to the call's input, as in
// any call.
const maxAllocs = 20

//nolint:paralleltest // allocations are counted over the whole process
func TestTakeAllocs(t *testing.T) {
	if raced.On {
		t.Skip("the race detector has pools forget at random")
	}
	_, s, take := warm(t, plenty, 3)
	ctx := t.Context()
	n := testing.AllocsPerRun(1000, func() {
		if out, err := s.Take(ctx, take); err != nil || !out.Allowed {
			t.Error(out, err)
		}
	})
	if n > maxAllocs {
		t.Errorf("%v allocations, want at most %d", n, maxAllocs)
	}
}

func BenchmarkTake(b *testing.B) {
	_, s, take := warm(b, plenty, 3)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if out, err := s.Take(ctx, take); err != nil || !out.Allowed {
			b.Fatal(out, err)
		}
	}
}

// BenchmarkTakeShared measures callers that share the writes to one bucket. Each write takes a moment.
func BenchmarkTakeShared(b *testing.B) {
	c, s, take := warm(b, plenty, 3)
	c.delay = 500 * time.Microsecond
	ctx, before := b.Context(), c.calls.Load()
	b.SetParallelism(500)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if out, err := s.Take(ctx, take); err != nil || !out.Allowed {
				b.Error(out, err)
				return
			}
		}
	})
	b.ReportMetric(float64(c.calls.Load()-before)/float64(b.N), "calls/op")
}

func BenchmarkTakeRefused(b *testing.B) {
	c, s, take := warm(b, per("rpm", 10, time.Minute, 10), 11)
	ctx, before := b.Context(), c.calls.Load()
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if out, err := s.Take(ctx, take); err != nil || out.Allowed {
				b.Error(out, err)
				return
			}
		}
	})
	b.ReportMetric(float64(c.calls.Load()-before)/float64(b.N), "calls/op")
}
