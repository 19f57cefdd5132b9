package grpcapi_test

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
)

func adjust(lease string, tpm int64) *weirv1.AdjustRequest {
	return &weirv1.AdjustRequest{Lease: lease, Tokens: map[string]int64{"tpm": tpm}}
}

// TestRenew: slots are held until the client gives them back or does not renew them.
func TestRenew(t *testing.T) {
	t.Parallel()
	f, ctx := setup(t, grpcapi.Config{}), t.Context()
	if err := admin.New(f.lim).Limits.Set(ctx, admin.Scope{Resource: "video"}, weir.Limit{Name: "parallel", Slots: 1}); err != nil {
		t.Fatal(err)
	}
	one := &weirv1.AcquireRequest{Entity: "alice", Resource: "video"}
	a, err := f.Acquire(ctx, one)
	if err != nil || !a.GetAllowed() || a.GetHeldFor().AsDuration() < 30*time.Second || a.GetLimits()[0].GetHeal().AsDuration() != 30*time.Second {
		t.Fatalf("got %v, %v", a, err)
	}
	b, err := f.Renew(ctx, &weirv1.RenewRequest{Lease: a.GetLease()})
	if err != nil || b.GetHeldFor().AsDuration() < 30*time.Second || !b.GetExpires().AsTime().Equal(a.GetExpires().AsTime()) {
		t.Fatalf("got %v, %v", b, err)
	}
	can, err := f.Available(ctx, &weirv1.AvailableRequest{Entity: "alice", Resource: "video"})
	if l := can.GetLimits()[0]; err != nil || l.GetAvailable() != 0 || l.GetEndsIn().AsDuration() < 20*time.Second || l.GetWindow() != "" {
		t.Errorf("got %v, %v", can, err)
	}
	if c, err := f.Acquire(ctx, one); err != nil || c.GetAllowed() {
		t.Errorf("a second slot: %v, %v", c, err)
	}
	if _, err = f.Commit(ctx, &weirv1.CommitRequest{Lease: b.GetLease()}); err != nil {
		t.Error(err)
	}
	if c, err := f.Acquire(ctx, one); err != nil || !c.GetAllowed() {
		t.Errorf("after the commit: %v, %v", c, err)
	}
	_, err = f.Renew(ctx, &weirv1.RenewRequest{Lease: f.acquire(t, 1, 1)})
	wants(t, err, codes.InvalidArgument, "lease")
	_, err = f.Renew(ctx, &weirv1.RenewRequest{Lease: "AAAA"})
	wants(t, err, codes.NotFound, "")
	brief := &weirv1.AcquireBatchRequest{Requests: []*weirv1.AcquireRequest{{Entity: "bob", Resource: "video"}}, Atomic: true, Brief: true}
	_, err = f.AcquireBatch(ctx, brief)
	wants(t, err, codes.InvalidArgument, "brief")
}

func TestLease(t *testing.T) {
	t.Parallel()
	bubble(t, leases) // nothing is issued meanwhile
}

func leases(t *testing.T) {
	t.Helper()
	f, ctx := setup(t, grpcapi.Config{}), t.Context()
	first := f.acquire(t, 1, 500)
	a, err := f.Adjust(ctx, adjust(first, -300))
	if err != nil || a.GetExpires().AsTime().Before(time.Now()) {
		t.Fatalf("got %v, %v", a, err)
	}
	if l := a.GetLimits(); len(l) != 1 || l[0].GetLimit() != "tpm" || l[0].GetAvailable() != 800 ||
		l[0].GetRetryAfter() != nil || a.GetDegraded() {
		t.Errorf("got %v", a)
	}
	if got := f.left(t); got != 800 {
		t.Errorf("%d are left after 200 of 1000", got)
	}
	_, err = f.Adjust(ctx, adjust(first, -300))
	wants(t, err, codes.FailedPrecondition, "SETTLED")
	_, err = f.Rollback(ctx, &weirv1.RollbackRequest{Lease: first})
	wants(t, err, codes.FailedPrecondition, "SETTLED")
	second := a.GetLease()
	_, err = f.Adjust(ctx, adjust(second, -201))
	wants(t, err, codes.InvalidArgument, "tokens.tpm")
	_, err = f.Adjust(ctx, &weirv1.AdjustRequest{Lease: second})
	wants(t, err, codes.InvalidArgument, "tokens")
	if _, err = f.Commit(ctx, &weirv1.CommitRequest{Lease: second}); err != nil {
		t.Error(err)
	}
	if _, err = f.Rollback(ctx, &weirv1.RollbackRequest{Lease: second}); err != nil {
		t.Error(err)
	}
	if got := f.left(t); got != 1000 {
		t.Errorf("%d of 1000 are left after the rollback", got)
	}
	for _, id := range []string{"", "AAAA", first[:len(first)-1], first + "A"} {
		_, err = f.Rollback(ctx, &weirv1.RollbackRequest{Lease: id})
		wants(t, err, codes.NotFound, "")
		_, err = f.Adjust(ctx, adjust(id, 1))
		wants(t, err, codes.NotFound, "")
		_, err = f.Commit(ctx, &weirv1.CommitRequest{Lease: id})
		wants(t, err, codes.NotFound, "")
	}
}

