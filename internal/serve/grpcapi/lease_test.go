package grpcapi_test

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
)

func adjust(lease string, tpm int64) *weirv1.AdjustRequest {
	return &weirv1.AdjustRequest{Lease: lease, Tokens: map[string]int64{"tpm": tpm}}
}

func TestLease(t *testing.T) {
	t.Parallel()
	f, ctx := setup(t, grpcapi.Config{}), t.Context()
	first := f.acquire(t, 1, 500)
	a, err := f.Adjust(ctx, adjust(first, -300))
	if err != nil || a.GetExpires().AsTime().Before(time.Now()) {
		t.Fatalf("got %v, %v", a, err)
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
