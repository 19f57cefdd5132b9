package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	goredis "github.com/redis/go-redis/v9"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/engine"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

// work is what is decided, and by whom.
type work struct {
	store                                            string
	entities, limits, depth, processes, callers, age int
}

var usual = work{entities: 1000, limits: 1, depth: 1, processes: 1, callers: 8}

const (
	resource   = "api"
	maxBuckets = 20_000_000
	preparing  = 64          // goroutines that use each entity before anything is measured
	patience   = time.Minute // because a busy machine must be measured, not time out
)

// bench is a store, its meters, and the limiters over it.
type bench struct {
	lims         []*weir.Limiter
	open         func() (store.Store, error)
	calls, units func() float64 // so far
	memory       func() float64 // of a server
	request      weir.Request
	ids          *harness.Keys
	heap         float64 // before anything was opened
	served       float64 // the server's memory then
}

func none() float64 { return 0 }

func (w *work) measure(e *harness.Env, length time.Duration) (p point, err error) {
	w.entities = min(w.entities, e.Few(w.entities, 20))
	b := &bench{
		calls: none, units: none, memory: none, ids: harness.Uniform(w.entities),
		request: weir.Request{Resource: resource, Tokens: weir.Tokens{}},
	}
	if err := b.find(e, w.store); err != nil {
		return p, err
	}
	b.heap, b.served = heap(), b.memory()
	if err := b.begin(e, *w); err != nil {
		return p, err
	}
	if err := b.prepare(e.Ctx, max(w.entities, w.age)); err != nil {
		return p, err
	}
	p.memory = heap() - b.heap + b.memory() - b.served
	calls, units := b.calls(), b.units()
	s := harness.Meter{CPU: harness.CPU}.Timed(e, w.callers, length, func(ctx context.Context, worker int) error {
		return b.decide(ctx, worker, b.ids.ID(worker))
	})
	if s.Failed > 0 {
		return p, fmt.Errorf("%d of %d decisions failed", s.Failed, s.Ops)
	}
	n := float64(s.Ops)
	p.p50, p.p99, p.calls, p.money = s.P50, s.P99, (b.calls()-calls)/n, price((b.units()-units)/n)
	return p, nil
}

// find prepares to open stores of a kind.
func (b *bench) find(e *harness.Env, kind string) error {
	switch kind {
	case memoryStore:
		b.open = func() (store.Store, error) { return memory.New(&memory.Config{MaxBuckets: maxBuckets}), nil }
	case diskStore:
		b.open = func() (store.Store, error) {
			return disk.Open(filepath.Join(e.Dir, "disk"), &disk.Config{MaxBuckets: maxBuckets})
		}
	case redisStore:
		return b.findRedis(e)
	default:
		return b.findDynamo(e)
	}
	return nil
}

func (b *bench) findRedis(e *harness.Env) error {
	addr, err := engine.Redis(e)
	if err != nil {
		return err
	}
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	e.Defer(c.Close)
	// info returns the sum of the figures of a section that follow one of the words.
	info := func(section string, words ...string) (sum float64) {
		text := c.Info(e.Ctx, section).Val()
		for _, word := range words {
			if _, rest, ok := strings.Cut(text, word); ok {
				n, _ := strconv.ParseFloat(rest[:strings.IndexAny(rest, ",\r\n")], 64)
				sum += n
			}
		}
		return sum
	}
	b.calls = func() float64 { return info("commandstats", "cmdstat_evalsha:calls=", "cmdstat_fcall:calls=") }
	b.memory = func() float64 { return info("memory", "used_memory:") }
	b.open = func() (store.Store, error) {
		return redis.Open(e.Ctx, redis.Config{Address: "redis://" + addr, CallTimeout: patience})
	}
	return nil
}

func (b *bench) findDynamo(e *harness.Env) error {
	table, err := engine.Create(e, dynamodb.CreateConfig{})
	if err != nil {
		return err
	}
	var units atomic.Int64
	b.calls = func() float64 { return float64(e.Calls.Load()) }
	b.units = func() float64 { return float64(units.Load()) }
	b.open = func() (store.Store, error) {
		c, err := engine.Connect(dynamodb.Tune, engine.Counted(&e.Calls))
		if err != nil {
			return nil, err
		}
		return dynamodb.Open(e.Ctx, dynamodb.Config{
			Client: metered{c, &units}, Table: table, CallTimeout: patience, WriteTimeout: patience,
		})
	}
	return nil
}

// metered counts the write units of decisions.
type metered struct {
	*sdk.Client
	units *atomic.Int64
}

// UpdateItem implements [dynamodb.API].
func (m metered) UpdateItem(
	ctx context.Context, in *sdk.UpdateItemInput, opts ...func(*sdk.Options),
) (*sdk.UpdateItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.UpdateItem(ctx, in, opts...)
	var failed *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &failed): // charged, but not reported
		m.units.Add(1)
	case err == nil && out.ConsumedCapacity != nil && out.ConsumedCapacity.CapacityUnits != nil:
		m.units.Add(int64(math.Round(*out.ConsumedCapacity.CapacityUnits)))
	}
	return out, err
}

// begin opens the limiters, and sets limits and entities.
func (b *bench) begin(e *harness.Env, w work) error {
	for range w.processes {
		st, err := b.open()
		if err != nil {
			return err
		}
		lim, err := weir.New(weir.Config{Store: st, StoreTimeout: patience, CacheTTL: time.Hour}) // none expires
		if err != nil {
			return err
		}
		e.Defer(lim.Close)
		b.lims = append(b.lims, lim)
	}
	var limits []weir.Limit
	for i := range w.limits {
		name := "limit" + strconv.Itoa(i)
		limits = append(limits, unused(name))
		b.request.Tokens[name] = 1
	}
	a := admin.New(b.lims[0])
	if err := a.Limits.Set(e.Ctx, admin.Scope{Resource: resource}, limits...); err != nil || w.depth == 1 {
		return err
	}
	parent := ""
	for i := 1; i < w.depth; i++ {
		id := "level" + strconv.Itoa(i)
		if err := a.Entities.Create(e.Ctx, admin.Entity{ID: id, Parent: parent, Cascade: parent != ""}); err != nil {
			return err
		}
		parent = id
	}
	return b.ids.Touch(func(id string) error {
		return a.Entities.Create(e.Ctx, admin.Entity{ID: id, Parent: parent, Cascade: true})
	})
}

func (b *bench) decide(ctx context.Context, worker int, id string) error {
	r := b.request
	r.Entity = id
	_, err := b.lims[worker%len(b.lims)].Acquire(ctx, r)
	return err
}

// prepare makes so many decisions, for all entities in turn, by all processes, and by each at least two.
func (b *bench) prepare(ctx context.Context, times int) error {
	var wg sync.WaitGroup
	errs := make([]error, preparing)
	times = max(times, 2*len(b.lims))
	for worker := range preparing {
		wg.Go(func() {
			for i := worker; i < times && errs[worker] == nil; i += preparing {
				errs[worker] = b.decide(ctx, i, b.ids.IDs[i%len(b.ids.IDs)])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
