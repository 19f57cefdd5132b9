package grpcapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	bubble(t, testBatch)
}

func testBatch(t *testing.T) {
	f := setup(t, grpcapi.Config{})
	f.acquire(t, 1, 500)
	bob := func(tpm int64) *weirv1.AcquireRequest {
		return &weirv1.AcquireRequest{Entity: "bob", Resource: "gpt-4", Tokens: map[string]int64{"tpm": tpm}}
	}
	out, err := f.AcquireBatch(t.Context(), &weirv1.AcquireBatchRequest{Requests: []*weirv1.AcquireRequest{
		alice(1, 501), bob(400), {Entity: "alice", Resource: "other"}, {Entity: "bob", Resource: "gpt-4", Tokens: map[string]int64{"nope": 1}}, bob(2000),
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range out.GetResults() {
		d, e := r.GetDecision(), r.GetError()
		switch {
		case d == nil:
			got = append(got, fmt.Sprintf("%v %s%s", codes.Code(e.GetCode()), e.GetReason(), e.GetField()))
		case d.GetAllowed():
			got = append(got, fmt.Sprintf("allowed, %d left", d.GetLimits()[1].GetAvailable()))
		default:
			got = append(got, fmt.Sprintf("refused, %d left, retry %t", d.GetLimits()[1].GetAvailable(), d.GetRetryAfter().AsDuration() > 0))
		}
	}
	want := "[refused, 500 left, retry true allowed, 600 left FailedPrecondition NO_LIMITS InvalidArgument tokens.nope FailedPrecondition EXCEEDS_BURST]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if _, err := f.Rollback(t.Context(), &weirv1.RollbackRequest{Lease: out.GetResults()[1].GetDecision().GetLease()}); err != nil {
		t.Error(err)
	}
	av, err := f.Available(t.Context(), &weirv1.AvailableRequest{Entity: "bob", Resource: "gpt-4"})
	if err != nil || av.GetLimits()[1].GetAvailable() != 1000 {
		t.Errorf("after the rollback: %v, %v", av, err)
	}
}

func TestBatchAtomic(t *testing.T) {
	t.Parallel()
	bubble(t, batchAtomic) // nothing is issued meanwhile
}

func batchAtomic(t *testing.T) {
	t.Helper()
	f := setup(t, grpcapi.Config{})
	ask := func(reqs ...*weirv1.AcquireRequest) (*weirv1.AcquireBatchResponse, error) {
		return f.AcquireBatch(t.Context(), &weirv1.AcquireBatchRequest{Requests: reqs, Atomic: true})
	}
	_, err := ask(alice(1, 600), alice(1, 600)) // in total
	wants(t, err, codes.FailedPrecondition, "EXCEEDS_BURST")
	out, err := ask(alice(1, 600), alice(2, 300))
	if err != nil || len(out.GetResults()) != 2 || out.GetRefused() != nil {
		t.Fatalf("got %v, %v", out, err)
	}
	if got := f.left(t); got != 100 {
		t.Errorf("%d are left after 900 of 1000", got)
	}
	out, err = ask(alice(1, 50), alice(1, 51))
	if r := out.GetRefused(); err != nil || len(out.GetResults()) != 0 || r == nil || r.GetAllowed() || len(r.GetLimits()) != 2 || r.GetRetryAfter().AsDuration() <= 0 {
		t.Fatalf("got %v, %v", out, err)
	}
	if got := f.left(t); got != 100 {
		t.Errorf("%d are left: a refused batch has spent", got)
	}
}

// TestBatchMistakes checks that a mistake fails the batch before anything is spent.
func TestBatchMistakes(t *testing.T) {
	t.Parallel()
	bubble(t, batchMistakes) // nothing is issued meanwhile
}

func batchMistakes(t *testing.T) {
	t.Helper()
	f := setup(t, grpcapi.Config{})
	wait, namespace := alice(1, 1), alice(1, 1)
	wait.Wait, namespace.Namespace = durationpb.New(time.Second), "blue"
	many := make([]*weirv1.AcquireRequest, 1001)
	for i := range many {
		many[i] = alice(0, 0)
	}
	for _, tt := range []struct {
		field string
		in    *weirv1.AcquireBatchRequest
	}{
		{"requests", &weirv1.AcquireBatchRequest{}},
		{"requests", &weirv1.AcquireBatchRequest{Requests: many}},
		{"requests[1].wait", &weirv1.AcquireBatchRequest{Requests: []*weirv1.AcquireRequest{alice(1, 1), wait}}},
		{"requests[1].on_unavailable", &weirv1.AcquireBatchRequest{Requests: []*weirv1.AcquireRequest{alice(1, 1), {OnUnavailable: 9}}}},
		{"requests[1].namespace", &weirv1.AcquireBatchRequest{Atomic: true, Requests: []*weirv1.AcquireRequest{alice(1, 1), namespace}}},
		{"requests[1].tokens.nope", &weirv1.AcquireBatchRequest{Atomic: true, Requests: []*weirv1.AcquireRequest{alice(1, 1), {Entity: "alice", Resource: "gpt-4", Tokens: map[string]int64{"nope": 1}}}}},
	} {
		_, err := f.AcquireBatch(t.Context(), tt.in)
		wants(t, err, codes.InvalidArgument, tt.field)
	}
	if got := f.left(t); got != 1000 {
		t.Errorf("%d of 1000 are left: a mistake has spent", got)
	}
	if _, err := f.AcquireBatch(t.Context(), &weirv1.AcquireBatchRequest{Requests: many[:1000]}); err != nil {
		t.Errorf("1,000 requests: %v", err)
	}
}

func TestBatchBrief(t *testing.T) {
	t.Parallel()
	bubble(t, testBatchBrief)
}

func testBatchBrief(t *testing.T) {
	f := setup(t, grpcapi.Config{})
	for _, atomic := range []bool{false, true} {
		out, err := f.AcquireBatch(t.Context(), &weirv1.AcquireBatchRequest{Requests: []*weirv1.AcquireRequest{alice(1, 100)}, Brief: true, Atomic: atomic})
		if err != nil {
			t.Fatal(err)
		}
		if d := out.GetResults()[0].GetDecision(); !d.GetAllowed() || d.GetLease() != "" || d.GetExpires() != nil || d.GetLimits() != nil {
			t.Errorf("atomic %t: got %v", atomic, d)
		}
	}
	if got := f.left(t); got != 800 {
		t.Errorf("%d are left after 200 of 1000", got)
	}
}

// down is a store that decides nothing.
type down struct{ store.Store }

func (down) Take(context.Context, store.Take) (store.Outcome, error) {
	return store.Outcome{}, errors.New("down")
}

// A brief answer shows that the store did not decide.
func TestBatchBriefDegraded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := overLimiter(t, weir.Config{Store: down{memory.New(nil)}, OnUnavailable: weir.OnUnavailableAllow}, grpcapi.Config{})
		req := alice(1, 100)
		out, err := f.AcquireBatch(t.Context(), &weirv1.AcquireBatchRequest{Requests: []*weirv1.AcquireRequest{req}, Brief: true})
		if err != nil {
			t.Fatal(err)
		}
		if d := out.GetResults()[0].GetDecision(); !d.GetAllowed() || !d.GetDegraded() || d.GetOver() != -1 || d.GetReason() == "" || d.GetLimits() != nil {
			t.Errorf("got %v", d)
		}
	})
}

