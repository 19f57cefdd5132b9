package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/lab/load"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

//go:embed gateway.yaml
var gateway []byte

const (
	callers = 16
	conns   = 4
)

// driver behaves as a gateway would: every request acquires, some adjust to the true cost, some roll back.
type driver struct {
	conns    []*grpc.ClientConn
	clients  []weirv1.LimiterClient
	scenario *traffic.Scenario
	runs     uint64 // so far: each has another seed, and half of the entities are others

	mu  sync.Mutex
	net map[string]int64 // requests admitted in this run, without those rolled back, by entity
}

func dial(addr string, entities int) (*driver, error) {
	sc, err := traffic.Decode("gateway", gateway)
	if err != nil {
		return nil, err
	}
	for i := range sc.Entities {
		sc.Entities[i].Count = entities / len(sc.Entities)
	}
	d := &driver{scenario: sc}
	for range conns {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.conns = append(d.conns, conn)
		d.clients = append(d.clients, weirv1.NewLimiterClient(conn))
	}
	return d, nil
}

func (d *driver) close() (err error) {
	for _, c := range d.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

// fill sends requests for a while as fast as they are answered, for so many entities that the server's caches are full
// early. It returns the rate.
func (d *driver) fill(ctx context.Context, length time.Duration) (float64, error) {
	comes := &d.scenario.Entities[1]
	count := comes.Count
	defer func() { comes.Count = count }()
	comes.Count = 1_000_000
	r, err := d.run(ctx, 0, length)
	if err != nil {
		return 0, err
	}
	return r.Rate, nil
}

// run sends requests for a while: at a constant rate, whether answers come or not, or if the rate is 0, from each
// caller as soon as it is answered. A failed request is an error.
func (d *driver) run(ctx context.Context, rate float64, length time.Duration) (*load.Report, error) {
	d.runs++
	d.scenario.Entities[1].ID = fmt.Sprintf("key-%d-%%d", d.runs)
	d.net = make(map[string]int64)
	began := time.Now()
	none := traffic.Span(0)
	set := traffic.Settings{
		Loop: traffic.Closed, Users: callers, Wait: &traffic.Range{}, For: traffic.Span(length), WarmUp: &none,
		Seed: d.runs,
	}
	if rate > 0 {
		set.Loop, set.Rate, set.Callers = traffic.Open, rate, callers
	}
	p, err := traffic.NewPlan(d.scenario, set)
	if err != nil {
		return nil, err
	}
	t, err := load.Run(ctx, p, d, load.Options{})
	if err != nil {
		return nil, err
	}
	r := load.NewReport(p, t)
	if r.Failed > 0 {
		return r, fmt.Errorf("%d requests failed: %v", r.Failed, r.Errors)
	}
	return r, cmp.Or(ctx.Err(), d.over(time.Since(began)))
}

// admitted counts n requests of an entity.
func (d *driver) admitted(entity string, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.net[entity] += n
}

// over returns an error if more requests of an entity were admitted in a run than its limit allows.
func (d *driver) over(length time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for entity, n := range d.net {
		if most := perSecond * (1 + length.Seconds()); float64(n) > most {
			return fmt.Errorf("%s: %d admitted in %s, %.0f allowed", entity, n, length, most)
		}
	}
	return nil
}

// client returns the client for an entity.
func (d *driver) client(entity string) weirv1.LimiterClient {
	return d.clients[int(entity[len(entity)-1])%conns]
}

// Acquire implements [load.Target].
func (d *driver) Acquire(ctx context.Context, c *traffic.Call) (load.Held, error) {
	to := d.client(c.Entity)
	out, err := to.Acquire(ctx, &weirv1.AcquireRequest{Entity: c.Entity, Resource: c.Resource, Tokens: c.Tokens})
	if err != nil || !out.GetAllowed() {
		return nil, err
	}
	d.admitted(c.Entity, 1)
	return held{d, c.Entity, to, out.GetLease(), c.Tokens}, nil
}

// Available implements [load.Target].
func (*driver) Available(context.Context, *traffic.Call) error { return errors.ErrUnsupported }

// held is a lease.
type held struct {
	driver *driver
	entity string
	client weirv1.LimiterClient
	lease  string
	tokens weir.Tokens
}

// Slots implements [load.Held]: the limits have none.
func (held) Slots() load.Slots { return load.Slots{} }

// Commit implements [load.Held].
func (held) Commit(context.Context) error { return errors.ErrUnsupported }

// Adjust implements [load.Held], without balances. A request that turns out to have cost nothing is rolled back.
func (h held) Adjust(ctx context.Context, tokens weir.Tokens) (_ []weir.Balance, err error) {
	left := int64(0)
	for name, n := range h.tokens {
		left += n + tokens[name]
	}
	if left == 0 {
		if _, err = h.client.Rollback(ctx, &weirv1.RollbackRequest{Lease: h.lease}); err == nil {
			h.driver.admitted(h.entity, -1)
		}
	} else {
		_, err = h.client.Adjust(ctx, &weirv1.AdjustRequest{Lease: h.lease, Tokens: tokens})
	}
	return nil, err
}
