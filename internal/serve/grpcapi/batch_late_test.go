package grpcapi_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// TestColdBatchIsNotAdmitted checks that atomic batches, one at a time, of entities whose limits are not cached are decided
// by a store that answers every call well within the time for a decision: allow admits none of them.
func TestColdBatchIsNotAdmitted(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 8, 12, 32, 64, 65} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				const children, most = 520, 100
				two := newTenants(t, &distant{memory.New(nil)}, 60*time.Millisecond)
				a := admin.New(two.lim.In("noisy"))
				must := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				must(a.Limits.Set(t.Context(), admin.Scope{}, weir.PerDay("rps", 1_000_000)))
				must(a.Entities.Create(t.Context(), admin.Entity{ID: "org"}))
				must(a.Limits.Set(t.Context(), admin.Scope{Entity: "org"}, weir.PerDay("rps", most)))
				must(a.Limits.SetOnUnavailable(t.Context(), admin.Scope{}, weir.OnUnavailableAllow))
				for i := range children {
					must(a.Entities.Create(t.Context(), admin.Entity{ID: fmt.Sprint("c", i), Parent: "org", Cascade: true}))
				}
				admitted := 0
				for n := 0; n+size <= children; n += size {
					in := &weirv1.AcquireBatchRequest{Brief: true, Atomic: true}
					for i := range size {
						in.Requests = append(in.Requests, &weirv1.AcquireRequest{
							Entity: fmt.Sprint("c", n+i), Resource: "api", Tokens: map[string]int64{"rps": 1},
						})
					}
					out, err := two.AcquireBatch(two.as["noisy"], in)
					if err != nil {
						t.Errorf("batch %d: %v", n/size, err)
					}
					for _, r := range out.GetResults() {
						if r.GetDecision().GetDegraded() {
							t.Errorf("batch %d was degraded", n/size)
						}
						if r.GetDecision().GetAllowed() {
							admitted++
						}
					}
				}
				if want := most / size * size; admitted != want {
					t.Errorf("%d requests were admitted, not %d", admitted, want)
				}
			})
		})
	}
}

// TestLateBatchIsNotAdmitted checks that allow admits no batch of more than 8 requests that is late, although nobody else
// was answered meanwhile.
func TestLateBatchIsNotAdmitted(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{8: 8, 9: 0} {
		bubble(t, func(t *testing.T) {
			st := newStation()
			two := newTenants(t, st, 12*time.Millisecond)
			err := admin.New(two.lim.In("noisy")).Limits.SetOnUnavailable(t.Context(), admin.Scope{}, weir.OnUnavailableAllow)
			if err != nil {
				t.Fatal(err)
			}
			st.does(func(ctx context.Context, _ store.Take) (store.Outcome, error) {
				<-ctx.Done()
				return store.Outcome{}, ctx.Err()
			})
			in := &weirv1.AcquireBatchRequest{}
			for i := range size {
				in.Requests = append(in.Requests, &weirv1.AcquireRequest{
					Entity: fmt.Sprint(i), Resource: "api", Tokens: map[string]int64{"rps": 1},
				})
			}
			out, err := two.AcquireBatch(two.as["noisy"], in)
			admitted := 0
			for _, r := range out.GetResults() {
				if r.GetDecision().GetAllowed() {
					admitted++
				}
			}
			if err != nil || admitted != want {
				t.Errorf("%d of %d were admitted, %v", admitted, size, err)
			}
		})
	}
}
