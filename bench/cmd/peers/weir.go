package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/measure"
	"github.com/weirlimits/weir/bench/internal/requests"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store/dynamodb"
)

func credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "bench", SecretAccessKey: "bench"}, nil
}

// client returns a client of the engine that all contenders use, tuned for weir's store, and the count of its requests.
func client(change ...func(sdk.HTTPClient) sdk.HTTPClient) (*sdk.Client, *atomic.Int64, error) {
	n := new(atomic.Int64)
	c, err := connect(requests.Count(n), dynamodb.Tune, func(o *sdk.Options) {
		for _, f := range change {
			o.HTTPClient = f(o.HTTPClient)
		}
	})
	return c, n, err
}

func connect(options ...func(*sdk.Options)) (*sdk.Client, error) {
	url, err := dynamotest.Endpoint()
	if err != nil {
		return nil, err
	}
	return sdk.New(sdk.Options{
		BaseEndpoint: &url, Region: "us-east-1",
		Credentials: aws.NewCredentialsCache(aws.CredentialsProviderFunc(credentials)),
	}, options...), nil
}

// table creates a table as weir does, and returns its name.
func table(e *env, cfg dynamodb.CreateConfig) (string, error) {
	c, _, err := client()
	if err != nil {
		return "", err
	}
	name := "peers-" + rand.Text()
	_, err = dynamodb.Create(e.ctx, c, name, cfg)
	return name, err
}

// open returns a limiter as if it were in its own process.
func open(e *env, cfg dynamodb.Config) (*weir.Limiter, error) {
	st, err := dynamodb.Open(e.ctx, cfg)
	if err != nil {
		return nil, err
	}
	// A busy engine must be measured, not time out.
	lim, err := weir.New(weir.Config{Store: st, StoreTimeout: 10 * time.Second})
	if err == nil {
		e.defers(lim.Close)
	}
	return lim, err
}

// fleet returns limiters over one table, each with its own client, set up as users do.
func fleet(e *env, n int) ([]*weir.Limiter, error) {
	name, err := table(e, dynamodb.CreateConfig{})
	if err != nil {
		return nil, err
	}
	lims := make([]*weir.Limiter, n)
	for i := range lims {
		c, err := connect(dynamodb.Tune)
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
func single(e *env) (*weir.Limiter, error) {
	lims, err := fleet(e, 1)
	if err != nil {
		return nil, err
	}
	return lims[0], nil
}

// counting returns one limiter whose requests are counted. It is not for measuring time: weir does not use connections
// that count what passes as it uses plain ones.
func counting(e *env) (*weir.Limiter, *atomic.Int64, error) {
	name, err := table(e, dynamodb.CreateConfig{})
	if err != nil {
		return nil, nil, err
	}
	c, calls, err := client()
	if err != nil {
		return nil, nil, err
	}
	lim, err := open(e, dynamodb.Config{Client: c, Table: name})
	return lim, calls, err
}

// countFor is which part of a round's time requests are counted in, after the rest was measured.
const countFor = 5

func weirShape(s shape) func(*env) (drive, error) {
	return func(e *env) (drive, error) {
		lim, err := single(e)
		if err != nil {
			return nil, err
		}
		counted, calls, err := counting(e)
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
		for _, l := range []*weir.Limiter{lim, counted} {
			if err := admin.New(l).Limits.Set(e.ctx, admin.Scope{Resource: "api"}, limits...); err != nil {
				return nil, err
			}
		}
		return func(round int, length time.Duration) (sample, error) {
			measured, err := weirRound(e, lim, s, req, round, meter{cpu: measure.CPU})
			if err != nil {
				return sample{}, err
			}
			result := measured(length)
			count, err := weirRound(e, counted, s, req, round, meter{measure.CPU, calls})
			if err != nil {
				return sample{}, err
			}
			c := count(length / countFor)
			if c.failed > 0 {
				return sample{}, fmt.Errorf("%d of %d operations failed while requests were counted", c.failed, c.ops)
			}
			result.calls = c.calls
			return result, nil
		}, nil
	}
}

// weirRound prepares a round of a shape.
func weirRound(
	e *env, lim *weir.Limiter, s shape, req weir.Request, round int, m meter,
) (func(time.Duration) sample, error) {
	ids, err := weirEntities(e, lim, s, round)
	if err != nil {
		return nil, err
	}
	one := operation(lim, s.Op, req)
	for _, id := range ids { // its bucket is created, then known
		for range 2 {
			if err := one(e.ctx, id); err != nil && s.Op != "reject" {
				return nil, err
			}
		}
	}
	at := 0 // of the single worker
	return timed(e, s.Workers, m, func(ctx context.Context, worker int) error {
		if s.Workers > 1 {
			return one(ctx, ids[worker%len(ids)])
		}
		at++
		return one(ctx, ids[at%len(ids)])
	}), nil
}

// weirEntities returns the entities of a round. Every round has new ones, because a peer's buckets get slower with use.
func weirEntities(e *env, lim *weir.Limiter, s shape, round int) ([]string, error) {
	ids := make([]string, s.Entities)
	parent := fmt.Sprintf("r%d-parent", round)
	if s.Cascade {
		if err := admin.New(lim).Entities.Create(e.ctx, admin.Entity{ID: parent}); err != nil {
			return nil, err
		}
	}
	for i := range ids {
		ids[i] = fmt.Sprintf("r%d-%d", round, i)
		if s.Cascade {
			if err := admin.New(lim).Entities.Create(e.ctx, admin.Entity{
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
			return acquire(ctx, id, func(l *weir.Lease) error { return l.Adjust(ctx, weir.Tokens{"rpm": 1}) })
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
