package load

import (
	"context"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/lab/traffic"
)

// ticket is one call of an open loop.
type ticket struct {
	n   uint64
	due time.Duration
}

const (
	// slumber is how much the Go runtime may oversleep: it waits for the network in whole milliseconds.
	slumber = 1200 * time.Microsecond
	// grace is how long after the end a call that was due before may still begin.
	grace = 100 * time.Millisecond
)

// open hands each call, once it is due, to a free caller, and starts another caller if none is free.
func (r *runner) open(ctx context.Context, begun time.Time) {
	tickets := make(chan ticket)
	var wg sync.WaitGroup
	callers := 0
	hire := func() {
		s := r.shards[callers%len(r.shards)]
		callers++
		wg.Go(func() { r.caller(context.WithoutCancel(ctx), s, tickets, begun) })
	}
	for range min(r.Callers, r.AtOnce()/r.options.Parts) {
		hire()
	}
	step, n := uint64(r.options.Parts), uint64(r.options.Part)
	p := &pacer{begun: begun, precise: r.options.Precise}
	for ; n < r.Calls(); n += step {
		t := ticket{n, r.Due(n)}
		if !p.until(ctx, t.due) || p.now > r.Length()+grace {
			break
		}
		select {
		case tickets <- t:
			continue
		default:
		}
		if callers < r.Callers {
			runtime.Gosched() // a caller may be about to become free
			select {
			case tickets <- t:
				continue
			default:
			}
			hire()
		} else {
			r.capped = true
		}
		select {
		case tickets <- t:
			p.now = time.Since(begun)
			continue
		case <-ctx.Done():
		}
		break
	}
	close(tickets)
	wg.Wait()
	if n < r.Calls() && ctx.Err() == nil {
		r.missed = (r.Calls() - n + step - 1) / step
	}
	_ = wait(ctx, r.Length()-time.Since(begun)) // the run is over either way
}

func (r *runner) caller(ctx context.Context, s *shard, tickets <-chan ticket, begun time.Time) {
	d := r.Drawer()
	var c traffic.Call
	for t := range tickets {
		d.Nth(t.n, t.due, &c)
		r.call(ctx, s, &c, begun.Add(t.due))
	}
}

// pacer waits until calls are due.
type pacer struct {
	begun   time.Time
	now     time.Duration // when it last read the clock
	precise bool
}

// until waits until due. It returns false if the context ends first.
func (p *pacer) until(ctx context.Context, due time.Duration) bool {
	if due <= p.now { // many are due together
		return ctx.Err() == nil
	}
	early := time.Duration(0)
	if p.precise {
		early = slumber
	}
	for {
		p.now = time.Since(p.begun)
		switch left := due - p.now; {
		case left <= 0:
			return ctx.Err() == nil
		case left > early:
			if wait(ctx, left-early) != nil {
				return false
			}
		default:
			runtime.Gosched()
		}
	}
}

// idle is how often a user beyond the current number checks again.
const idle = 100 * time.Millisecond

// closed runs users that each wait for an answer before the next call.
func (r *runner) closed(ctx context.Context, begun time.Time) {
	var wg sync.WaitGroup
	for u := r.options.Part; u < r.MostUsers(); u += r.options.Parts {
		wg.Go(func() { r.user(ctx, u, begun) })
	}
	wg.Wait()
}

func (r *runner) user(ctx context.Context, u int, begun time.Time) {
	s := r.shards[u%len(r.shards)]
	d := r.User(u)
	calls := context.WithoutCancel(ctx)
	pause := d.Begin()
	var c traffic.Call
	for {
		left := r.Length() - time.Since(begun)
		if pause > 0 {
			if wait(ctx, min(pause, left)) != nil || pause >= left {
				return
			}
		}
		at := time.Since(begun)
		if at >= r.Length() || ctx.Err() != nil {
			return
		}
		if float64(u) >= math.Round(r.Users(at)) {
			pause = idle
			continue
		}
		d.Next(at, &c)
		r.call(calls, s, &c, time.Now())
		pause = d.Pause()
	}
}