// slow is a store that takes a while to answer, and records how many calls wait at once.
type slow struct {
	store.Store
	now, most atomic.Int64
}

func (s *slow) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	time.Sleep(20 * time.Millisecond) // virtual time: in a bubble
	return s.Store.Take(ctx, t)
}

// TestBatchAnswersInTime checks that a batch makes all its calls to a slow store at once.
func TestBatchAnswersInTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		st := &slow{Store: memory.New(nil)}
		f := over(t, st, grpcapi.Config{})
		in := &weirv1.AcquireBatchRequest{}
		for i := range 100 {
			in.Requests = append(in.Requests, &weirv1.AcquireRequest{Entity: fmt.Sprint(i % 7), Resource: "gpt-4", Tokens: map[string]int64{"tpm": 1}})
		}
		for _, within := range []time.Duration{40 * time.Millisecond, 20 * time.Millisecond} { // the second time, decisions are known to be slow
			began := time.Now()
			out, err := f.AcquireBatch(t.Context(), in)
			if err != nil || time.Since(began) != within {
				t.Fatalf("answered after %s, want %s: %v", time.Since(began), within, err)
			}
			for i, r := range out.GetResults() {
				if d := r.GetDecision(); !d.GetAllowed() || d.GetLimits()[0].GetEntity() != fmt.Sprint(i%7) {
					t.Fatalf("%d: got %v", i, r)
				}
			}
		}
		if st.most.Load() != 100 {
			t.Errorf("%d at once", st.most.Load())
		}
	})
}

// explosive is a store that panics for the entity bomb.
type explosive struct {
	store.Store
	takes time.Duration
}

func (e *explosive) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	time.Sleep(e.takes) // real time: none, all callers are in a bubble
	if t.Debits[0].Bucket.Entity == "bomb" {
		panic("mistake")
	}
	return e.Store.Take(ctx, t)
}

