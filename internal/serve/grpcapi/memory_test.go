package grpcapi_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/conns"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// TestAnswersOfStreamsCount checks that a message of a stream counts until it is written, like that of a call: without
// memory for it, it is refused.
func TestAnswersOfStreamsCount(t *testing.T) {
	t.Parallel()
	for budget, want := range map[int]codes.Code{1 << 20: codes.OK, 0: codes.Unavailable} {
		t.Run(fmt.Sprint(budget), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				f := over(t, memory.New(nil), grpcapi.Config{Config: decide.Config{Held: conns.NewBudget(budget)}})
				types, err := reflectionpb.NewServerReflectionClient(f.conn).ServerReflectionInfo(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				err = types.Send(&reflectionpb.ServerReflectionRequest{
					// some 10 KB
					MessageRequest: &reflectionpb.ServerReflectionRequest_FileByFilename{FileByFilename: "google/protobuf/descriptor.proto"},
				})
				if err != nil {
					t.Fatal(err)
				}
				answer, err := types.Recv()
				if status.Code(err) != want {
					t.Errorf("beside %d bytes, %d were answered: %v", budget, proto.Size(answer), err)
				}
			})
		})
	}
}

// TestBatchHoldsMemory checks that a batch is refused, and nothing spent, if there is no memory for its results.
func TestBatchHoldsMemory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n     int
		brief bool
		want  codes.Code
	}{
		{100, false, codes.OK},
		{1000, false, codes.Unavailable},
		{500, true, codes.OK},
		{1000, true, codes.OK},
	} {
		t.Run(fmt.Sprint(tt.n, tt.brief), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				f := over(t, memory.New(nil), grpcapi.Config{Config: decide.Config{Held: conns.NewBudget(512 << 10)}})
				in := &weirv1.AcquireBatchRequest{Brief: tt.brief}
				for i := range tt.n {
					in.Requests = append(in.Requests, &weirv1.AcquireRequest{
						Entity: fmt.Sprint(i % 3), Resource: "gpt-4", Tokens: map[string]int64{"rpm": 1},
					})
				}
				for range 3 { // what one held is free for the next
					if _, err := f.AcquireBatch(t.Context(), in); status.Code(err) != tt.want {
						t.Fatalf("got %v", err)
					}
				}
			})
		})
	}
}

// long sets limits of 50 a day for which an answer has half a megabyte: as many as can be, with long names. It returns the
// entity, the resource and one of their names.
func (f *fixture) long(t *testing.T) (entity, resource, limit string) {
	t.Helper()
	ad := admin.New(f.lim)
	for i := range weir.MaxDepth {
		id := fmt.Sprint(strings.Repeat("e", 250), i)
		if err := ad.Entities.Create(t.Context(), admin.Entity{ID: id, Parent: entity, Cascade: true}); err != nil {
			t.Fatal(err)
		}
		entity = id
	}
	limits := make([]weir.Limit, 64)
	for i := range limits {
		limits[i] = weir.PerDay(fmt.Sprint(strings.Repeat("l", 60), i), 50)
	}
	resource = strings.Repeat("r", 250)
	if err := ad.Limits.Set(t.Context(), admin.Scope{Resource: resource}, limits...); err != nil {
		t.Fatal(err)
	}
	return entity, resource, limits[0].Name
}

// TestLongAnswers checks that answers for which there is no memory are refused, that the connection remains, and that nothing
// is held afterwards.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	for budget, want := range map[int]codes.Code{1 << 20: codes.OK, 256 << 10: codes.Unavailable} {
		t.Run(fmt.Sprint(budget), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				f := over(t, memory.New(nil), grpcapi.Config{Config: decide.Config{Held: conns.NewBudget(budget)}})
				entity, resource, _ := f.long(t)
				for range 3 {
					_, one := f.Acquire(t.Context(), &weirv1.AcquireRequest{Entity: entity, Resource: resource})
					_, two := f.Available(t.Context(), &weirv1.AvailableRequest{Entity: entity, Resource: resource})
					stream, three := f.Watch(t.Context(), &weirv1.WatchRequest{Entity: entity, Resource: resource})
					if three == nil {
						_, three = stream.Recv()
					}
					for _, err := range []error{one, two, three} {
						if status.Code(err) != want || err != nil && !strings.Contains(err.Error(), "no memory for the answer") {
							t.Errorf("got %v, want %s", err, want)
						}
					}
					f.acquire(t, 1, 1)
				}
			})
		})
	}
}

// TestLongSlots checks that a request gets no slot if there is no memory for the answer with the lease that would hold it.
func TestLongSlots(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := over(t, memory.New(nil), grpcapi.Config{Config: decide.Config{Held: conns.NewBudget(256 << 10)}})
		entity, resource, limit := f.long(t)
		scope := admin.Scope{Entity: entity, Resource: resource}
		if err := admin.New(f.lim).Limits.Set(t.Context(), scope, weir.Limit{Name: "parallel", Slots: 1}); err != nil {
			t.Fatal(err)
		}
		in := &weirv1.AcquireRequest{Entity: entity, Resource: resource, Tokens: map[string]int64{limit: 1}}
		for range 2 {
			if _, err := f.Acquire(t.Context(), in); status.Code(err) != codes.Unavailable {
				t.Fatalf("got %v", err)
			}
			av, err := f.lim.Available(t.Context(), entity, resource)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range av.Statuses {
				if s.Limit == "parallel" && s.Available != 1 || s.Limit == limit && s.Available != 50 {
					t.Errorf("%d left of %s", s.Available, s.Limit)
				}
			}
		}
	})
}

// TestBatchLongResults checks that the results of a batch hold no more than the budget, however many limits each request has:
// those for which there is no room are brief, and still right.
func TestBatchLongResults(t *testing.T) {
	t.Parallel()
	bubble(t, testBatchLongResults)
}

