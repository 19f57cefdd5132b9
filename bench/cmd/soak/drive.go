package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
)

const (
	callers = 64
	conns   = 4
)

// driver behaves as a gateway would: every request acquires, some adjust to the true cost, some roll back.
type driver struct {
	conns    []*grpc.ClientConn
	clients  []weirv1.LimiterClient
	entities int
}

func dial(addr string, entities int) (*driver, error) {
	d := &driver{entities: entities}
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

// latencies are the latencies of decisions, measured from when their requests were due.
type latencies struct {
	n, refused int
	took       []time.Duration
}

func (l *latencies) quantile(q float64) time.Duration {
	if len(l.took) == 0 {
		return 0
	}
	slices.Sort(l.took)
	return l.took[int(q*float64(len(l.took)-1))]
}

// flat has every caller send its next request as soon as it is answered, and returns the decisions per second.
func (d *driver) flat(ctx context.Context, length time.Duration) (float64, error) {
	begun := time.Now()
	l, err := d.crowd(ctx, func(int) (time.Time, bool) { return time.Now(), time.Since(begun) < length })
	return float64(l.n) / time.Since(begun).Seconds(), err
}

// paced sends requests at a constant rate, whether answers come or not. They are spread evenly over the callers.
func (d *driver) paced(ctx context.Context, rate float64, length time.Duration) (*latencies, error) {
	begun := time.Now()
	gap := time.Duration(float64(time.Second) / rate)
	var next [callers]int
	for i := range next {
		next[i] = i
	}
	return d.crowd(ctx, func(caller int) (time.Time, bool) {
		after := time.Duration(next[caller]) * gap
		next[caller] += callers
		if after >= length {
			return time.Time{}, false
		}
		due := begun.Add(after)
		time.Sleep(time.Until(due))
		return due, true
	})
}

// crowd has the callers send requests when turn says so.
func (d *driver) crowd(ctx context.Context, turn func(caller int) (due time.Time, ok bool)) (*latencies, error) {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		all   latencies
		fault error
	)
	for caller := range callers {
		wg.Go(func() {
			mine, err := d.ask(ctx, caller, turn)
			mu.Lock()
			defer mu.Unlock()
			all.n, all.refused = all.n+mine.n, all.refused+mine.refused
			all.took = append(all.took, mine.took...)
			fault = errors.Join(fault, err)
		})
	}
	wg.Wait()
	return &all, fault
}

func (d *driver) ask(ctx context.Context, caller int, turn func(int) (time.Time, bool)) (l latencies, _ error) {
	rnd := rand.New(rand.NewPCG(uint64(caller), uint64(time.Now().UnixNano())))
	zipf := rand.NewZipf(rnd, 1.2, 1, uint64(d.entities-1))
	c := d.clients[caller%conns]
	for {
		due, ok := turn(caller)
		if !ok {
			return l, nil
		}
		out, err := c.Acquire(ctx, &weirv1.AcquireRequest{
			Entity: "key-" + strconv.FormatUint(zipf.Uint64(), 10), Resource: "gpt-4",
			Tokens: map[string]int64{"rps": 1, "tpm": 500},
		})
		if err != nil {
			return l, err
		}
		l.n++
		if l.n%8 == 0 { // a sample, because half an hour has millions
			l.took = append(l.took, time.Since(due))
		}
		switch n := rnd.IntN(10); {
		case !out.GetAllowed():
			l.refused++
		case n == 0:
			_, err = c.Rollback(ctx, &weirv1.RollbackRequest{Lease: out.GetLease()})
		case n <= 2:
			_, err = c.Adjust(ctx, &weirv1.AdjustRequest{Lease: out.GetLease(), Tokens: map[string]int64{"tpm": -100}})
		}
		if err != nil {
			return l, err
		}
	}
}
