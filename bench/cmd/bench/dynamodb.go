package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/engine"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/bench/internal/inprocess"
	"github.com/weirlimits/weir/store/dynamodb"
)

// unused admits everything that a benchmark asks for, and hardly refills in the meantime.
var unused = weir.PerDay("rpd", 1).WithBurst(1_000_000_000)

func dynamoRows() []row {
	rows := []row{
		{
			name: "dynamodb: admitted, 64 callers, 10,000 buckets", unit: perSecond, workers: callers,
			contenders: []contender{
				{name: "weir", setup: allowDynamo(10_000)},
				{name: "bare UpdateItem", setup: bareUpdates(10_000)},
			},
			target: target{ratio: 0.9, calls: 1},
		},
		{
			name: "dynamodb: admitted, 1,000 callers, one bucket", unit: perSecond, workers: 1000,
			contenders: []contender{{name: "weir", setup: allowDynamo(1)}},
			target:     target{value: 100_000, calls: 0.01},
		},
		{
			name: "dynamodb: refused, 64 callers, one bucket of 10/min", unit: perSecond, workers: callers,
			contenders: []contender{{name: "weir", setup: refuseDynamo}},
			target:     target{value: 1_000_000, callRate: 10},
		},
	}
	rows = append(rows, singleRows()...)
	return append(rows, crowdRows()...)
}

// counted is a client that counts its requests. If it keeps inputs, it keeps those passed to the SDK.
type counted struct {
	*sdk.Client

	mu    sync.Mutex
	last  map[string]*sdk.UpdateItemInput // by bucket; nil if not kept
	times map[string]int                  // number of writes, by bucket
}

func (c *counted) UpdateItem(
	ctx context.Context, in *sdk.UpdateItemInput, opts ...func(*sdk.Options),
) (*sdk.UpdateItemOutput, error) {
	if c.last != nil {
		pk := in.Key["PK"].(*types.AttributeValueMemberS).Value
		c.mu.Lock()
		c.last[pk] = in
		c.times[pk]++
		c.mu.Unlock()
	}
	return c.Client.UpdateItem(ctx, in, opts...)
}

// api returns the client for a store to make its calls with.
func (c *counted) api() dynamodb.API {
	if c.last != nil {
		return c
	}
	return c.Client
}

// dynamoClient returns a client tuned for the store.
func dynamoClient(e *harness.Env) (*counted, error) {
	c, err := engine.Connect(dynamodb.Tune, engine.Counted(&e.Calls))
	return &counted{Client: c}, err
}

// onDynamo returns n limiters, as if each were in its own process, over a new table with one limit for all entities.
func onDynamo(e *harness.Env, client *counted, n int, limit weir.Limit) ([]*weir.Limiter, error) {
	table, err := engine.Create(e, dynamodb.CreateConfig{})
	if err != nil {
		return nil, err
	}
	lims := make([]*weir.Limiter, n)
	for i := range lims {
		// A busy engine must be measured, not time out, and caches must not expire.
		lims[i], err = engine.Open(e, dynamodb.Config{Client: client.api(), Table: table},
			weir.Config{StoreTimeout: time.Minute, CacheTTL: time.Hour})
		if err != nil {
			return nil, err
		}
	}
	return lims, admin.New(lims[0]).Limits.Set(e.Ctx, admin.Scope{}, limit)
}

// touchAll uses every key twice, concurrently: the first use creates its bucket, the second one knows it.
func touchAll(ks *harness.Keys, use func(id string) error) error {
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for w := range callers {
		wg.Go(func() {
			for i := w; i < len(ks.IDs) && errs[w] == nil; i += callers {
				errs[w] = errors.Join(use(ks.IDs[i]), use(ks.IDs[i]))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// allowDynamo counts the admitted requests for one token each.
func allowDynamo(n int) func(*harness.Env) (harness.Work, error) {
	return func(e *harness.Env) (harness.Work, error) {
		client, err := dynamoClient(e)
		if err != nil {
			return nil, err
		}
		lims, err := onDynamo(e, client, 1, unused)
		if err != nil {
			return nil, err
		}
		ks := harness.Uniform(n)
		err = touchAll(ks, func(id string) error { _, err := lims[0].Allow(e.Ctx, id, resource); return err })
		return allowed(e, asking(lims[0]), ks, true), err
	}
}

// asking returns how to request one token of a limiter.
func asking(lim *weir.Limiter) inprocess.Ask {
	return func(ctx context.Context, id string) (bool, error) { return lim.Allow(ctx, id, resource) }
}

func refuseDynamo(e *harness.Env) (harness.Work, error) {
	client, err := dynamoClient(e)
	if err != nil {
		return nil, err
	}
	lims, err := onDynamo(e, client, 1, weir.PerMinute("rpm", 10))
	if err != nil {
		return nil, err
	}
	ks := harness.Uniform(1)
	w := allowed(e, asking(lims[0]), ks, false)
	return func(worker, _ int) (int, error) { return w(worker, 64) }, nil
}

// bareUpdates repeats the store's own writes without the store: the same expressions and items, on a separate client.
func bareUpdates(n int) func(*harness.Env) (harness.Work, error) {
	return func(e *harness.Env) (harness.Work, error) {
		client, err := dynamoClient(e)
		if err != nil {
			return nil, err
		}
		writes, ks, err := recorded(e, client, n)
		if err != nil {
			return nil, err
		}
		return func(worker, n int) (int, error) {
			for range n {
				if err := again(e.Ctx, client, writes[ks.Next(worker)]); err != nil {
					return 0, err
				}
			}
			return n, nil
		}, nil
	}
}

// recorded returns the last write to each of n buckets. These writes can be repeated any number of times.
func recorded(e *harness.Env, client *counted, n int) ([]*sdk.UpdateItemInput, *harness.Keys, error) {
	client.last, client.times = make(map[string]*sdk.UpdateItemInput), make(map[string]int)
	lims, err := onDynamo(e, client, 1, unused)
	if err != nil {
		return nil, nil, err
	}
	ks := harness.Uniform(n)
	if err := touchAll(ks, func(id string) error {
		_, err := lims[0].Allow(
			e.Ctx, id, resource,
		)
		return err
	}); err != nil {
		return nil, nil, err
	}
	var writes []*sdk.UpdateItemInput
	for pk, in := range client.last {
		if client.times[pk] != 2 {
			return nil, nil, fmt.Errorf("%s was written %d times", pk, client.times[pk])
		}
		writes = append(writes, in)
	}
	client.last = nil
	return writes, ks, nil
}

// again repeats a write, building its values as hand-written code would.
func again(ctx context.Context, client *counted, in *sdk.UpdateItemInput) error {
	_, err := client.Client.UpdateItem(ctx, remade(in))
	return err
}

func remade(in *sdk.UpdateItemInput) *sdk.UpdateItemInput {
	out := *in
	out.ExpressionAttributeValues = make(map[string]types.AttributeValue, len(in.ExpressionAttributeValues))
	for name, v := range in.ExpressionAttributeValues {
		switch v := v.(type) {
		case *types.AttributeValueMemberN:
			out.ExpressionAttributeValues[name] = &types.AttributeValueMemberN{Value: v.Value}
		case *types.AttributeValueMemberS:
			out.ExpressionAttributeValues[name] = &types.AttributeValueMemberS{Value: v.Value}
		}
	}
	return &out
}
