package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/bench/internal/harness"
)

const (
	crowdClients = 50
	crowdRate    = 1000
)

// crowdRows measure clients that do not know of each other: each decision costs at least one write, and one more for
// every wrong guess of the bucket's level.
func crowdRows() (rows []row) {
	for _, c := range []struct{ load, most float64 }{{0.1, 1.2}, {0.6, 1.1}, {0.95, 1.1}} {
		rows = append(rows, row{
			name: fmt.Sprintf(
				"dynamodb: calls per admission, %d clients, one bucket of %d/s, open loop at %.0f %%", crowdClients,
				crowdRate, 100*c.load,
			),
			unit: calls,
			contenders: []contender{{name: "weir", size: func(e *harness.Env) (float64, error) {
				return crowd(e, c.load)
			}}},
			target: target{value: c.most},
		})
	}
	return rows
}

// crowd has independent clients request one token at a time, one call after another, at random instants that do not
// depend on the answers. It returns the number of calls per admission.
func crowd(e *harness.Env, load float64) (float64, error) {
	const warm, length = 2 * time.Second, 6 * time.Second
	client, err := dynamoClient(e)
	if err != nil {
		return 0, err
	}
	lims, err := onDynamo(e, client, crowdClients, weir.PerSecond("rps", crowdRate))
	if err != nil {
		return 0, err
	}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, crowdClients)
	queues := make([]chan struct{}, crowdClients)
	for i, lim := range lims {
		queues[i] = make(chan struct{}, 10*crowdRate)
		wg.Go(func() {
			for range queues[i] {
				ok, err := lim.Allow(e.Ctx, "alice", resource)
				if err != nil {
					errs <- err
					return
				}
				if ok {
					admitted.Add(1)
				}
			}
		})
	}
	var before, yes int64
	arrive(e.Ctx, load*crowdRate, warm, queues)
	before, yes = e.Calls.Load(), admitted.Load()
	arrive(e.Ctx, load*crowdRate, length, queues)
	called, served := e.Calls.Load()-before, admitted.Load()-yes
	for _, q := range queues {
		close(q)
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
	}
	return float64(called) / float64(served), nil
}

// arrive sends callers to random queues, at rate a second on average.
func arrive(ctx context.Context, rate float64, length time.Duration, queues []chan struct{}) {
	r := rand.New(rand.NewPCG(2024, uint64(rate)))
	began := time.Now()
	for next := time.Duration(0); next < length && ctx.Err() == nil; {
		time.Sleep(time.Until(began.Add(next)))
		for next < time.Since(began) || next == 0 {
			queues[r.IntN(len(queues))] <- struct{}{}
			next += time.Duration(r.ExpFloat64() / rate * float64(time.Second))
		}
	}
}