// TestBatchPanics checks that a panic in one request of a batch fails only that request, whether the requests are decided
// in sequence or concurrently: the others were debited and must be answered.
func TestBatchPanics(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{0, 10 * time.Millisecond} {
		bubble(t, func(t *testing.T) {
			f := over(t, &explosive{memory.New(nil), takes}, grpcapi.Config{})
			in := &weirv1.AcquireBatchRequest{}
			for i := range 5 {
				in.Requests = append(in.Requests, alice(0, 1))
				if i == 2 {
					in.Requests[i].Entity = "bomb"
				}
			}
			out, err := f.AcquireBatch(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range out.GetResults() {
				if want := i != 2; r.GetDecision().GetAllowed() != want || (r.GetError() == nil) != want {
					t.Errorf("request %d: got %v", i, r)
				}
			}
		})
	}
}

// TestBatchIsNotMixedUp checks that each of many answers, for chains of all lengths, has its own statuses and lease.
func TestBatchIsNotMixedUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := setup(t, grpcapi.Config{})
		for i := range 3 {
			var limits []weir.Limit
			for j := range i + 1 {
				limits = append(limits, weir.PerHour(fmt.Sprintf("limit-%d", j), 100))
			}
			if err := admin.New(f.lim).Limits.Set(t.Context(), admin.Scope{Resource: fmt.Sprintf("resource-%d", i)}, limits...); err != nil {
				t.Fatal(err)
			}
		}
		in := &weirv1.AcquireBatchRequest{}
		for i := range 50 {
			in.Requests = append(in.Requests, &weirv1.AcquireRequest{
				Entity: fmt.Sprintf("entity-%d", i), Resource: fmt.Sprintf("resource-%d", i%3), Tokens: map[string]int64{"limit-0": int64(i)},
			})
		}
		out, err := f.AcquireBatch(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range out.GetResults() {
			d := r.GetDecision()
			if len(d.GetLimits()) != i%3+1 {
				t.Fatalf("answer %d: %v", i, r)
			}
			for j, st := range d.GetLimits() {
				want := int64(100)
				if j == 0 {
					want -= int64(i)
				}
				if st.GetEntity() != in.GetRequests()[i].GetEntity() || st.GetLimit() != fmt.Sprintf("limit-%d", j) || st.GetAvailable() != want {
					t.Errorf("answer %d, limit %d: %v", i, j, st)
				}
			}
			if _, err := f.Rollback(t.Context(), &weirv1.RollbackRequest{Lease: d.GetLease()}); err != nil {
				t.Error(err)
			}
			b, err := admin.New(f.lim).Buckets.Get(t.Context(), in.GetRequests()[i].GetEntity(), in.GetRequests()[i].GetResource())
			if i > 0 && (err != nil || b.Limits[0].Returned != int64(i)) {
				t.Errorf("the lease of answer %d gave back of another bucket: %+v, %v", i, b, err)
			}
		}
	})
}

// TestBatchLargest sends batches of 1,000 requests with the longest ids, and one that decides too much at once.
func TestBatchLargest(t *testing.T) {
	t.Parallel()
	bubble(t, testBatchLargest)
}

func testBatchLargest(t *testing.T) {
	f := setup(t, grpcapi.Config{})
	resource := strings.Repeat("r", 256)
	var limits []weir.Limit
	for i := range 5 {
		limits = append(limits, weir.PerMinute(fmt.Sprint(i, strings.Repeat("l", 255)), 10))
	}
	if err := admin.New(f.lim).Limits.Set(t.Context(), admin.Scope{Resource: resource}, limits...); err != nil {
		t.Fatal(err)
	}
	in := &weirv1.AcquireBatchRequest{Brief: true}
	for i := range 1000 {
		in.Requests = append(in.Requests, &weirv1.AcquireRequest{
			Entity: fmt.Sprintf("%04d", i) + strings.Repeat("e", 252), Resource: resource, Tokens: map[string]int64{limits[0].Name: 1},
		})
	}
	out, err := f.AcquireBatch(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range out.GetResults() {
		if !r.GetDecision().GetAllowed() {
			t.Fatalf("request %d: %v", i, r)
		}
	}
	in.Atomic = true // 5,000 limits are too many for one decision
	_, err = f.AcquireBatch(t.Context(), in)
	wants(t, err, codes.InvalidArgument, "request")
	in.Requests = in.Requests[:800]
	if out, err = f.AcquireBatch(t.Context(), in); err != nil || len(out.GetResults()) != 800 {
		t.Errorf("4,000 limits: %v, %v", out.GetRefused(), err)
	}
}
