package grpcapi_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
)

func TestBalance(t *testing.T) {
	t.Parallel()
	f, ctx := setup(t, grpcapi.Config{}), t.Context()
	total := admin.Scope{Entity: "alice", Resource: weir.TotalResource}
	if err := admin.New(f.lim).Limits.Set(ctx, total, weir.Limit{Name: "credits", Balance: true}); err != nil {
		t.Fatal(err)
	}
	add := &weirv1.AddCreditsRequest{Entity: "alice", Limit: "credits", Amount: 500, Id: "inv-1"}
	want := &weirv1.AddCreditsResponse{Balance: &weirv1.PrepaidBalance{
		Entity: "alice", Resource: "_total_", Limit: "credits", Available: 500, Credited: 500,
	}}
	for range 2 {
		got, err := f.AddCredits(ctx, add)
		if err != nil || !proto.Equal(got, want) {
			t.Fatalf("got %v, %v", got, err)
		}
		want.Repeated = true
	}
	list, err := f.ListBalances(ctx, &weirv1.ListBalancesRequest{Entity: "alice"})
	if err != nil || len(list.GetBalances()) != 1 || !proto.Equal(list.GetBalances()[0], want.GetBalance()) {
		t.Errorf("got %v, %v", list, err)
	}
	page, err := admin.New(f.lim).Balances.History(ctx, admin.BalanceQuery{BalanceKey: admin.BalanceKey{Entity: "alice", Limit: "credits"}})
	if err != nil || len(page.Items) != 1 || page.Items[0].Principal != "grpc" {
		t.Errorf("history: %+v, %v", page, err)
	}

	add.Amount = 400
	_, err = f.AddCredits(ctx, add)
	wants(t, err, codes.AlreadyExists, "")
	if !strings.Contains(err.Error(), "500 tokens, not 400") {
		t.Error(err)
	}
	_, err = f.AddCredits(ctx, &weirv1.AddCreditsRequest{Entity: "alice", Limit: "credits", Amount: 5})
	wants(t, err, codes.InvalidArgument, "id")
	_, err = f.AddCredits(ctx, &weirv1.AddCreditsRequest{Entity: "alice", Limit: "credit", Amount: 5, Id: "x"})
	wants(t, err, codes.NotFound, "")

	r, err := f.Acquire(ctx, &weirv1.AcquireRequest{Entity: "alice", Resource: "gpt-4", Tokens: map[string]int64{"credits": 501}})
	if err != nil || r.GetAllowed() || r.GetRetryAfter() != nil {
		t.Errorf("more than there is: %v, %v", r, err)
	}
}
