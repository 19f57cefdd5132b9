package weir_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// Work that uses more than it asked for goes into debt, which holds the next request back.
func ExampleLease_Adjust() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()
	req := weir.Request{Entity: "key-alice", Resource: "gpt-4", Tokens: weir.Tokens{"rpm": 1}}
	lease, err := lim.Acquire(ctx, req)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := lease.Adjust(ctx, weir.Tokens{"tpm": 75_000}); err != nil { // a limit that the request did not name
		fmt.Println(err)
		return
	}
	_, err = lim.Acquire(ctx, req)
	fmt.Println(err)
	// Output:
	// limit exceeded: tpm of key-alice on gpt-4 has -25000 of 50000 available, 0 requested; retry in 30s
}

func ExampleLease_Rollback() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()
	lease, err := lim.Acquire(ctx, weir.Request{Entity: "key-alice", Resource: "gpt-4", Tokens: weir.Tokens{"rpm": 60}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Rollback(ctx))
	fmt.Println(lease.Rollback(ctx)) // exactly once
	// Output:
	// <nil>
	// the lease was rolled back
}

func ExampleLease_Decision() {
	lim := exampleLimiter()
	defer lim.Close()
	lease, err := lim.Acquire(context.Background(), weir.Request{Entity: "key-alice", Resource: "gpt-4", Tokens: weir.Tokens{"tpm": 10_000}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range lease.Decision().Statuses {
		fmt.Printf("%s: %d left, full in %v\n", s.Limit, s.Available, s.Full)
	}
	// Output:
	// rpm: 60 left, full in 0s
	// tpm: 40000 left, full in 12s
}

// A server hands out a lease, and takes it back in any process.
func ExampleLimiter_LeaseFromToken() {
	ctx := context.Background()
	lim := exampleLimiter()
	defer lim.Close()
	lease, err := lim.Acquire(ctx, weir.Request{Entity: "key-alice", Resource: "gpt-4", Tokens: weir.Tokens{"tpm": 500}})
	if err != nil {
		fmt.Println(err)
		return
	}
	expires := lease.Decision().At.Add(5 * time.Minute)
	ticket, err := json.Marshal(lease.Token("a-unique-id", expires)) // sign it before handing it out
	if err != nil {
		fmt.Println(err)
		return
	}

	for range 2 { // it arrives twice
		var held weir.LeaseToken
		if err := json.Unmarshal(ticket, &held); err != nil {
			fmt.Println(err)
			return
		}
		resumed, err := lim.LeaseFromToken(ctx, held)
		if err != nil {
			fmt.Println(err)
			return
		}
		err = resumed.Rollback(ctx)
		fmt.Println(err, errors.Is(err, weir.ErrSettled))
	}
	// Output:
	// <nil> false
	// settled before true
}

func ExampleParseLimit() {
	for _, text := range []string{"rpm:100/min", "tpm:50K/min:75K", "jobs:3/10min", "rpm:100"} {
		limit, err := weir.ParseLimit(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(limit.Name, limit.Amount, limit.Period, limit.Burst)
	}
	// Output:
	// rpm 100 1m0s 100
	// tpm 50000 1m0s 75000
	// jobs 3 10m0s 3
	// limit "rpm:100": has no period; write name:amount/unit[:burst], as in tpm:50K/min:75K or usd:5000/month@UTC, or parallel:20slots
}

func ExampleLimit_WithBurst() {
	fmt.Println(weir.PerMinute("tpm", 50_000).WithBurst(100_000))
	// Output: tpm:50K/min:100K
}

func ExampleObserver() {
	lim, err := weir.New(weir.Config{
		Store: memory.New(nil),
		Observer: &weir.Observer{Decided: func(_ context.Context, e weir.DecidedEvent) {
			fmt.Println(e.Entity, e.Resource, e.Allowed, errors.Is(e.Err, weir.ErrExceeded))
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	ctx := context.Background()
	if err := admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerHour("rph", 1)); err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		_, _ = lim.Acquire(ctx, weir.Request{Entity: "key-alice", Resource: "api", Tokens: weir.Tokens{"rph": 1}})
	}
	// Output:
	// key-alice api true false
	// key-alice api false true
}
