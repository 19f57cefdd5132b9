package open_test

import (
	"context"
	"fmt"
	"log"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store/open"
)

func ExampleStore() {
	ctx := context.Background()
	st, err := open.Store(ctx, "memory:") // or what the program's configuration says: redis://localhost:6379/0
	if err != nil {
		log.Fatal(err)
	}
	lim, err := weir.New(weir.Config{Store: st})
	if err != nil {
		log.Fatal(err)
	}
	defer lim.Close()

	_, err = lim.Acquire(ctx, weir.Request{
		Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 1},
		Limits: []weir.Limit{weir.PerMinute("rpm", 60)},
	})
	fmt.Println(err)
	// Output: <nil>
}
