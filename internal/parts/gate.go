package parts

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Gate lets callers call the store in turn. The zero value lets everybody call it at once. It is safe for concurrent
// use.
type Gate struct{ enter atomic.Pointer[Enter] }

// Enter waits until a caller, who is found in ctx, may make n calls to the store at once in a namespace. Once they have
// ended, the caller must call leave. The errors, of a caller whose turn does not come, are those to answer with.
type Enter func(ctx context.Context, namespace string, n int) (leave func(), err error)

// Use sets how to enter. Only the first call counts, so that all who serve a limiter share one order.
func (g *Gate) Use(e Enter) { g.enter.CompareAndSwap(nil, &e) }

// Enter is [Enter].
func (g *Gate) Enter(ctx context.Context, namespace string, n int) (leave func(), err error) {
	if e := g.enter.Load(); e != nil {
		return (*e)(ctx, namespace, n)
	}
	return func() {}, nil
}

// Round is how many requests of one decision have the time of one: as many as a request of Envoy, which waits no
// longer, may have descriptors. More have as much more time.
const Round = 100

// Begin waits until a decision on n requests may call the store, and then bounds all its calls. After an error, nothing
// has begun. For a store that never waits, it does nothing.
func (p *Parts) Begin(ctx context.Context, n int) (within context.Context, end func(), err error) {
	if p.Outage == nil {
		return ctx, func() {}, nil
	}
	leave, err := p.Gate.Enter(ctx, p.Policies.Name(), n)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("acquire: %w", ctx.Err())
		}
		return nil, nil, err
	}
	rounds := (n + Round - 1) / Round
	within, cancel := context.WithTimeout(ctx, time.Duration(rounds)*p.Within.Get())
	return within, func() {
		cancel()
		leave()
	}, nil
}

const (
	// together is for how many requests one call reads: their records fit into one of DynamoDB, and into a tenth of a
	// millisecond of Redis. It takes turns for as many calls as togetherCounts.
	together, togetherCounts = 25, 4
)

// Prefetch reads what the decisions on n requests will need and is not cached, for several requests with each call. It
// reports no errors, and ends with the first: decisions read what is still missing.
func (p *Parts) Prefetch(ctx context.Context, n int, request func(i int) (entity, resource string, own bool)) {
	if p.Outage == nil || p.Outage.Down() {
		return
	}
	var missing []int
	seen := make(map[[2]string]bool) // all requests of one entity on one resource need the same
	for i := range n {
		entity, resource, own := request(i)
		if of := [2]string{entity, resource}; !seen[of] && !p.Policies.Has(entity, resource, own) {
			seen[of] = true
			missing = append(missing, i)
		}
	}
	if len(missing) < 2 {
		return
	}
	var wg sync.WaitGroup
	var failed atomic.Bool
	for some := range slices.Chunk(missing, together) {
		wg.Go(func() {
			within, end, err := p.Begin(ctx, togetherCounts)
			if err != nil {
				return
			}
			defer end()
			if failed.Load() {
				return
			}
			of := func(i int) (entity, resource string, own bool) { return request(some[i]) }
			if err := p.Policies.Prefetch(within, len(some), of); err != nil {
				failed.Store(true)
			}
		})
	}
	wg.Wait()
}

// Within is how long a decision may take. It may be set at any time.
type Within struct{ nanos atomic.Int64 }

// Set sets it.
func (w *Within) Set(d time.Duration) { w.nanos.Store(int64(d)) }

// Get returns it.
func (w *Within) Get() time.Duration { return time.Duration(w.nanos.Load()) }
