package admin_test

import (
	"context"
	"fmt"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// Query what was spent this month, by whom, and when.
func ExampleUsageReports() {
	ctx := context.Background()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	if err := admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "translate"}, weir.PerDay("tpd", 1000)); err != nil {
		fmt.Println(err)
		return
	}
	for entity, tokens := range map[string]int64{"key-alice": 700, "key-bob": 200} {
		lease, err := lim.Acquire(ctx, weir.Request{
			Entity: entity, Resource: "translate", Tokens: weir.Tokens{"tpd": tokens},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = lease.Adjust(ctx, weir.Tokens{"tpd": -50})
		_ = lease.Commit(ctx)
	}
	page, err := admin.New(lim).Usage.Windows(ctx, admin.UsageQuery{Entity: "key-bob", Window: admin.Monthly})
	for _, u := range page.Items {
		fmt.Println(u.Entity, u.Resource, u.Requests, u.Limits[0].Debited, u.Limits[0].Returned)
	}
	top, err2 := admin.New(lim).Usage.Top(ctx, admin.TopQuery{Limit: "tpd", Window: admin.Monthly})
	for _, u := range top {
		fmt.Println(u.Entity, u.Limits[0].Consumed)
	}
	sum, err3 := admin.New(lim).Usage.Sum(ctx, admin.UsageQuery{Window: admin.Monthly})
	fmt.Println(sum.Total.Limits[0].Consumed, err, err2, err3)
	// Output:
	// key-bob translate 1 200 50
	// key-alice 650
	// key-bob 150
	// 800 <nil> <nil> <nil>
}

// Sell credits: top up a balance once for each invoice, and let requests spend it.
func ExampleBalances() {
	ctx := context.Background()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	a := admin.New(lim)
	credits := weir.Limit{Name: "credits", Balance: true}
	if err := a.Limits.Set(ctx, admin.Scope{Entity: "alice", Resource: weir.TotalResource}, credits); err != nil {
		fmt.Println(err)
		return
	}
	invoice := admin.Credit{
		BalanceKey: admin.BalanceKey{Entity: "alice", Limit: "credits"}, Amount: 500, ID: "inv-1042",
	}
	for range 2 { // the answer was lost
		b, repeated, err := a.Balances.Add(ctx, invoice)
		fmt.Println(b.Available, repeated, err)
	}
	spend := weir.Request{Entity: "alice", Resource: "gpt-4", Tokens: weir.Tokens{"credits": 501}}
	_, err = lim.Acquire(ctx, spend)
	fmt.Println(err)
	// Output:
	// 500 false <nil>
	// 500 true <nil>
	// limit exceeded: credits of alice on the total has 500 available, 501 requested; waiting does not help until it is topped up
}