func TestLeaseExpires(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f, ctx := setup(t, grpcapi.Config{Config: decide.Config{LeaseTTL: 5 * time.Second}}), t.Context()
		lease := f.acquire(t, 1, 1000)
		time.Sleep(6 * time.Second)
		_, err := f.Commit(ctx, &weirv1.CommitRequest{Lease: lease})
		wants(t, err, codes.FailedPrecondition, "EXPIRED")
		_, err = f.Adjust(ctx, adjust(lease, -1))
		wants(t, err, codes.FailedPrecondition, "EXPIRED")
		_, err = f.Rollback(ctx, &weirv1.RollbackRequest{Lease: lease})
		wants(t, err, codes.FailedPrecondition, "EXPIRED")
	})
}

// TestLeaseAcross settles over one protocol what was acquired over the other.
func TestLeaseAcross(t *testing.T) {
	t.Parallel()
	bubble(t, testLeaseAcross)
}

func testLeaseAcross(t *testing.T) {
	f := setup(t, grpcapi.Config{})
	lease := f.acquire(t, 1, 500)
	code, a := f.post(t, "/v1/leases/"+lease+"/adjust", `{"tokens":{"tpm":-400}}`)
	if code != http.StatusOK {
		t.Fatalf("HTTP answers %d", code)
	}
	if _, err := f.Rollback(t.Context(), &weirv1.RollbackRequest{Lease: a.Lease}); err != nil {
		t.Fatal(err)
	}
	if got := f.left(t); got != 1000 {
		t.Errorf("%d of 1000 are left", got)
	}
	_, a = f.post(t, "/v1/acquire", `{"entity":"alice","resource":"gpt-4","tokens":{"tpm":300}}`)
	adjusted, err := f.Adjust(t.Context(), adjust(a.Lease, 100))
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := f.post(t, "/v1/leases/"+a.Lease+"/rollback", ""); code != http.StatusConflict {
		t.Errorf("a used-up id: HTTP answers %d", code)
	}
	if got := f.left(t); got != 600 {
		t.Errorf("%d are left after 400 of 1000", got)
	}
	if code, _ := f.post(t, "/v1/leases/"+adjusted.GetLease()+"/rollback", ""); code != http.StatusNoContent {
		t.Errorf("HTTP answers %d", code)
	}
	if got := f.left(t); got != 1000 {
		t.Errorf("%d of 1000 are left", got)
	}
}

// TestAdjustEntity checks that what an entity has spent is corrected without a lease, at most once per id.
func TestAdjustEntity(t *testing.T) {
	t.Parallel()
	bubble(t, adjustEntity) // nothing is issued meanwhile
}

func adjustEntity(t *testing.T) {
	t.Helper()
	f, ctx := setup(t, grpcapi.Config{}), t.Context()
	report := func(id string, tpm int64) *weirv1.AdjustEntityRequest {
		return &weirv1.AdjustEntityRequest{Entity: "alice", Resource: "gpt-4", Tokens: map[string]int64{"tpm": tpm}, Id: id}
	}
	a, err := f.AdjustEntity(ctx, report("a", 1200)) // into debt
	if l := a.GetLimits(); err != nil || len(l) != 1 || l[0].GetLimit() != "tpm" || l[0].GetAvailable() != -200 || l[0].GetRetryAfter() == nil {
		t.Errorf("got %v, %v", a, err)
	}
	_, err = f.AdjustEntity(ctx, report("a", 1200))
	wants(t, err, codes.FailedPrecondition, "SETTLED")
	if _, err = f.AdjustEntity(ctx, report("", -500)); err != nil {
		t.Error(err)
	}
	if got := f.left(t); got != 300 {
		t.Errorf("%d are left after 1,200 - 500 of 1,000", got)
	}
	_, err = f.AdjustEntity(ctx, report("b", 1_000_000_000_000)) // beyond max_debt
	wants(t, err, codes.FailedPrecondition, "MAX_DEBT")
	left := int64(0)
	for _, detail := range status.Convert(err).Details() {
		if d, ok := detail.(*weirv1.AdjustEntityResponse); ok {
			left = d.GetLimits()[0].GetAvailable()
		}
	}
	if left != -10_000 || f.left(t) != left {
		t.Errorf("%d are left, the answer has %d", f.left(t), left)
	}
	_, err = f.AdjustEntity(ctx, &weirv1.AdjustEntityRequest{Entity: "alice", Resource: "gpt-4"})
	wants(t, err, codes.InvalidArgument, "tokens")
	_, err = f.AdjustEntity(ctx, &weirv1.AdjustEntityRequest{Entity: "alice", Resource: "gpt-4", Tokens: map[string]int64{"nope": 1}})
	wants(t, err, codes.InvalidArgument, "tokens.nope")
}
