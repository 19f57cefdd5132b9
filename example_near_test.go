package weir_test

import (
	"context"
	"fmt"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// Send a warning before an entity is refused.
func ExampleObserver_nearLimit() {
	ctx := context.Background()
	lim, err := weir.New(weir.Config{
		Store: memory.New(nil),
		Observer: &weir.Observer{NearLimit: func(_ context.Context, e weir.NearLimitEvent) {
			fmt.Printf("%s has used %d%% of %s on %s\n", e.Entity, e.Percent, e.Limit, e.Resource)
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	if err := admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerDay("tpd", 1000)); err != nil {
		fmt.Println(err)
		return
	}
	if err := admin.New(lim).Limits.SetNearLimit(ctx, admin.Thresholds{50, 90}); err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		_, err := lim.Acquire(ctx, weir.Request{Entity: "alice", Resource: "gpt-4", Tokens: weir.Tokens{"tpd": 300}})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output:
	// alice has used 50% of tpd on gpt-4
	// alice has used 90% of tpd on gpt-4
}