func testBatchLongResults(t *testing.T) {
	const budget, n = 2 << 20, 100
	f := over(t, memory.New(nil), grpcapi.Config{Config: decide.Config{Held: conns.NewBudget(budget)}})
	entity, resource, limit := f.long(t)
	in := &weirv1.AcquireBatchRequest{}
	for range n {
		in.Requests = append(in.Requests, &weirv1.AcquireRequest{
			Entity: entity, Resource: resource, Tokens: map[string]int64{limit: 1},
		})
	}
	for _, allowed := range []int{50, 0} {
		out, err := f.AcquireBatch(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(out); size > budget {
			t.Errorf("the answer has %d bytes, the budget %d", size, budget)
		}
		got, long := 0, 0
		for _, r := range out.GetResults() {
			d := r.GetDecision()
			switch {
			case d == nil:
				t.Fatal(r.GetError())
			case d.GetAllowed():
				got++
			case d.GetRetryAfter() == nil:
				t.Error("a refusal has no retry_after")
			}
			if len(d.GetLimits()) > 0 {
				long++
			}
		}
		if got != allowed || long == 0 {
			t.Errorf("%d are allowed, want %d; %d are long", got, allowed, long)
		}
	}
}

// TestBatchLongSlots checks that of a batch that is admitted together nobody gets a slot if there is no memory for the leases
// that would hold them.
func TestBatchLongSlots(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		const n, slots = 20, 100
		f := over(t, memory.New(nil), grpcapi.Config{Config: decide.Config{Held: conns.NewBudget(2 << 20)}})
		entity, resource, limit := f.long(t)
		scope := admin.Scope{Entity: entity, Resource: resource}
		if err := admin.New(f.lim).Limits.Set(t.Context(), scope, weir.Limit{Name: "parallel", Slots: slots}); err != nil {
			t.Fatal(err)
		}
		in := &weirv1.AcquireBatchRequest{Atomic: true}
		for range n {
			in.Requests = append(in.Requests, &weirv1.AcquireRequest{
				Entity: entity, Resource: resource, Tokens: map[string]int64{limit: 1},
			})
		}
		if out, err := f.AcquireBatch(t.Context(), in); status.Code(err) != codes.Unavailable {
			t.Errorf("%d results, %v", len(out.GetResults()), err)
		}
		av, err := f.lim.Available(t.Context(), entity, resource)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range av.Statuses {
			if s.Limit == "parallel" && s.Available != slots || s.Limit == limit && s.Available != 50 {
				t.Errorf("%d left of %s", s.Available, s.Limit)
			}
		}
	})
}

// late is a store that calls a function before its first take.
type late struct {
	store.Store
	once sync.Once
	call func()
}

func (s *late) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	s.once.Do(s.call)
	return s.Store.Take(ctx, t)
}

// TestBatchUnsentSlots checks that nobody gets slots by a batch whose results were made, but for whose answer there is no memory.
func TestBatchUnsentSlots(t *testing.T) {
	t.Parallel()
	for _, atomic := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			const budget, n = 512 << 10, 300
			held := conns.NewBudget(budget)
			other := conns.Hold{Budget: held} // gets what the batch held while it was decided
			defer other.Close()
			st := &late{Store: memory.New(nil), call: func() {
				go other.Add(t.Context(), "other", budget*5/8, time.Minute)
				synctest.Wait()
			}}
			f := over(t, st, grpcapi.Config{Config: decide.Config{Held: held}})
			scope := admin.Scope{Resource: "gpt-4"}
			if err := admin.New(f.lim).Limits.Set(t.Context(), scope, weir.Limit{Name: "parallel", Slots: n}); err != nil {
				t.Fatal(err)
			}
			in := &weirv1.AcquireBatchRequest{Atomic: atomic}
			for range n {
				in.Requests = append(in.Requests, &weirv1.AcquireRequest{Entity: strings.Repeat("e", 250), Resource: "gpt-4"})
			}
			if _, err := f.AcquireBatch(t.Context(), in); !strings.Contains(fmt.Sprint(err), "no memory for the answer") {
				t.Errorf("got %v", err)
			}
			av, err := f.lim.Available(t.Context(), in.GetRequests()[0].GetEntity(), "gpt-4")
			if err != nil || av.Statuses[0].Available != n {
				t.Errorf("%+v, %v", av, err)
			}
		})
	}
}

// TestBatchCountsForItsToken checks that a batch is counted together with what else its token holds.
func TestBatchCountsForItsToken(t *testing.T) {
	t.Parallel()
	token, e, err := auth.NewEntry(auth.Entry{Name: "hog", Roles: []auth.Role{auth.Acquire}, Namespaces: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	book := openBook(t, e)
	bubble(t, func(t *testing.T) {
		budget := conns.NewBudget(4 << 20)
		f := over(t, memory.New(nil), grpcapi.Config{Config: decide.Config{Held: budget, Book: book}})
		bodies := conns.Hold{Budget: budget} // as the token's requests over HTTP, or its connections over gRPC, hold
		if !bodies.Add(t.Context(), "hog", 3<<20, 0) {
			t.Fatal("the token does not get three quarters")
		}
		defer bodies.Close()
		in := &weirv1.AcquireBatchRequest{Brief: true}
		for i := range 1000 {
			in.Requests = append(in.Requests, &weirv1.AcquireRequest{Entity: fmt.Sprint(i % 3), Resource: "gpt-4"})
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		if _, err := f.AcquireBatch(ctx, in); status.Code(err) != codes.Unavailable {
			t.Errorf("the token holds three quarters of the budget, and its batch three quarters of the rest: got %v", err)
		}
	})
}
