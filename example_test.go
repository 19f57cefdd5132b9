package weir_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// exampleLimiter returns a limiter whose clock stands still, so that the examples print the same each time.
func exampleLimiter() *weir.Limiter {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	lim, err := weir.New(weir.Config{Store: memory.New(&memory.Config{Now: func() time.Time { return now }})})
	if err != nil {
		panic(err)
	}
	err = admin.New(lim).Limits.Set(context.Background(), admin.Scope{Resource: "gpt-4"}, weir.PerMinute("rpm", 60), weir.PerMinute("tpm", 50_000))
	if err != nil {
		panic(err)
	}
	return lim
}

// Spend an estimate, correct it once the true cost is known, and give everything back if the work fails.
func Example() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()

	callModel := func() (used int64) { return 620 }
	lease, err := lim.Acquire(ctx, weir.Request{
		Entity: "key-alice", Resource: "gpt-4",
		Tokens: weir.Tokens{"rpm": 1, "tpm": 500}, // an estimate
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Rollback(ctx) // gives the tokens back unless committed
	used := callModel()
	if _, err := lease.Adjust(ctx, weir.Tokens{"tpm": used - 500}); err != nil {
		fmt.Println(err)
		return
	}
	if err := lease.Commit(ctx); err != nil {
		fmt.Println(err)
		return
	}

	av, err := lim.Available(ctx, "key-alice", "gpt-4")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range av.Statuses {
		fmt.Printf("%s: %d of %d left\n", s.Limit, s.Available, s.Burst)
	}
	// Output:
	// rpm: 59 of 60 left
	// tpm: 49380 of 50000 left
}

func ExampleNew() {
	lim, err := weir.New(weir.Config{
		Store:         memory.New(nil),
		CacheTTL:      30 * time.Second,
		OnUnavailable: weir.OnUnavailableDeny,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	fmt.Println(lim.Namespace())
	// Output: default
}

func ExampleLimiter_Acquire() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()
	req := weir.Request{Entity: "key-alice", Resource: "gpt-4", Tokens: weir.Tokens{"rpm": 1, "tpm": 30_000}}
	for range 2 {
		_, err := lim.Acquire(ctx, req)
		var over *weir.ExceededError
		switch {
		case errors.As(err, &over):
			fmt.Println("come back in", over.RetryAfter)
			for _, s := range over.Statuses {
				fmt.Printf("%s from the %s: %d requested, %d available, refused %t\n", s.Limit, s.Source, s.Requested, s.Available, s.Refused)
			}
		case err != nil:
			fmt.Println(err)
			return
		default:
			fmt.Println("admitted")
		}
	}
	// Output:
	// admitted
	// come back in 12s
	// rpm from the resource: 1 requested, 59 available, refused false
	// tpm from the resource: 30000 requested, 20000 available, refused true
}

// Limits that come with the request replace the entity's own for this call.
func ExampleLimiter_Acquire_override() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()
	trial := weir.Request{
		Entity: "key-trial", Resource: "gpt-4",
		Tokens: weir.Tokens{"rpm": 1}, Limits: []weir.Limit{weir.PerMinute("rpm", 1)},
	}
	for range 2 {
		_, err := lim.Acquire(ctx, trial)
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// limit exceeded: rpm of key-trial on gpt-4 has 0 of 1 available, 1 requested; retry in 1m0s
}

// Distinguish a request that can never pass from one that may pass later.
func ExampleBurstError() {
	lim := exampleLimiter()
	defer lim.Close()
	_, err := lim.Acquire(context.Background(), weir.Request{Entity: "key-alice", Resource: "gpt-4", Tokens: weir.Tokens{"tpm": 80_000}})
	fmt.Println(errors.Is(err, weir.ErrExceedsBurst), errors.Is(err, weir.ErrExceeded))
	fmt.Println(err)
	// Output:
	// true false
	// 80000 tpm requested of key-alice on gpt-4, but at most 50000 can be spent at once: ask for less or raise the limit
}

func ExampleLimiter_AcquireAll() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()
	if err := admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "search"}, weir.PerMinute("rpm", 1)); err != nil {
		fmt.Println(err)
		return
	}
	both := []weir.Request{
		{Entity: "key-alice", Resource: "gpt-4", Tokens: weir.Tokens{"rpm": 1, "tpm": 500}},
		{Entity: "key-alice", Resource: "search", Tokens: weir.Tokens{"rpm": 1}},
	}
	for range 2 {
		leases, err := lim.AcquireAll(ctx, both)
		fmt.Println(len(leases), errors.Is(err, weir.ErrExceeded))
	}
	av, err := lim.Available(ctx, "key-alice", "gpt-4")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(av.Statuses[0].Available) // the second request spent nothing
	// Output:
	// 2 false
	// 0 true
	// 59
}

func ExampleLimiter_Allow() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()
	if err := admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "key-bob"}, weir.PerSecond("rps", 2)); err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		ok, err := lim.Allow(ctx, "key-bob", "api")
		fmt.Println(ok, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
}

func ExampleLimiter_Do() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()
	req := weir.Request{Entity: "key-alice", Resource: "gpt-4", Tokens: weir.Tokens{"rpm": 1, "tpm": 500}}
	err := lim.Do(ctx, req, func(context.Context, *weir.Lease) error { return errors.New("the model is down") })
	fmt.Println(err)
	av, err := lim.Available(ctx, "key-alice", "gpt-4")
	fmt.Println(av.Statuses[1].Available, err) // everything was given back
	// Output:
	// the model is down
	// 50000 <nil>
}

func ExampleLimiter_Wait() {
	lim := exampleLimiter()
	defer lim.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req := weir.Request{Entity: "key-alice", Resource: "gpt-4", Tokens: weir.Tokens{"tpm": 50_000}}
	lease, err := lim.Wait(ctx, req)
	fmt.Println(lease != nil, err)
	_, err = lim.Wait(ctx, req) // would take a minute, so it fails at once
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.Is(err, weir.ErrExceeded))
	// Output:
	// true <nil>
	// true true
}

func ExampleLimiter_Available() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()
	if _, err := lim.Acquire(ctx, weir.Request{Entity: "key-alice", Resource: "gpt-4", Tokens: weir.Tokens{"tpm": 45_000}}); err != nil {
		fmt.Println(err)
		return
	}
	av, err := lim.Available(ctx, "key-alice", "gpt-4")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range []int64{5000, 20_000} { // without asking the store again
		fits, _ := av.Fits(weir.Tokens{"rpm": 1, "tpm": n})
		wait, _ := av.RetryAfter(weir.Tokens{"rpm": 1, "tpm": n})
		fmt.Println(n, fits, wait)
	}
	// Output:
	// 5000 true 0s
	// 20000 false 18s
}

func ExampleLimiter_In() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()
	if _, err := admin.New(lim).Namespaces.Create(ctx, "tenant-alpha"); err != nil {
		fmt.Println(err)
		return
	}
	alpha := lim.In("tenant-alpha")
	_, err := alpha.Acquire(ctx, weir.Request{Entity: "key-alice", Resource: "gpt-4"})
	fmt.Println(err) // the limits of "default" are not alpha's
	_, err = lim.In("tenant-beta").Acquire(ctx, weir.Request{Entity: "key-alice", Resource: "gpt-4"})
	fmt.Println(err)
	// Output:
	// no limits apply to entity "key-alice" on resource "gpt-4": set some for the entity, the resource or the system
	// namespace "tenant-beta": not found
}
