package weir_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// At most two requests at once for each entity, and 50,000 tokens a minute, in one decision.
func Example_slots() {
	ctx := context.Background()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	parallel := weir.Limit{Name: "parallel", Slots: 2}
	err = admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "gpt-4"}, parallel, weir.PerMinute("tpm", 50_000))
	if err != nil {
		fmt.Println(err)
		return
	}
	work := func(next func(context.Context)) error {
		lease, err := lim.Acquire(ctx, weir.Request{
			Entity: "alice", Resource: "gpt-4", Tokens: weir.Tokens{"tpm": 1000}, // and one slot
		})
		if err != nil {
			return err
		}
		defer lease.Close(ctx) // gives the slot back, and keeps the tokens
		next(lease.Context())  // ends before anybody else can have the slot
		_, err = lease.Settle(ctx, weir.Tokens{"tpm": -300})
		return err // the slot was given back with the tokens, in one write
	}
	err = work(func(context.Context) {
		err := work(func(context.Context) {
			err := work(func(context.Context) {})
			fmt.Println("the third at once is refused:", errors.Is(err, weir.ErrExceeded))
		})
		fmt.Println("the second:", err)
	})
	fmt.Println("the first:", err)
	// Output:
	// the third at once is refused: true
	// the second: <nil>
	// the first: <nil>
}
