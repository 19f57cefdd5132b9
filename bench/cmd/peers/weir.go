package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/engine"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/store/dynamodb"
)

// client returns a client of the engine, tuned for weir's store, and the count of its requests.
func client(change ...func(sdk.HTTPClient) sdk.HTTPClient) (*sdk.Client, *atomic.Int64, error) {
	n := new(atomic.Int64)
	c, err := engine.Connect(dynamodb.Tune, func(o *sdk.Options) {
		for _, f := range change {
			o.HTTPClient = f(o.HTTPClient)
		}
	}, engine.Counted(n))
	return c, n, err
}

// open returns a limiter as if it were in its own process.
func open(e *harness.Env, cfg dynamodb.Config) (*weir.Limiter, error) {
	// A busy engine must be measured, not time out.
	return engine.Open(e, cfg, weir.Config{StoreTimeout: 10 * time.Second})
}

// fleet returns limiters over one table, each with its own client, set up as users do.
func fleet(e *harness.Env, n int) ([]*weir.Limiter, error) {
	name, err := engine.Create(e, dynamodb.CreateConfig{})
	if err != nil {
		return nil, err
	}
	lims := make([]*weir.Limiter, n)
	for i := range lims {
		c, err := engine.Connect(dynamodb.Tune)
		if err != nil {
			return nil, err
		}
		if lims[i], err = open(e, dynamodb.Config{Client: c, Table: name}); err != nil {
			return nil, err
		}
	}
	return lims, nil
}

// single returns one limiter.
func single(e *harness.Env) (*weir.Limiter, error) {
	lims, err := fleet(e, 1)
	if err != nil {
		return nil, err
	}
	return lims[0], nil
}

func weirShape(s shape) func(*harness.Env) (harness.Drive, error) {
	return func(e *harness.Env) (harness.Drive, error) {
		name, err := engine.Create(e, dynamodb.CreateConfig{})
		if err != nil {
			return nil, err
		}
		c, calls, err := client()
		if err != nil {
			return nil, err
		}
		lim, err := open(e, dynamodb.Config{Client: c, Table: name})
		if err != nil {
			return nil, err
		}
		var limits []weir.Limit
		req := weir.Request{Resource: "api", Tokens: weir.Tokens{}}
		for i := range s.Limits {
			limits = append(limits, weir.PerMinute(names[i], 1_000_000))
			req.Tokens[names[i]] = amounts[i]
		}
		if s.Op == "reject" {
			limits = []weir.Limit{weir.PerDay("rpm", 1)}
		}
		m := harness.Meter{CPU: harness.CPU, Calls: calls}
		return func(round int, length time.Duration) (harness.Sample, error) {
			one, err := weirRound(e, lim, s, req, round)
			if err != nil {
				return harness.Sample{}, err
			}
			return m.Timed(e, s.Workers, length, one), nil
		}, admin.New(lim).Limits.Set(e.Ctx, admin.Scope{Resource: "api"}, limits...)
	}
}

// weirRound prepares a round of a shape.
func weirRound(e *harness.Env, lim *weir.Limiter, s shape, req weir.Request, round int) (harness.Op, error) {
	ids, err := weirEntities(e, lim, s, round)
	if err != nil {
		return nil, err
	}
	one := operation(lim, s.Op, req)
	for _, id := range ids { // its bucket is created, then known
		for range 2 {
			if err := one(e.Ctx, id); err != nil && s.Op != "reject" {
				return nil, err
			}
		}
	}
	at := 0 // of the single worker
	return func(ctx context.Context, worker int) error {
		if s.Workers == 1 {
			at++
			worker = at
		}
		return one(ctx, ids[worker%len(ids)])
	}, nil
}

// weirEntities returns the entities of a round. Every round has new ones, because a peer's buckets get slower with use.
func weirEntities(e *harness.Env, lim *weir.Limiter, s shape, round int) ([]string, error) {
	ids := make([]string, s.Entities)
	parent := fmt.Sprintf("r%d-parent", round)
	if s.Cascade {
		if err := admin.New(lim).Entities.Create(e.Ctx, admin.Entity{ID: parent}); err != nil {
			return nil, err
		}
	}
	for i := range ids {
		ids[i] = fmt.Sprintf("r%d-%d", round, i)
		if s.Cascade {
			if err := admin.New(lim).Entities.Create(e.Ctx, admin.Entity{
				ID: ids[i], Parent: parent, Cascade: true,
			}); err != nil {
				return nil, err
			}
		}
	}
	return ids, nil
}

var errUnexpected = errors.New("admitted what should be refused")

// operation returns what a shape does to an entity.
func operation(lim *weir.Limiter, what string, req weir.Request) func(ctx context.Context, id string) error {
	acquire := func(ctx context.Context, id string, then func(*weir.Lease) error) error {
		r := req
		r.Entity = id
		lease, err := lim.Acquire(ctx, r)
		if err == nil && then != nil {
			err = then(lease)
		}
		if err != nil {
			return err
		}
		return lease.Commit(ctx)
	}
	switch what {
	case "adjust":
		return func(ctx context.Context, id string) error {
			return acquire(ctx, id, func(l *weir.Lease) error {
				_, err := l.Adjust(ctx, weir.Tokens{"rpm": 1})
				return err
			})
		}
	case "reject":
		return func(ctx context.Context, id string) error {
			var over *weir.ExceededError
			switch err := acquire(ctx, id, nil); {
			case errors.As(err, &over):
				return nil
			case err != nil:
				return err
			}
			return errUnexpected
		}
	case "available":
		return func(ctx context.Context, id string) error {
			_, err := lim.Available(ctx, id, req.Resource)
			return err
		}
	}
	return func(ctx context.Context, id string) error { return acquire(ctx, id, nil) }
}
