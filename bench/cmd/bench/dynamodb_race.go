package main

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/bench/internal/readwrite"
	"github.com/weirlimits/weir/store/dynamodb"
)

const (
	raceTokens    = 1000
	raceRequests  = 6000
	raceInstances = 16
)

// raced is the outcome of a race of instances for one bucket.
type raced struct{ admitted, failed float64 }

// raceRows report how much is admitted: it must be at most what the bucket holds.
func raceRows() []row {
	const what = "dynamodb: 1,000 tokens, 6,000 requests from 16 instances: "
	runs := []struct {
		name string
		run  func() (raced, error)
	}{
		{"weir", sync.OnceValues(raceWeir)},
		{"read, then write, unchecked", sync.OnceValues(func() (raced, error) { return raceReaders(false) })},
		{"read, then write", sync.OnceValues(func() (raced, error) { return raceReaders(true) })},
	}
	var admitted, failed []contender
	for _, r := range runs {
		admitted = append(admitted, contender{name: r.name, size: func(*env) (float64, error) {
			res, err := r.run()
			return res.admitted, err
		}})
		failed = append(failed, contender{name: r.name, size: func(*env) (float64, error) {
			res, err := r.run()
			return res.failed, err
		}})
	}
	return []row{
		{name: what + "admitted", unit: admissions, contenders: admitted, target: target{value: raceTokens}},
		{name: what + "errors", unit: failures, contenders: failed},
	}
}

// race has all instances send their requests concurrently.
func race(ask func(instance int) (bool, error)) raced {
	var admitted, failed atomic.Int64
	var wg sync.WaitGroup
	for i := range raceInstances {
		wg.Go(func() {
			for range raceRequests / raceInstances {
				ok, err := ask(i)
				switch {
				case err != nil:
					failed.Add(1)
				case ok:
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return raced{float64(admitted.Load()), float64(failed.Load())}
}

func raceWeir() (res raced, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e := &env{ctx: ctx}
	defer func() { err = firstOf(err, e.close()) }()
	client, err := dynamoClient(e)
	if err != nil {
		return res, err
	}
	lims, err := onDynamo(e, client, raceInstances, weir.PerDay("rpd", 1).WithBurst(raceTokens))
	if err != nil {
		return res, err
	}
	return race(func(i int) (bool, error) { return lims[i].Allow(ctx, "alice", resource) }), nil
}

func raceReaders(check bool) (res raced, err error) {
	ctx := context.Background()
	client, err := dynamoClient(&env{ctx: ctx})
	if err != nil {
		return res, err
	}
	b := &readwrite.Limiter{
		Client: client, Table: "bench-" + rand.Text(), Check: check, Tokens: raceTokens, Every: 24 * time.Hour,
		Now: time.Now,
	}
	if _, err := dynamodb.Create(ctx, client, b.Table, dynamodb.CreateConfig{}); err != nil {
		return res, err
	}
	return race(func(int) (bool, error) { return b.Allow(ctx, "bucket") }), nil
}
