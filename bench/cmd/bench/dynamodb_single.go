package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/bench/internal/harness"
)

// single holds the figures of one sequential caller.
type single struct {
	weir, bare              float64 // median, in microseconds
	allocs, bareAllocs      float64 // per call
	readyAllocs, wholeCalls float64
}

func singleRows() []row {
	run := sync.OnceValues(measureSingle)
	figure := func(name string, pick func(*single) float64) contender {
		return contender{name: name, size: func(*harness.Env) (float64, error) {
			s, err := run()
			return pick(&s), err
		}}
	}
	return []row{
		{
			name: "dynamodb: Acquire, 1 caller, p50", unit: microsecs,
			contenders: []contender{
				figure("weir", func(s *single) float64 { return s.weir }),
				figure("bare UpdateItem", func(s *single) float64 { return s.bare }),
			},
			target: target{ratio: 1.15},
		},
		{
			name: "dynamodb: Acquire, 1 caller", unit: calls,
			contenders: []contender{figure("weir", func(s *single) float64 { return s.wholeCalls })},
			target:     target{value: 1},
		},
		{
			name: "dynamodb: Acquire, 1 caller, allocations above a bare UpdateItem", unit: allocations,
			contenders: []contender{
				figure("weir", func(s *single) float64 { return s.allocs - s.bareAllocs }),
				figure("weir, above one with its input prepared", func(s *single) float64 {
					return s.allocs - s.readyAllocs
				}),
			},
			target: target{value: 20},
		},
	}
}

// measureSingle alternates decisions and bare calls.
func measureSingle() (s single, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e := &harness.Env{Ctx: ctx}
	defer func() { err = errors.Join(err, e.Close()) }()
	client, err := dynamoClient(e)
	if err != nil {
		return s, err
	}
	writes, _, err := recorded(e, client, 1)
	if err != nil {
		return s, err
	}
	lims, err := onDynamo(e, client, 1, unused)
	if err != nil {
		return s, err
	}
	req := weir.Request{Entity: "alice", Resource: resource, Tokens: weir.Tokens{"rpd": 1}}
	acquire := func() error { _, err := lims[0].Acquire(ctx, req); return err }
	bare := func() error { return again(ctx, client, writes[0]) }
	ready := func() error { return sent(ctx, client, writes[0]) }

	const warm, times = 200, 3000
	var took [2][]float64
	for i := range warm + times {
		if i == warm {
			took = [2][]float64{}
		}
		for which, f := range []func() error{acquire, bare} {
			began := time.Now()
			if err := f(); err != nil {
				return s, err
			}
			took[which] = append(took[which], float64(time.Since(began))/1e3)
		}
	}
	s.weir, s.bare = harness.Median(took[0]), harness.Median(took[1])
	before := e.Calls.Load()
	if s.allocs, err = mallocs(acquire); err != nil {
		return s, err
	}
	s.wholeCalls = float64(e.Calls.Load()-before) / mallocTimes
	if s.bareAllocs, err = mallocs(bare); err == nil {
		s.readyAllocs, err = mallocs(ready)
	}
	return s, err
}

func sent(ctx context.Context, client *counted, in *sdk.UpdateItemInput) error {
	_, err := client.Client.UpdateItem(ctx, in)
	return err
}

const mallocTimes = 1000

// mallocs returns the number of allocations of one call of f.
func mallocs(f func() error) (float64, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range mallocTimes {
		if err := f(); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / mallocTimes, nil
}
