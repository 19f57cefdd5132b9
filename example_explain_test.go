package weir_test

import (
	"context"
	"fmt"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// Explain why a request is refused: where its limits come from, and which one binds.
func ExampleLimiter_Explain() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()
	for _, err := range []error{
		admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "org-1"}),
		admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "key-alice", Parent: "org-1", Cascade: true}),
		admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "gpt-4"}, weir.PerDay("tpd", 5000)),
		admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "org-1"}, weir.PerDay("tpd", 8000)),
	} {
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, tokens := range []weir.Tokens{{"tpd": 4000}, {"tpd": 6000}} {
		x, err := lim.Explain(ctx, weir.Request{Entity: "key-alice", Resource: "gpt-4", Tokens: tokens})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, n := range x.Chain {
			for _, l := range n.Limits {
				fmt.Println(n.ID, l.Limit, "from", l.Status.Source)
			}
		}
		n, l := x.Binding()
		fmt.Println(l.Limit.Name, "of", n.ID, "binds:", x.Err)
	}
	// Output:
	// key-alice tpd:5000/day from resource
	// org-1 tpd:8000/day from entity-default
	// tpd of key-alice binds: <nil>
	// key-alice tpd:5000/day from resource
	// org-1 tpd:8000/day from entity-default
	// tpd of key-alice binds: 6000 tpd requested of key-alice on gpt-4, but at most 5000 can be spent at once: ask for less or raise the limit
}
